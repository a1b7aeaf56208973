package announce

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/announce/frame"
	"portolan.dev/portolan/internal/network/announce/plan"
)

// segment is a link in memory, and the hosts on it.
type segment struct {
	mu    sync.Mutex
	hosts []*fakeHost
}

// fakeHost is the interfaces of a node, of which one may be at a segment.
type fakeHost struct {
	segment *segment
	ifaces  []iface
	changed chan<- struct{}
	ports   map[string]*fakePort
	former  map[netip.Addr]netip.Addr
	fails   int // how many more times former cannot be set
}

type fakePort struct {
	iface
	host      *fakeHost
	received  chan<- received
	owned     map[netip.Addr]bool
	announced map[netip.Addr]int
	renewed   time.Time
}

func (h *fakeHost) interfaces() ([]iface, error) {
	h.segment.mu.Lock()
	defer h.segment.mu.Unlock()
	return slices.Clone(h.ifaces), nil
}

func (h *fakeHost) watch(ctx context.Context, changed chan<- struct{}) error {
	h.segment.mu.Lock()
	h.changed = changed
	h.segment.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (h *fakeHost) open(i iface, _ *counters, in chan<- received) (port, error) {
	h.segment.mu.Lock()
	defer h.segment.mu.Unlock()
	p := &fakePort{iface: i, host: h, received: in, owned: make(map[netip.Addr]bool), announced: make(map[netip.Addr]int)}
	h.ports[i.name] = p
	return p, nil
}

func (h *fakeHost) formerNodes() formerNodes { return h }

func (h *fakeHost) Set(former map[netip.Addr]netip.Addr) error {
	h.segment.mu.Lock()
	defer h.segment.mu.Unlock()
	if h.fails > 0 {
		h.fails--
		h.former = nil
		return errors.New("no such file or directory")
	}
	h.former = former
	return nil
}

func (h *fakeHost) Close() {}

func (p *fakePort) locked(do func()) {
	p.host.segment.mu.Lock()
	defer p.host.segment.mu.Unlock()
	do()
}

func (p *fakePort) own(addrs []netip.Addr) {
	p.locked(func() {
		for _, a := range addrs {
			p.owned[a] = true
		}
	})
}

func (p *fakePort) disown(addrs []netip.Addr) {
	p.locked(func() {
		for _, a := range addrs {
			delete(p.owned, a)
		}
	})
}

func (p *fakePort) announce(a netip.Addr) { p.locked(func() { p.announced[a]++ }) }
func (p *fakePort) flush()                {}
func (p *fakePort) renew()                { p.locked(func() { p.renewed = time.Now() }) }
func (p *fakePort) close()                { p.locked(func() { delete(p.host.ports, p.name) }) }

func (p *fakePort) send(m *frame.Message, to frame.MAC) {
	p.locked(func() {
		for _, h := range p.host.segment.hosts {
			for _, o := range h.ports {
				if o == p || o.name != p.name || to != frame.Broadcast && to != o.mac {
					continue
				}
				o.received <- received{index: o.index, from: p.mac, message: *m}
			}
		}
	})
}

// agentFixture is an Announcer at a segment.
type agentFixture struct {
	*Announcer
	host    *fakeHost
	store   *cluster.Store
	serving chan struct{}
	able    atomic.Bool // Config.Serving
	log     bytes.Buffer
	cancel  context.CancelFunc
	ended   chan error
}

var theVIP = netip.MustParseAddr("192.0.2.100")

// join starts the agent of a node. Its cluster has the nodes a and b and the addresses.
func (s *segment) join(name string, cfg Config, addrs ...netip.Addr) *agentFixture {
	number := byte(len(s.hosts) + 1)
	lan := iface{2, "lan", frame.MAC{2, number}, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	other := iface{3, "other", frame.MAC{4, number}, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}
	f := &agentFixture{
		host:  &fakeHost{segment: s, ifaces: []iface{lan, other}, ports: make(map[string]*fakePort)},
		store: cluster.NewStore(), serving: make(chan struct{}, 1), ended: make(chan error, 1),
	}
	f.able.Store(true)
	s.mu.Lock()
	s.hosts = append(s.hosts, f.host)
	s.mu.Unlock()
	f.store.Update(func(tx *cluster.Tx) {
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		tx.Put(&cluster.Node{Name: "a", Ready: true})
		tx.Put(&cluster.Node{Name: "b", Ready: true})
		service := &cluster.Service{Key: cluster.Key{Name: "web"}, Spec: &cluster.ServiceSpec{Type: cluster.LoadBalancer}}
		for _, a := range addrs {
			service.Spec.Ingress = append(service.Spec.Ingress, cluster.IngressIP{Addr: a})
		}
		tx.Put(service)
	})
	cfg.Node, cfg.Store, cfg.ServingChanged = name, f.store, f.serving
	cfg.Serving = func(netip.Addr) bool { return f.able.Load() }
	cfg.Log = slog.New(slog.NewTextHandler(&f.log, nil))
	f.Announcer = New(cfg)
	f.network = f.host
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go func() { f.ended <- f.Run(ctx) }()
	return f
}

// stop ends the agent.
func (f *agentFixture) stop() error {
	f.cancel()
	return <-f.ended
}

// owns returns the addresses that the agent answers for, by interface.
func (f *agentFixture) owns() map[string][]netip.Addr {
	f.host.segment.mu.Lock()
	defer f.host.segment.mu.Unlock()
	all := make(map[string][]netip.Addr)
	for name, p := range f.host.ports {
		if len(p.owned) > 0 {
			all[name] = slices.SortedFunc(maps.Keys(p.owned), netip.Addr.Compare)
		}
	}
	return all
}

func (f *agentFixture) expect(t *testing.T, when string, ifaces ...string) {
	t.Helper()
	synctest.Wait()
	if got := slices.Sorted(maps.Keys(f.owns())); !slices.Equal(got, ifaces) {
		t.Errorf("%s, node %s answers on %q, want %q", when, f.cfg.Node, got, ifaces)
	}
}

// pair returns the agents of the first and the second candidate of theVIP.
func pair(s *segment) (first, second *agentFixture) {
	names := []string{"a", "b"}
	if plan.Score(theVIP, plan.IDOf("b")) > plan.Score(theVIP, plan.IDOf("a")) {
		slices.Reverse(names)
	}
	return s.join(names[0], Config{}, theVIP), s.join(names[1], Config{}, theVIP)
}

// TestServing: the first candidate answers, unless its kernel has no rules for the Service.
func TestServing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := pair(new(segment))
		time.Sleep(2 * time.Second)
		first.expect(t, "settled", "lan")
		second.expect(t, "settled")
		first.able.Store(false)
		first.serving <- struct{}{}
		first.expect(t, "without rules")
		second.expect(t, "without rules", "lan")
		first.able.Store(true)
		first.serving <- struct{}{}
		first.expect(t, "with rules", "lan")
		second.expect(t, "with rules")
		begin := time.Now()
		if err := first.stop(); err != nil || time.Since(begin) > 0 {
			t.Errorf("the end took %s: %v", time.Since(begin), err)
		}
		second.expect(t, "after the end of the other one", "lan")
		begin = time.Now()
		if err := second.stop(); err != nil || time.Since(begin) != stopTime {
			t.Errorf("the end of the last one took %s, want %s: %v", time.Since(begin), stopTime, err)
		}
	})
}

// TestInterfaces: an address is announced where the prefix contains it, or on the interfaces that are set.
func TestInterfaces(t *testing.T) {
	t.Parallel()
	far := netip.MustParseAddr("203.0.113.1")
	synctest.Test(t, func(t *testing.T) {
		near := new(segment).join("a", Config{}, theVIP, far)
		defer func() { _ = near.stop() }()
		set := new(segment).join("a", Config{Interfaces: []string{"other"}}, theVIP, far)
		defer func() { _ = set.stop() }()
		for claim, of := range map[string]struct {
			*agentFixture
			want              map[string][]netip.Addr
			unlinked, unshown int
		}{
			"by prefix": {near, map[string][]netip.Addr{"lan": {theVIP}}, 1, 1},
			"as set":    {set, map[string][]netip.Addr{"other": {theVIP, far}}, 0, 0},
		} {
			of.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindNode, cluster.Key{Name: "b"}) })
			synctest.Wait()
			if got := of.owns(); !maps.EqualFunc(got, of.want, slices.Equal) {
				t.Errorf("%s: the node answers for %v, want %v", claim, got, of.want)
			}
			if s := of.Stats(); s.Addresses != 2 || s.Unlinked != of.unlinked {
				t.Errorf("%s: of %d addresses %d are on no link, want %d of 2", claim, s.Addresses, s.Unlinked, of.unlinked)
			}
			lines := strings.Count(of.log.String(), "the status of no Node")
			if s := of.Stats(); s.Unshown != of.unshown || lines != of.unshown {
				t.Errorf("%s: %d addresses of no Node's link, and %d lines, want %d", claim, s.Unshown, lines, of.unshown)
			}
			of.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindNode, cluster.Key{Name: "a"}) })
			synctest.Wait()
			if s := of.Stats(); s.Unclaimed != 2 {
				t.Errorf("%s: without nodes, %d addresses are unclaimed, want 2", claim, s.Unclaimed)
			}
		}
	})
}

// TestInterfaceGoes: nobody answers on an interface that is down, and the address is announced when it is up again.
func TestInterfaceGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := pair(new(segment))
		defer func() { _ = first.stop() }()
		defer func() { _ = second.stop() }()
		time.Sleep(2 * time.Second)
		all := first.host.ifaces
		set := func(ifaces []iface) {
			first.host.segment.mu.Lock()
			first.host.ifaces = ifaces
			first.host.segment.mu.Unlock()
			first.host.changed <- struct{}{}
		}
		set(all[1:])
		first.expect(t, "the interface is down")
		time.Sleep(time.Second)
		second.expect(t, "the other's interface is down", "lan")
		if s := first.Stats(); s.Owned != 0 || s.Unlinked != 1 {
			t.Errorf("%d are owned, and %d are on no link, want 0 and 1", s.Owned, s.Unlinked)
		}
		set(all)
		first.expect(t, "the interface is up", "lan")
		second.expect(t, "the other's interface is up")
	})
}

// TestConflict: an announcement by a stranger is told and answered; that of an agent is not.
func TestConflict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := pair(new(segment))
		defer func() { _ = first.stop() }()
		defer func() { _ = second.stop() }()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		p, peer := first.host.ports["lan"], second.host.ports["lan"].mac
		announced := func() (n int) {
			p.locked(func() { n = p.announced[theVIP] })
			return n
		}
		before := announced()
		p.received <- received{index: p.index, from: peer, conflict: theVIP}
		time.Sleep(time.Second)
		if s := first.Stats(); s.Conflicts != 0 {
			t.Errorf("an announcement by an agent is a conflict")
		}
		for range 1000 {
			p.received <- received{index: p.index, from: frame.MAC{8}, conflict: theVIP}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := first.Stats(); s.Conflicts != maxClaims || announced() != before+1 {
			t.Errorf("%d conflicts and %d announcements, want %d and 1", s.Conflicts, announced()-before, maxClaims)
		}
		if c := first.Stats().Conflict; c == nil || c.Addr != theVIP || c.MAC.String() != "08:00:00:00:00:00" || c.Interface != "lan" {
			t.Errorf("the conflict is %+v", c)
		}
		time.Sleep(conflictTime)
		if c := first.Stats().Conflict; c != nil {
			t.Errorf("after %s the conflict is %+v, want none", conflictTime, c)
		}
		if n := strings.Count(first.log.String(), "another host has"); n != 1 {
			t.Errorf("%d lines about 1,000 conflicts, want 1", n)
		}
	})
}

// TestManyAddresses: all addresses are announced, some at a time.
func TestManyAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var many []netip.Addr
		for a := netip.MustParseAddr("192.0.2.1"); len(many) < 250; a = a.Next() {
			many = append(many, a)
		}
		f := new(segment).join("a", Config{}, many...)
		defer func() { _ = f.stop() }()
		f.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindNode, cluster.Key{Name: "b"}) })
		time.Sleep(interval) // in which another node could say that it has them
		for i, want := range []int{burst, 2 * burst, len(many)} {
			synctest.Wait()
			p, got := f.host.ports["lan"], 0
			p.locked(func() { got = len(p.announced) })
			if got != want {
				t.Errorf("after %d pauses %d addresses are announced, want %d", i, got, want)
			}
			time.Sleep(burstPause)
		}
	})
}

// TestFormerNode: connections of an address go on at the node that handed it over, while its Node is ready.
func TestFormerNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := pair(new(segment))
		defer func() { _ = second.stop() }()
		addr := netip.MustParseAddr("192.0.2.7")
		put := func(node cluster.Node) {
			node.Name, node.Addresses = first.cfg.Node, []netip.Addr{netip.MustParseAddr("198.51.100.7"), addr}
			second.store.Update(func(tx *cluster.Tx) { tx.Put(&node) })
			synctest.Wait()
		}
		expect := func(when string, want netip.Addr) {
			t.Helper()
			synctest.Wait()
			var got netip.Addr
			second.host.segment.mu.Lock()
			got = second.host.former[theVIP]
			second.host.segment.mu.Unlock()
			if got != want {
				t.Errorf("%s, connections go on at %s, want %s", when, got, want)
			}
		}
		second.store.Update(func(tx *cluster.Tx) {
			tx.Put(&cluster.Node{Name: second.cfg.Node, Ready: true, Addresses: []netip.Addr{addr.Next()}})
		})
		put(cluster.Node{Ready: true})
		time.Sleep(2 * time.Second)
		expect("before", netip.Addr{})
		if err := first.stop(); err != nil {
			t.Error(err)
		}
		second.expect(t, "after the end of the other one", "lan")
		expect("after the end of the other one's agent", addr)
		put(cluster.Node{})
		expect("while the node is not ready", netip.Addr{})
		put(cluster.Node{Ready: true, Leaving: true})
		expect("when it is ready again, and leaves", addr)
		second.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindNode, cluster.Key{Name: first.cfg.Node}) })
		expect("without the node", netip.Addr{})
	})
}

// TestFormerNodeAgain: former nodes that the kernel does not take are tried again at each tick, with one line.
func TestFormerNodeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := pair(new(segment))
		defer func() { _ = second.stop() }()
		second.host.fails = 3
		second.store.Update(func(tx *cluster.Tx) {
			tx.Put(&cluster.Node{Name: first.cfg.Node, Ready: true, Addresses: []netip.Addr{theVIP.Next()}})
			tx.Put(&cluster.Node{Name: second.cfg.Node, Ready: true, Addresses: []netip.Addr{theVIP.Prev()}})
		})
		time.Sleep(2 * time.Second)
		if err := first.stop(); err != nil {
			t.Error(err)
		}
		time.Sleep(4 * interval)
		synctest.Wait()
		second.host.segment.mu.Lock()
		defer second.host.segment.mu.Unlock()
		if got := second.host.former[theVIP]; got != theVIP.Next() {
			t.Errorf("connections go on at %s, want %s", got, theVIP.Next())
		}
		if n := strings.Count(second.log.String(), "are lost; it is tried again"); n != 1 {
			t.Errorf("%d lines about 3 failures, want 1", n)
		}
	})
}

// TestStrangers: hosts are agents only if they say that they are a Node of the cluster, and as long as it is there.
func TestStrangers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := pair(new(segment))
		defer func() { _ = first.stop() }()
		defer func() { _ = second.stop() }()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		p, peer := first.host.ports["lan"], second.host.ports["lan"].mac
		expect := func(when string, from frame.MAC, want uint64) {
			t.Helper()
			p.received <- received{index: p.index, from: from, conflict: theVIP}
			time.Sleep(2 * interval)
			synctest.Wait()
			if got := first.Stats().Conflicts; got != want {
				t.Errorf("%s: %d conflicts, want %d", when, got, want)
			}
		}
		expect("a Node", peer, 0)
		stranger := frame.MAC{8}
		p.received <- received{index: p.index, from: stranger, message: frame.Message{
			Kind: frame.Reply, From: uint64(plan.IDOf("stranger")),
		}}
		expect("a stranger", stranger, 1)
		first.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindNode, cluster.Key{Name: second.cfg.Node}) })
		expect("a Node that is gone", peer, 2)
	})
}

// TestOtherCluster: agents of another cluster on the link, whose nodes have the same names, are not heard.
func TestOtherCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(segment)
		first, second := pair(s)
		defer func() { _ = first.stop() }()
		defer func() { _ = second.stop() }()
		for i, f := range []*agentFixture{first, second} {
			f.store.Update(func(tx *cluster.Tx) {
				tx.Put(&cluster.Service{
					Key:  cluster.Key{Namespace: "default", Name: "kubernetes"},
					Spec: &cluster.ServiceSpec{Type: cluster.ClusterIP, UID: string(rune('1' + i))},
				})
			})
		}
		time.Sleep(2 * time.Second)
		first.expect(t, "in two clusters", "lan")
		second.expect(t, "in two clusters", "lan")
	})
}

// TestRenewed: a port may answer as long as the process goes on.
func TestRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := new(segment).join("a", Config{}, theVIP)
		defer func() { _ = f.stop() }()
		for range 20 {
			time.Sleep(interval / 2)
			synctest.Wait()
			var since time.Duration
			p := f.host.ports["lan"]
			p.locked(func() { since = time.Since(p.renewed) })
			if since > interval {
				t.Fatalf("it may answer until %s from now", pausedTime-since)
			}
		}
	})
}
