package nft_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// TestWatchMissesNothing changes a plain table right after the first Sync, before Watch is called, and
// changes so much later that messages are lost.
func TestWatchMissesNothing(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	state := &frontend.State{Frontends: []*frontend.Frontend{tcp(vip(0, 1), frontend.Plain, endpoints(0, 3)...)}}
	table := w.table(nil).Plain()
	w.sync(table, state)
	if n := w.sync(table, state); n != 0 {
		t.Fatalf("a second Sync changed %d elements", n)
	}
	nftCommand(t, "flush table ip portolan-proxy")
	notices, ended := make(chan nft.Notice, 1), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- table.Watch(ctx, notices) }()
	await := func(want nft.Notice) {
		t.Helper()
		select {
		case got := <-notices:
			if got != want {
				t.Errorf("notice %d, want %d", got, want)
			}
		case <-time.After(patience):
			t.Fatal("no notice")
		}
	}
	await(nft.Changed)
	w.sync(table, state)
	if a := w.dial(w.pod, podClient[0], netip.AddrPortFrom(vip(0, 1), 80)); a.err != "" {
		t.Errorf("after the repair: %s", a)
	}

	// All that another table has overflows the buffer, and one change of this one is lost among them.
	stop()
	must(t, <-ended)
	w.sync(table, state)
	must(t, table.Deafen())
	var many strings.Builder
	many.WriteString(
		"add table ip other\nadd set ip other s { type ipv4_addr; }\nflush chain ip portolan-proxy services\n",
	)
	for i := range 5000 {
		fmt.Fprintf(&many, "add element ip other s { 10.0.%d.%d }\n", i>>8, i&255)
	}
	file := filepath.Join(t.TempDir(), "many")
	must(t, os.WriteFile(file, []byte(many.String()), 0o600))
	if out, err := exec.CommandContext(t.Context(), "nft", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	notices = make(chan nft.Notice, 1)
	ctx, stop = context.WithCancel(t.Context())
	go func() { ended <- table.Watch(ctx, notices) }()
	await(nft.Lost)
	w.sync(table, state)
	if a := w.dial(w.pod, podClient[0], netip.AddrPortFrom(vip(0, 1), 80)); a.err != "" {
		t.Errorf("after messages were lost: %s", a)
	}
	stop()
	must(t, <-ended)
}

// TestLeftBehind has tables that a process left that was killed while it replaced one of another
// layout, itself the bridge of another: the next Sync removes them, and so does Remove.
func TestLeftBehind(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	state := &frontend.State{Frontends: []*frontend.Frontend{tcp(vip(0, 1), frontend.Plain, endpoints(0, 3)...)}}
	const name, neighbor = nft.DefaultName, nft.DefaultName + nft.BridgeSuffix + "door"
	leave := func() {
		for i, name := range []string{name, name + nft.BridgeSuffix, name + nft.BridgeSuffix + nft.BridgeSuffix} {
			table := w.table(func(c *nft.Config) { c.Name, c.Mark = name, 1<<i })
			w.sync(table, state)
			must(t, table.Close())
		}
		nftCommand(t, "add table ip "+name+nft.ProbeSuffix)
		nftCommand(t, "add table ip "+neighbor)
	}
	tables := func() string {
		out, err := exec.CommandContext(t.Context(), "nft", "list", "tables").Output()
		must(t, err)
		list := strings.Split(strings.TrimSpace(string(out)), "\n")
		slices.Sort(list)
		return strings.Join(list, ", ")
	}
	leave()
	table := w.table(nil)
	w.sync(table, state)
	want := "table ip " + name + ", table ip " + neighbor + ", table ip " + name + nft.ProbeSuffix + ", table ip6 " + name
	if got := tables(); got != want {
		t.Errorf("after Sync there are %s, want %s", got, want)
	}
	if a := w.dial(w.pod, podClient[0], netip.AddrPortFrom(vip(0, 1), 80)); a.err != "" {
		t.Errorf("after a Sync: %s", a)
	}
	must(t, table.Close())
	leave()
	removed, err := nft.Remove(name)
	must(t, err)
	if left := tables(); left != "table ip "+neighbor {
		t.Errorf("after Remove, which removed %q, there are %s", removed, left)
	}
}

// TestHairpin: a packet of an endpoint to its own address is masqueraded if it went to a virtual
// address, and only then.
func TestHairpin(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	self := endpoint(0, 1)
	table := w.table(nil)
	w.sync(table, &frontend.State{
		Frontends: []*frontend.Frontend{tcp(vip(0, 1), frontend.Plain, self)}, Hairpins: []netip.Addr{self.Addr()},
	})
	if a := w.dial(
		w.servers,
		self.Addr(),
		netip.AddrPortFrom(vip(0, 1), 80),
	); a.server != self ||
		a.client.Addr() != inner[0] {
		t.Errorf("to the virtual address: %s, want that %s saw %s", a, self, inner[0])
	}
	const port = 7777
	namespacetest.Do(t, w.servers, func() {
		link, err := net.InterfaceByName("eth0")
		must(t, err)
		gateway := neighbor(t, inner[0])
		socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, int(network16(unix.ETH_P_IP)))
		must(t, err)
		defer unix.Close(socket)
		must(t, unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
		to := &unix.SockaddrLinklayer{Protocol: network16(unix.ETH_P_IP), Ifindex: link.Index, Halen: 6}
		copy(to.Addr[:], gateway)
		must(t, unix.Sendto(socket, datagram(self.Addr(), self.Addr(), port), 0, to))
		packet := make([]byte, 1500)
		for {
			n, from, err := unix.Recvfrom(socket, packet, 0)
			if err != nil {
				t.Fatalf("a packet to the endpoint's own address does not come back: %v", err)
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); !ok || ll.Pkttype == unix.PACKET_OUTGOING || n < 28 ||
				binary.BigEndian.Uint16(packet[22:]) != port {
				continue
			}
			if source := netip.AddrFrom4([4]byte(packet[12:16])); source != self.Addr() {
				t.Errorf("to the endpoint's own address: the source is %s, want %s", source, self.Addr())
			}
			return
		}
	})
}

// network16 returns a number of 16 bits in network order.
func network16(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// neighbor returns the link address of a neighbor of the namespace.
func neighbor(t *testing.T, addr netip.Addr) net.HardwareAddr {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", "neighbor", "show", "to", addr.String()).Output()
	must(t, err)
	fields := strings.Fields(string(out))
	i := slices.Index(fields, "lladdr")
	if i < 0 || i+1 == len(fields) {
		t.Fatalf("no neighbor %s: %s", addr, out)
	}
	link, err := net.ParseMAC(fields[i+1])
	must(t, err)
	return link
}

// datagram returns an IPv4 packet with an empty UDP datagram to a port (RFC 791, RFC 768).
func datagram(from, to netip.Addr, port uint16) []byte {
	const size = 28
	p := []byte{0x45, 0, 0, size, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	p = append(append(p, from.AsSlice()...), to.AsSlice()...)
	var sum uint32
	for i := 0; i < len(p); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum))
	p = binary.BigEndian.AppendUint16(p, 1111)
	p = binary.BigEndian.AppendUint16(p, port)
	return binary.BigEndian.AppendUint32(p, 8<<16) // length, no checksum
}

// TestThousandEndpoints connects to a Service of 1,000 endpoints, all of which are used, and then of
// 500, while the others are used no more.
func TestThousandEndpoints(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	const n = 1000
	all := make([]netip.AddrPort, n)
	for i := range all {
		all[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(16 + i>>8), byte(i)}), serverPort)
	}
	cidr := netip.MustParsePrefix("10.244.16.0/22")
	namespacetest.Do(t, w.servers, func() { must(t, w.refuseAll(cidr)) }) // serves, since it listens
	nets, err := net.InterfaceByName(serverNet.name)
	must(t, err)
	must(t, routeTo(nets.Index, cidr, serverNet.peers[0].Addr()))
	table := w.table(nil)
	front := tcp(vip(0, 1), frontend.Plain, all...)
	w.sync(table, &frontend.State{Frontends: []*frontend.Frontend{front}})
	connect := func(times int) map[netip.AddrPort]int {
		seen := make(map[netip.AddrPort]int)
		namespacetest.Do(t, w.pod, func() {
			for range times {
				a := dial(podClient[0], netip.AddrPortFrom(vip(0, 1), 80))
				if a.err != "" {
					t.Errorf("%d endpoints: %s", len(front.Endpoints), a)
				}
				seen[a.server]++
			}
		})
		return seen
	}
	// Of 3,000 draws, 1,000 endpoints miss 50 on average, e to the -3.
	if seen := connect(3 * n); len(seen) < n*9/10 {
		t.Errorf("%d connections used %d of %d endpoints", 3*n, len(seen), n)
	}
	less := *front
	less.Endpoints = nil
	gone := make(map[netip.AddrPort]bool)
	for i, e := range all {
		if gone[e] = i%2 == 1; !gone[e] {
			less.Endpoints = append(less.Endpoints, e)
		}
	}
	must(t, apply(table, &frontend.Changes{Put: []*frontend.Frontend{&less}}))
	for e := range connect(n) {
		if gone[e] {
			t.Errorf("%s was removed and gets connections", e)
		}
	}
}

// TestAffinitySetFull fills the set of remembered clients: further clients are served without affinity,
// and those that are remembered stay.
func TestAffinitySetFull(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	front := tcp(vip(0, 1), frontend.Plain, endpoints(0, 3)...)
	front.Affinity = &frontend.Affinity{Group: "shop/web", Timeout: time.Hour}
	table := w.table(nil).Plain() // so that nft may fill it
	w.sync(table, &frontend.State{Frontends: []*frontend.Frontend{front}})
	connect := func(from *namespace.Network, source netip.Addr) netip.AddrPort {
		t.Helper()
		a := w.dial(from, source, netip.AddrPortFrom(vip(0, 1), 80))
		if a.err != "" {
			t.Errorf("from %s: %s", source, a)
		}
		return a.server
	}
	known := connect(w.pod, podClient[0])
	var fill strings.Builder
	fill.WriteString("add element ip portolan-proxy affinity {\n")
	for i := range nft.MaxClients - 1 {
		fmt.Fprintf(&fill, "11.%d.%d.%d . 0x00000009 : 0x00010009,\n", i>>16, i>>8&255, i&255)
	}
	fill.WriteString("}\n")
	file := filepath.Join(t.TempDir(), "fill")
	must(t, os.WriteFile(file, []byte(fill.String()), 0o600))
	if out, err := exec.CommandContext(t.Context(), "nft", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	full := exec.CommandContext(t.Context(), "nft", "add element ip portolan-proxy affinity { 12.0.0.1 . 0x9 : 0x10009 }")
	if out, err := full.CombinedOutput(); err == nil {
		t.Fatalf("the set is not full: %s", out)
	}
	servers := make(map[netip.AddrPort]int)
	for range 40 {
		servers[connect(w.outside, outClient[0])]++
		if got := connect(w.pod, podClient[0]); got != known {
			t.Fatalf("a remembered client is at %s, was at %s", got, known)
		}
	}
	if len(servers) != 3 { // one of three is missed with a probability of 3e-7
		t.Errorf("a client without affinity used %v, want 3 endpoints", servers)
	}
}

// TestIPv6Disabled programs both families in a namespace whose IPv6 is off.
func TestIPv6Disabled(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	must(t, os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0))
	state := new(frontend.State)
	for _, f := range families {
		state.Frontends = append(state.Frontends, tcp(vip(f, 1), frontend.External, endpoints(f, 3)...))
	}
	state.ServiceCIDRs = prefixes("10.96.0.0/24", "fd00:96::/112")
	table := w.table(nil)
	w.sync(table, state)
	for range 10 {
		if a := w.dial(w.outside, outClient[0], netip.AddrPortFrom(vip(0, 1), 80)); a.err != "" {
			t.Errorf("IPv4 without IPv6: %s", a)
		}
	}
	must(t, os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("0"), 0))
	if n := w.sync(table, state); n != 0 {
		t.Errorf("Sync with IPv6 again changed %d elements", n)
	}
}

// killed is the environment variable of the process that TestKilled kills: how it programs its table.
const killed = "PORTOLAN_PROXY_KILLED"

// TestKilled kills a process at random moments while it changes the table, replaces its layout and
// starts anew. The next one makes the table what it should be, and meanwhile each address is served
// by its own endpoints.
func TestKilled(t *testing.T) {
	if kind := os.Getenv(killed); kind != "" {
		changeForever(t, kind)
		return
	}
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	last := lastState()
	for _, kind := range []string{"owned", "plain"} {
		table := w.killedTable(kind, 0)
		w.sync(table, last)
		must(t, table.Close())
		var stops []func()
		for i := range 3 {
			stops = append(stops, w.keepDialing(netip.AddrPortFrom(vip(0, i+1), 80), endpoint(0, i+1)))
		}
		random := rand.New(rand.NewPCG(11, 12))
		const kills = 12
		for range kills {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
			cmd.Env = append(os.Environ(), killed+"="+kind)
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			_, err = io.ReadFull(out, make([]byte, 1)) // it has begun
			must(t, err)
			time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
			must(t, cmd.Process.Signal(syscall.SIGKILL))
			_ = cmd.Wait()
			table := w.killedTable(kind, 0)
			w.sync(table, last)
			if n := w.sync(table, last); n != 0 {
				t.Errorf("%s: a second Sync changed %d elements", kind, n)
			}
			must(t, table.Close())
		}
		for _, stop := range stops {
			stop()
		}
		got := elementsOf(t, nft.DefaultName)
		scratch := w.table(func(c *nft.Config) { c.Name = "scratch" })
		w.sync(scratch, last)
		must(t, scratch.Close())
		if want := elementsOf(t, "scratch"); got != want {
			t.Errorf("%s: the table is\n%s\nfrom scratch it is\n%s", kind, got, want)
		}
		for _, name := range []string{nft.DefaultName, "scratch"} {
			_, err := nft.Remove(name)
			must(t, err)
		}
	}
}

// killedTable returns a table of TestKilled with one of a few layouts.
func (w *world) killedTable(kind string, layout int) *nft.Table {
	table := w.table(func(c *nft.Config) { c.Mark = 1 << (14 + layout) })
	if kind == "plain" {
		table.Plain()
	}
	return table
}

// lastState has three addresses, each with one endpoint that is only its own.
func lastState() *frontend.State {
	s := &frontend.State{ServiceCIDRs: prefixes("10.96.0.0/24")}
	for i := range 3 {
		s.Frontends = append(s.Frontends, tcp(vip(0, i+1), frontend.Plain, endpoint(0, i+1)))
	}
	return s
}

// changeForever is the process that is killed: it changes a table at random.
func changeForever(t *testing.T, kind string) {
	t.Helper()
	w := &world{t: t}
	random := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	fmt.Println("begun")
	for {
		table := w.killedTable(kind, random.IntN(3))
		state := lastState()
		// Others come and go, so that there are large transactions, too.
		for i := range random.IntN(3000) {
			at := netip.AddrFrom4([4]byte{10, 98, byte(i >> 8), byte(i)})
			state.Frontends = append(state.Frontends, tcp(at, frontend.Plain, endpoints(0, 3)...))
		}
		if _, err := table.Sync(state); err != nil && !errors.Is(err, nft.ErrOwned) {
			t.Fatal(err)
		}
		for range random.IntN(200) {
			i := 1 + random.IntN(3)
			f := tcp(vip(0, i), frontend.Policy(random.IntN(2)), endpoint(0, i))
			if random.IntN(3) == 0 {
				f.Affinity = &frontend.Affinity{Group: f.String(), Timeout: time.Hour}
			}
			must(t, apply(table, &frontend.Changes{Put: []*frontend.Frontend{f}}))
		}
		table.Close()
	}
}

// elementsOf returns the elements of a table's sets but affinity, in order.
func elementsOf(t *testing.T, table string) string {
	t.Helper()
	var all strings.Builder
	for _, set := range []string{
		"map services", "map endpoints", "map local", "map admitted", "set source-ranges", "set cluster-ips", "set addresses",
		"set service-cidrs", "set hairpin", "map affinity-groups", "map affinity-choices", "map affinity-endpoints",
	} {
		kind, name, _ := strings.Cut(set, " ")
		out, err := exec.CommandContext(t.Context(), "nft", "list", kind, "ip", table, name).Output()
		must(t, err)
		_, list, _ := strings.Cut(string(out), "elements = {")
		elements := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '}' || r == '\n' })
		for i := range elements {
			elements[i] = strings.TrimSpace(elements[i])
		}
		slices.Sort(elements)
		fmt.Fprintln(&all, name, slices.DeleteFunc(elements, func(s string) bool { return s == "" }))
	}
	return all.String()
}

// TestBridgeLeft removes tables that a process left that was killed while it replaced its own. They
// are asked first, as they are newer. Packets that are in them at that moment are served.
func TestBridgeLeft(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	state := lastState()
	table := w.table(nil)
	w.sync(table, state)
	var stops []func()
	for i := range 3 {
		for range 3 {
			stops = append(stops, w.keepDialing(netip.AddrPortFrom(vip(0, i+1), 80), endpoint(0, i+1)))
		}
	}
	const rounds = 40
	for range rounds {
		left := w.table(func(c *nft.Config) { c.Name = nft.DefaultName + nft.BridgeSuffix })
		w.sync(left, state)
		must(t, left.Close())
		w.sync(table, state)
	}
	for _, stop := range stops {
		stop()
	}
}
