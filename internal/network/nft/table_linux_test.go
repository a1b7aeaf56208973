package nft

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// world is a node with a Pod that serves, one that is a client only, and a network outside.
type world struct {
	t                    *testing.T
	server, pod, outside *namespace.Network
}

var (
	servers  = addrList("10.244.1.7", "fd00:244:1::7")
	pods     = addrList("10.244.1.8", "fd00:244:1::8")
	node     = addrList("192.0.2.1", "2001:db8::1")
	outsides = addrList("192.0.2.7", "2001:db8::7")
	ranges   = Ranges{
		Pods:    prefixList("10.244.1.0/24", "fd00:244:1::/64"),
		Cluster: prefixList("10.96.0.0/16", "10.244.0.0/16", "192.0.2.1/32", "2001:db8::1/128", "fd00:244::/32"),
	}
)

const servePort = 8080

// onNode makes the world; nil outside of its namespaces.
func onNode(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return nil
	}
	w := &world{t: t}
	w.server = namespacetest.AttachPod(t, "server", servers...)
	w.pod = namespacetest.AttachPod(t, "client", pods...)
	w.outside = namespacetest.Attach(t, "outside", prefixList("192.0.2.1/24", "2001:db8::1/64"), prefixList("192.0.2.7/24", "2001:db8::7/64")...)
	must(t, namespace.IP(
		"route replace 10.244.1.7 dev server scope link src 192.0.2.1", "route replace 10.244.1.8 dev client scope link src 192.0.2.1",
	))
	for _, device := range []string{"server", "client"} {
		namespacetest.SetSysctl(t, "net/ipv4/conf/"+device+"/route_localnet", "1")
	}
	for _, ns := range []*namespace.Network{w.server, w.outside} {
		namespacetest.Do(t, ns, func() { serve(t, servePort) })
	}
	return w
}

// serve answers with the address that it sees.
func serve(t *testing.T, port int) {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
			_, _ = io.WriteString(conn, from.Addr().Unmap().String())
			conn.Close()
		}
	}()
}

// source connects from a namespace, and returns the source that the server sees, or an error in a word.
func source(from *namespace.Network, own, to netip.Addr, port uint16) (seen string) {
	_ = from.Do(func() error {
		d := net.Dialer{Timeout: 3 * time.Second}
		if own.IsValid() {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(own, 0))
		}
		conn, err := d.Dial("tcp", netip.AddrPortFrom(to, port).String())
		switch {
		case errors.Is(err, unix.ECONNREFUSED):
			seen = "refused"
		case err != nil:
			seen = "no answer"
		default:
			defer conn.Close()
			text, _ := io.ReadAll(conn)
			seen = string(text)
		}
		return nil
	})
	return seen
}

// TestMasquerade: Pods keep their address inside of the cluster, and get the node's outside.
func TestMasquerade(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	table := New(Config{})
	must(t, table.Sync(ranges))
	for f := range servers {
		if got := source(w.pod, netip.Addr{}, outsides[f], servePort); got != node[f].String() {
			t.Errorf("a Pod outside of the cluster is seen as %s, want %s", got, node[f])
		}
		if got := source(w.pod, netip.Addr{}, servers[f], servePort); got != pods[f].String() {
			t.Errorf("a Pod is seen by another as %s, want %s", got, pods[f])
		}
	}
	outer := prefixList("192.0.2.0/28", "2001:db8::/120")
	must(t, table.Apply(&RangeChanges{
		AddCluster: outer, DeleteCluster: prefixList("192.0.2.1/32", "2001:db8::1/128"),
	}))
	for f := range servers {
		must(t, addRoute(w, f))
		if got := source(w.pod, netip.Addr{}, outsides[f], servePort); got != pods[f].String() {
			t.Errorf("a Pod in a range that is not masqueraded is seen as %s, want %s", got, pods[f])
		}
	}
	table.Close()
	table = New(Config{KeepSource: true})
	must(t, table.Sync(ranges))
	if got := source(w.pod, netip.Addr{}, outsides[0], servePort); got != pods[0].String() {
		t.Errorf("without masquerading a Pod is seen as %s, want %s", got, pods[0])
	}
}

// addRoute gives outside a route to the Pods of a family.
func addRoute(w *world, f int) error {
	return w.outside.Do(func() error {
		return namespace.IP(fmt.Sprintf("route replace %s via %s", ranges.Pods[f], node[f]))
	})
}

// TestHostPorts: ports of the node lead to Pods, from everywhere.
func TestHostPorts(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	table := New(Config{})
	one := Port{Protocol: TCP, HostPort: 1, To: netip.MustParseAddrPort("10.244.1.9:1")}
	if err := table.AddPorts("shop/web", []Port{one}); !errors.Is(err, ErrNotSynced) {
		t.Errorf("AddPorts before Sync: %v", err)
	}
	if err := errors.Join(table.Restore([]Owner{{"shop/old", []Port{one}}}), table.DeletePorts("shop/old")); err != nil {
		t.Errorf("a Pod that ends before Sync: %v", err)
	}
	must(t, table.Sync(ranges))
	var all []Port
	for f := range servers {
		to := netip.AddrPortFrom(servers[f], servePort)
		all = append(all, Port{TCP, netip.Addr{}, 80, to}, Port{TCP, node[f], 81, to})
	}
	all = append(all, Port{TCP, netip.MustParseAddr("127.0.0.1"), 82, netip.AddrPortFrom(servers[0], servePort)})
	all = append(all, Port{TCP, netip.MustParseAddr("127.0.0.2"), 84, netip.AddrPortFrom(servers[0], servePort)})
	must(t, table.AddPorts("shop/web", all))
	none := netip.Addr{}
	loopback := netip.MustParseAddr("127.0.0.1")
	check := func(what string, from *namespace.Network, own, to netip.Addr, port uint16, want string) {
		t.Helper()
		if got := source(from, own, to, port); got != want {
			t.Errorf("%s, to %s port %d: seen as %q, want %q", what, to, port, got, want)
		}
	}
	for f := range servers {
		for _, port := range []uint16{80, 81} {
			check("outside", w.outside, none, node[f], port, outsides[f].String())
			check("a Pod of the node", w.pod, none, node[f], port, pods[f].String())
			check("the node", nil, none, node[f], port, node[f].String())
			// Its own address would be answered within the Pod.
			if got := source(w.server, none, node[f], port); got == servers[f].String() || net.ParseIP(got) == nil {
				t.Errorf("the Pod itself, to %s port %d: seen as %q, want an address of the node", node[f], port, got)
			}
		}
		check("a port that nobody has", w.outside, none, node[f], 83, "refused")
		check("an address that is not the node's", w.pod, none, outsides[f], 80, "refused")
	}
	if got := source(nil, none, loopback, 80); net.ParseIP(got) == nil {
		t.Errorf("the node at 127.0.0.1: %q", got)
	}
	check("the node, from its own address, at 127.0.0.1", nil, node[0], loopback, 82, node[0].String())
	check("the other addresses", w.outside, none, node[0], 82, "refused")
	must(t, w.outside.Do(func() error { // 127.0.0.2 by the link
		return namespace.IP("route add 127.0.0.2 via 192.0.2.1 table 7", "rule add to 127.0.0.2 lookup 7 pref 0", "rule add lookup local pref 1", "rule del pref 0 lookup local")
	}))
	namespacetest.SetSysctl(t, "net/ipv4/conf/outside/route_localnet", "1")
	serve(t, 90)
	namespacetest.Do(t, w.outside, func() { namespacetest.SetSysctl(t, "net/ipv4/conf/all/route_localnet", "1") })
	second := netip.MustParseAddr("127.0.0.2")
	check("127.0.0.0/8 of the node from outside", w.outside, none, second, 90, "no answer")
	check("a port of 127.0.0.0/8 from outside", w.outside, none, second, 84, "no answer")
	untracked := `table ip untracked {
		chain in { type filter hook prerouting priority raw; ip daddr 127.0.0.2 notrack; }
		chain out { type filter hook output priority raw; ip saddr 127.0.0.2 notrack; }
	}`
	must(t, exec.Command("nft", untracked).Run())
	check("127.0.0.0/8 of the node from outside, untracked", w.outside, none, second, 90, "no answer")
	must(t, exec.Command("nft", "delete table ip untracked").Run())
	if err := table.AddPorts("shop/api", all[:1]); err == nil || !strings.Contains(err.Error(), "shop/web") {
		t.Errorf("a port that another Pod has: %v", err)
	}
	must(t, table.DeletePorts("shop/web"))
	must(t, table.DeletePorts("shop/web"))
	for f := range servers {
		check("a port that is gone", w.outside, none, node[f], 80, "refused")
	}
	if list := listed(t); strings.Contains(list, "8080") || strings.Contains(list, servers[0].String()) {
		t.Errorf("after DeletePorts:\n%s", list)
	}
}

// TestSurvives: the table stays, is taken over, and is the same after whatever happened to it.
func TestSurvives(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	all := []Owner{{"a", []Port{{UDP, netip.Addr{}, 53, netip.AddrPortFrom(servers[0], 53)}}}}
	for _, plain := range []bool{false, true} {
		next := func() *Table {
			table := New(Config{plain: plain})
			must(t, table.Restore(all))
			return table
		}
		first := next()
		must(t, first.Sync(ranges))
		want := listed(t)
		t.Log(want)
		if !plain {
			if err := New(Config{}).Sync(ranges); !errors.Is(err, ErrOwned) {
				t.Errorf("Sync beside another process: %v, want ErrOwned", err)
			}
			if _, err := Cleanup(DefaultName); !errors.Is(err, ErrOwned) {
				t.Errorf("Cleanup beside another process: %v, want ErrOwned", err)
			}
		}
		first.Close()
		for _, damage := range []string{
			"list ruleset", "flush table inet portolan-network", "delete table inet portolan-network", "add chain inet portolan-network other",
			"add rule inet portolan-network postrouting drop", "flush set inet portolan-network cluster4", "flush map inet portolan-network host-ports4",
			"add element inet portolan-network pods4 { 10.0.0.0/16 }", "insert rule inet portolan-network guard accept",
		} {
			if out, err := exec.Command("nft", damage).CombinedOutput(); err != nil {
				t.Fatalf("nft %s: %v: %s", damage, err, out)
			}
			table := next()
			if err := table.Sync(ranges); err != nil {
				t.Errorf("Sync after %q: %v", damage, err)
			}
			if got := listed(t); got != want {
				t.Errorf("after %q:\n%s\nwant\n%s", damage, got, want)
			}
			table.Close()
		}
		if removed, err := Cleanup(DefaultName); err != nil || !slices.Equal(removed, []string{"nftables table inet portolan-network"}) {
			t.Errorf("Cleanup: %q, %v", removed, err)
		}
		if removed, err := Cleanup(DefaultName); err != nil || len(removed) > 0 {
			t.Errorf("Cleanup again: %q, %v", removed, err)
		}
	}
}

// TestCheckPorts: CheckPorts names the ports of a Pod that the kernel lacks, or that another Pod has.
func TestCheckPorts(t *testing.T) {
	if onNode(t) == nil {
		return
	}
	table := New(Config{plain: true}) // nobody else can change another
	must(t, table.Sync(ranges))
	to := netip.AddrPortFrom(servers[0], servePort)
	all := []Port{
		{TCP, netip.Addr{}, 80, to}, {UDP, node[0], 81, to}, {TCP, netip.Addr{}, 80, netip.AddrPortFrom(servers[1], servePort)},
	}
	for damage, want := range map[string]string{
		"list ruleset": "",
		"delete element inet portolan-network host-ports4 { tcp . 80 }":                   "hostPort TCP 80 does not lead to 10.244.1.7:8080: set host-ports4 lacks it",
		"delete element inet portolan-network host-ports6 { tcp . 80 }":                   "hostPort TCP 80 does not lead to [fd00:244:1::7]:8080: set host-ports6 lacks it",
		"delete element inet portolan-network host-addresses4 { 192.0.2.1 . udp . 81 }":   "hostPort UDP 192.0.2.1:81 does not lead to 10.244.1.7:8080: set host-addresses4 lacks it",
		"delete element inet portolan-network hairpin6 { fd00:244:1::7 . fd00:244:1::7 }": "set hairpin6 lacks it",
		"flush map inet portolan-network host-ports4; " +
			"add element inet portolan-network host-ports4 { tcp . 80 : 10.244.1.8 . 8080 }": "set host-ports4 lacks it",
		"delete table inet portolan-network": "set host-ports6 lacks it",
	} {
		must(t, table.AddPorts("shop/web", all))
		must(t, table.CheckPorts("shop/web", all))
		if out, err := exec.Command("nft", damage).CombinedOutput(); err != nil {
			t.Fatalf("nft %s: %v: %s", damage, err, out)
		}
		if err := table.CheckPorts("shop/web", all); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("after nft %s: CheckPorts = %v, want %q", damage, err, want)
		}
		must(t, table.Sync(ranges))
	}
	_, conflict := errors.AsType[*ConflictError](table.CheckPorts("shop/api", all[:1]))
	if !conflict {
		t.Error("CheckPorts of ports that another Pod has: no conflict")
	}
	lost := []Port{{TCP, netip.Addr{}, 82, to}}
	if err := table.CheckPorts("shop/lost", lost); err == nil || !strings.Contains(err.Error(), "hostPort TCP 82") {
		t.Errorf("CheckPorts of ports that were not added: %v", err)
	}
}

// TestHolder: after a restart, the Pod for which the kernel has a port has it, and not the older one.
func TestHolder(t *testing.T) {
	if onNode(t) == nil {
		return
	}
	ports := func(to netip.Addr) []Port { return []Port{{TCP, netip.Addr{}, 80, netip.AddrPortFrom(to, servePort)}} }
	owners := []Owner{{"older", ports(pods[0])}, {"newer", ports(servers[0])}}
	before := New(Config{})
	must(t, before.Sync(ranges))
	must(t, before.AddPorts("newer", ports(servers[0])))
	before.Close()
	table := New(Config{})
	if conflict, ok := errors.AsType[*ConflictError](table.Restore(owners)); !ok || conflict.Owner != "newer" {
		t.Errorf("Restore of a port that two have: conflict %v, want that newer has it", conflict)
	}
	must(t, table.Sync(ranges))
	must(t, table.CheckPorts("newer", ports(servers[0])))
}

// TestManyChanges: random changes of ranges that touch and contain one another, and of ports, lead to what a Sync of
// the last state finds nothing to do about.
func TestManyChanges(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	r := rand.New(rand.NewPCG(1, 2))
	table := New(Config{})
	must(t, table.Sync(Ranges{}))
	all := prefixList("10.0.0.0/9", "10.128.0.0/10", "10.192.0.0/10", "0.0.0.0/5", "255.255.255.0/24", "fd00::/64", "fd00:0:0:1::/64", "ffff::/16")
	has := make(map[netip.Prefix]bool)
	owners := make(map[string][]Port)
	for range 200 {
		var c RangeChanges
		for _, p := range all {
			if r.IntN(3) == 0 {
				if has[p] = !has[p]; has[p] {
					c.AddCluster = append(c.AddCluster, p)
				} else {
					c.DeleteCluster = append(c.DeleteCluster, p)
				}
			}
		}
		must(t, table.Apply(&c))
		owner := fmt.Sprintf("pod-%d", r.IntN(10))
		ports := []Port{{TCP, netip.Addr{}, uint16(1 + r.IntN(12)), netip.AddrPortFrom(servers[0], 80)}}
		switch err := table.AddPorts(owner, ports); {
		case err == nil:
			owners[owner] = ports
		case errors.As(err, new(*ConflictError)):
			must(t, table.DeletePorts(owner))
			delete(owners, owner)
		default:
			t.Fatal(err)
		}
	}
	got := listed(t)
	var now Ranges
	for _, p := range all {
		if has[p] {
			now.Cluster = append(now.Cluster, p)
		}
	}
	must(t, table.Sync(now))
	if again := listed(t); again != got {
		t.Errorf("the changes led to\n%s\na Sync to\n%s", got, again)
	}
	table.Close()
	scratch := New(Config{Name: "scratch"})
	var restored []Owner
	for name, ports := range owners {
		restored = append(restored, Owner{name, ports})
	}
	must(t, scratch.Restore(restored))
	must(t, scratch.Sync(now))
	if want := strings.Replace(listedAs(t, "scratch"), "scratch", DefaultName, 1); want != got {
		t.Errorf("the changes led to\n%s\nfrom scratch\n%s", got, want)
	}
}

// listed is the table as nft lists it, in order.
func listed(t *testing.T) string {
	t.Helper()
	return listedAs(t, DefaultName)
}

func listedAs(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("nft", "list", "table", "inet", name).CombinedOutput()
	if err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	text, _, _ := strings.Cut(string(out), " # progname")
	_, rest, ok := strings.Cut(string(out), "{")
	if !ok {
		return text
	}
	var lines []string
	for line := range strings.Lines(rest) {
		if strings.Contains(line, "flags owner") || strings.Contains(line, "flags persist") || strings.TrimSpace(line) == "# progname" {
			continue
		}
		lines = append(lines, line)
	}
	text = "table inet " + name + " {" + strings.Join(lines, "")
	return regexp.MustCompile(`(?s)elements = \{.*?\}`).ReplaceAllStringFunc(text, func(all string) string {
		parts := strings.FieldsFunc(strings.Trim(strings.TrimPrefix(all, "elements"), " ={}"), func(r rune) bool { return r == ',' || r == '\n' })
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		slices.Sort(parts) // those of hashes have no order
		return "elements = { " + strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ") + " }"
	})
}

func prefixList(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func addrList(texts ...string) (all []netip.Addr) {
	for _, s := range texts {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
