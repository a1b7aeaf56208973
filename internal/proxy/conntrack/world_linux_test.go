package conntrack

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/internal/support/ctnetlink"
	"portolan.dev/portolan/internal/support/ctnetlink/ctnetlinktest"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// patience is the time after which a test fails.
const patience = 20 * time.Second

// world is the network namespace of a node, in which the test runs, and those of a client, of
// two Pods and of everything else, to which the default route leads.
type world struct {
	client, a, b, outside place
	cleaner               *Cleaner
	passes                chan Pass

	mu    sync.Mutex
	table *nft.Table
}

// place is a namespace with an address of each family.
type place struct {
	network *namespace.Network
	addr    map[ctnetlink.Family]netip.Addr
}

var (
	// nodeAddr are the node's addresses.
	nodeAddr = map[ctnetlink.Family]netip.Addr{ctnetlink.IPv4: netip.MustParseAddr("10.244.0.1"), ctnetlink.IPv6: netip.MustParseAddr("fd00:244:0::1")}
	families = []ctnetlink.Family{ctnetlink.IPv4, ctnetlink.IPv6}
)

// onNode runs this test in a network namespace of its own. Outside of it it returns nil.
func onNode(t *testing.T, cfg Config) *world {
	t.Helper()
	if !namespacetest.OnNode(t) {
		return nil
	}
	namespacetest.SetUp(t, "lo", netip.PrefixFrom(nodeAddr[ctnetlink.IPv4], 32), netip.PrefixFrom(nodeAddr[ctnetlink.IPv6], 128))
	w := &world{
		client: attach(t, "client", 1), a: attach(t, "a", 2), b: attach(t, "b", 3), outside: attach(t, "outside", 4),
		passes: make(chan Pass, 1000),
	}
	for _, f := range families {
		must(t, netlink.RouteAdd(&netlink.Route{Gw: w.outside.addr[f].AsSlice()}))
	}
	w.table = nft.New(nft.Config{Families: []nft.Family{nft.IPv4, nft.IPv6}})
	_, err := w.table.Sync(&frontend.State{})
	must(t, err)
	t.Cleanup(func() { w.table.Close() })
	cfg.Passed = func(p Pass) { w.passes <- p }
	w.cleaner = New(cfg)
	ended := make(chan error, 1)
	go func() { ended <- w.cleaner.Run(t.Context()) }()
	t.Cleanup(func() { must(t, <-ended) }) // the test's context ends before
	return w
}

// attach creates a namespace in the given network, connected to a device of the node.
func attach(tb testing.TB, device string, network byte) place {
	tb.Helper()
	of := func(f ctnetlink.Family, host byte) netip.Addr {
		bytes := nodeAddr[f].AsSlice()
		if f == ctnetlink.IPv4 {
			bytes[2], bytes[3] = network, host
		} else {
			bytes[5], bytes[15] = network, host
		}
		addr, _ := netip.AddrFromSlice(bytes)
		return addr
	}
	gateways := []netip.Prefix{netip.PrefixFrom(of(ctnetlink.IPv4, 1), 24), netip.PrefixFrom(of(ctnetlink.IPv6, 1), 64)}
	addr := map[ctnetlink.Family]netip.Addr{ctnetlink.IPv4: of(ctnetlink.IPv4, 7), ctnetlink.IPv6: of(ctnetlink.IPv6, 7)}
	peers := []netip.Prefix{netip.PrefixFrom(addr[ctnetlink.IPv4], 24), netip.PrefixFrom(addr[ctnetlink.IPv6], 64)}
	return place{namespacetest.Attach(tb, device, gateways, peers...), addr}
}

// within calls do in a place. Sockets that do opens stay in it.
func within(tb testing.TB, p place, do func()) {
	tb.Helper()
	namespacetest.Do(tb, p.network, do)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// until waits for a condition.
func until(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for begin := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > patience {
			tb.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// put programs frontends and returns them as targets.
func (w *world) put(tb testing.TB, fronts ...*frontend.Frontend) (all []Target) {
	tb.Helper()
	w.apply(tb, &frontend.Changes{Put: fronts})
	for _, f := range fronts {
		all = append(all, Target{Address: f.Address, Endpoints: f.Endpoints})
	}
	return all
}

// delete deletes a frontend and returns it as target.
func (w *world) delete(tb testing.TB, at frontend.Address) []Target {
	tb.Helper()
	w.apply(tb, &frontend.Changes{Delete: []frontend.Address{at}})
	return []Target{{Address: at, Deleted: true}}
}

func (w *world) apply(tb testing.TB, c *frontend.Changes) {
	tb.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.table.Apply(c)
	must(tb, err)
}

// pass returns the next pass of the Cleaner.
func (w *world) pass(tb testing.TB) Pass {
	tb.Helper()
	select {
	case p := <-w.passes:
		must(tb, p.Err)
		return p
	case <-time.After(patience):
		tb.Fatal("the Cleaner does not look")
		panic("unreachable")
	}
}

// server echoes datagrams.
type server struct {
	addr  netip.AddrPort
	count atomic.Uint64
	last  atomic.Int64 // when the last one came, in Unix nanoseconds
}

// serve starts a server at an address of a place.
func serve(tb testing.TB, p place, at netip.AddrPort) *server {
	tb.Helper()
	var conn *net.UDPConn
	s := &server{addr: at}
	within(tb, p, func() {
		var err error
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		must(tb, err)
	})
	tb.Cleanup(func() { conn.Close() })
	go func() {
		var buf [512]byte
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf[:])
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.last.Store(time.Now().UnixNano())
			s.count.Add(1)
			_, _ = conn.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	return s
}

// talk sends a datagram every millisecond from one port of a place until the test ends, and
// counts them and the answers.
func talk(tb testing.TB, p place, to netip.AddrPort) (sent, answers *atomic.Uint64) {
	tb.Helper()
	var conn *net.UDPConn
	within(tb, p, func() {
		var err error
		conn, err = net.ListenUDP("udp", nil)
		must(tb, err)
	})
	tb.Cleanup(func() { conn.Close() })
	sent, answers = new(atomic.Uint64), new(atomic.Uint64)
	go func() {
		for {
			if _, err := conn.WriteToUDPAddrPort([]byte("?"), to); errors.Is(err, net.ErrClosed) {
				return
			}
			sent.Add(1)
			time.Sleep(time.Millisecond)
		}
	}()
	go func() {
		var buf [512]byte
		for {
			if _, _, err := conn.ReadFromUDPAddrPort(buf[:]); errors.Is(err, net.ErrClosed) {
				return
			} else if err == nil {
				answers.Add(1)
			}
		}
	}()
	return sent, answers
}

// flow is an entry of connection tracking that a test makes.
type flow struct {
	client  netip.AddrPort
	to      frontend.Address
	replies netip.AddrPort
	zone    uint16
}

// track makes entries in the kernel, which hold as long as the test.
func track(all ...flow) error {
	made := make([]ctnetlinktest.Flow, 0, len(all))
	for _, f := range all {
		made = append(made, ctnetlinktest.Flow{
			Protocol: uint8(f.to.Protocol), Client: f.client, Destination: netip.AddrPortFrom(f.to.Addr, f.to.Port),
			Replies: f.replies, Zone: f.zone,
		})
	}
	return ctnetlinktest.Create(made...)
}

// tracked returns the entries of a scope.
func tracked(tb testing.TB, s scope) (all []entry) {
	tb.Helper()
	t, err := ctnetlink.Open()
	must(tb, err)
	defer t.Close()
	must(tb, t.Each(ctnetlink.Filter{Family: s.family}, func(found *ctnetlink.Entry) {
		if e := entryOf(found); scopeOf(e.destination) == s {
			all = append(all, e)
		}
	}))
	return all
}
