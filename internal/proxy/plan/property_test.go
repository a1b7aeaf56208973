package plan

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// histories is the number of random histories per run.
const histories = 10_000

// TestIncrementalEqualsFull checks that after any changes, coalesced in any way, what the
// changes led to equals what is compiled from the final state; and that no change is told that
// is none.
func TestIncrementalEqualsFull(t *testing.T) {
	t.Parallel()
	for seed := range uint64(histories) {
		h := newHistory(rand.NewPCG(seed, 20))
		if h.replay() == "" {
			continue
		}
		h = h.shrink()
		t.Fatalf("seed %d: after\n%s\n%s", seed, h, h.replay())
	}
}

// FuzzIncrementalEqualsFull has the fuzzer choose the history.
func FuzzIncrementalEqualsFull(f *testing.F) {
	for seed := range uint64(8) {
		r, data := rand.New(rand.NewPCG(seed, 21)), []byte(nil)
		for range 64 {
			data = binary.NativeEndian.AppendUint64(data, r.Uint64())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h := newHistory(&octets{given: data})
		if h.replay() == "" {
			return
		}
		h = h.shrink()
		t.Fatalf("after\n%s\n%s", h, h.replay())
	})
}

// octets is a source of random numbers that are given. Numbers behind them are not zero, which
// math/rand would draw again for ever.
type octets struct {
	given  []byte
	behind rand.PCG
}

func (o *octets) Uint64() uint64 {
	if len(o.given) < 8 {
		return o.behind.Uint64()
	}
	next := binary.NativeEndian.Uint64(o.given)
	o.given = o.given[8:]
	return next
}

// event changes the cluster or the node.
type event struct {
	put    cluster.Object // unless nil
	delete cluster.Ref    // unless zero
	node   *Node          // unless nil
	// seen: the compiler compiles what is pending.
	seen bool
}

func (e event) String() string {
	switch {
	case e.put != nil:
		text, err := json.Marshal(e.put)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("put %s %s", e.put.Ref(), text)
	case e.node != nil:
		return fmt.Sprintf("node %+v", *e.node)
	case e.seen:
		return "compile"
	}
	return "delete " + e.delete.String()
}

// history is events from an empty cluster on.
type history []event

func (h history) String() string {
	var b strings.Builder
	for _, e := range h {
		fmt.Fprintf(&b, "  %s\n", e)
	}
	return b.String()
}

// newHistory returns a random history.
func newHistory(source rand.Source) (h history) {
	r := &random{rand.New(source)}
	for range 4 + r.IntN(12) {
		h = append(h, r.event())
		if r.IntN(2) == 0 { // else the compiler is busy
			h = append(h, event{seen: true})
		}
	}
	return append(h, event{seen: true})
}

// replay returns what is wrong after h, or in between; empty if nothing is.
func (h history) replay() string {
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.Kinds()...) })
	feed := store.Subscribe()
	defer feed.Close()
	w := &follower{compiler: NewCompiler(theNode), node: theNode}
	for _, e := range h {
		var problem string
		switch {
		case e.put != nil:
			store.Update(func(tx *cluster.Tx) { tx.Put(e.put) })
		case e.node != nil:
			w.node, w.stale = *e.node, true
		case e.seen:
			store.View(func(v *cluster.View) { problem = w.compile(v, feed.Pending()) })
		default:
			store.Update(func(tx *cluster.Tx) { tx.Delete(e.delete.Kind, e.delete.Key) })
		}
		if problem != "" {
			return problem
		}
	}
	return ""
}

// shrink returns a history that fails like h, and would not without any one of its events.
func (h history) shrink() history {
	for i := 0; i < len(h); {
		if less := slices.Delete(slices.Clone(h), i, i+1); less.replay() != "" {
			h, i = less, 0
			continue
		}
		i++
	}
	return h
}

// follower follows a cluster as a service proxy does.
type follower struct {
	compiler  *Compiler
	node      Node
	stale     bool // the node changed
	evaluator *frontend.Evaluator
	owners    map[frontend.Address]string // and ports
}

// own records the owner of an address.
func (w *follower) own(v *cluster.View, from *Compiler, at frontend.Address) {
	delete(w.owners, at)
	if key, ok := from.Owner(at); ok {
		port, kind, _ := Describe(v.Service(key), at)
		w.owners[at] = fmt.Sprint(key, " ", v.Service(key).Ports[port], " ", kind)
	}
}

// ownAll records the owners of all addresses.
func (w *follower) ownAll(v *cluster.View, from *Compiler) {
	w.owners = make(map[frontend.Address]string)
	for at := range from.Addresses() {
		w.own(v, from, at)
	}
}

// compile compiles changes and returns what is wrong then.
func (w *follower) compile(v *cluster.View, c cluster.Changes) (problem string) {
	if w.evaluator == nil || c.Everything || w.stale {
		w.evaluator, w.stale = frontend.NewEvaluator(frontend.Node{}, w.compiler.All(v, w.node)), false
		w.ownAll(v, w.compiler)
	} else {
		changes := w.compiler.Apply(v, func(yield func(cluster.Key) bool) {
			for ref := range c.Objects {
				if ref.Kind == cluster.KindService && !yield(ref.Key) {
					return
				}
			}
		})
		problem = idle(w.evaluator.State(), changes)
		w.evaluator.Apply(changes)
		for at := range w.compiler.Touched() {
			w.own(v, w.compiler, at)
		}
	}
	full := NewCompiler(w.node)
	want, got := dump(full, full.All(v, w.node)), dump(w.compiler, w.evaluator.State())
	if !slices.Equal(want, got) {
		return "incremental result differs from full compile (-full +incremental):\n" + cmp.Diff(want, got)
	}
	fresh := new(follower)
	if fresh.ownAll(v, full); !maps.Equal(fresh.owners, w.owners) {
		return "other owners of addresses than after a full compile (-full +incremental):\n" + cmp.Diff(fresh.owners, w.owners)
	}
	return problem
}

// idle returns a change that changes nothing of s, if there is one.
func idle(s *frontend.State, c *frontend.Changes) string {
	find := func(at frontend.Address) *frontend.Frontend {
		i, ok := slices.BinarySearchFunc(s.Frontends, at, func(f *frontend.Frontend, at frontend.Address) int { return f.Compare(at) })
		if !ok {
			return nil
		}
		return s.Frontends[i]
	}
	for _, f := range c.Put {
		if was := find(f.Address); was != nil && was.Equal(f) {
			return fmt.Sprintf("Apply puts %s, which is there", f.Address)
		}
	}
	for _, at := range c.Delete {
		if find(at) == nil {
			return fmt.Sprintf("Apply deletes %s, which is not there", at)
		}
	}
	for a, there := range c.Hairpins {
		if slices.Contains(s.Hairpins, a) == there {
			return fmt.Sprintf("Apply sets hairpin %s to %t, as it is", a, there)
		}
	}
	if c.ServiceCIDRs != nil && slices.Equal(c.ServiceCIDRs, s.ServiceCIDRs) {
		return fmt.Sprintf("Apply sets the ranges %v, which are there", c.ServiceCIDRs)
	}
	return ""
}

// dump returns a line for everything in a state, and what the compiler says of Services.
func dump(c *Compiler, s *frontend.State) (lines []string) {
	for _, f := range s.Frontends {
		lines = append(lines, frontendText(f))
	}
	lines = append(lines, fmt.Sprint("hairpins ", s.Hairpins), fmt.Sprint("ranges ", s.ServiceCIDRs))
	for _, k := range slices.SortedFunc(maps.Keys(c.services), cluster.Key.Compare) {
		for _, line := range textOf(c.Service(k)) {
			lines = append(lines, k.String()+" "+line)
		}
	}
	for _, policy := range []TrafficPolicy{Internal, External} {
		for _, family := range []cluster.AddressType{cluster.IPv4, cluster.IPv6} {
			lines = append(lines, fmt.Sprint("without local ", policy, family, c.WithoutLocal(NoLocal{policy, family})))
		}
	}
	checks, _ := c.Checks()
	for _, k := range slices.SortedFunc(maps.Keys(checks), cluster.Key.Compare) {
		lines = append(lines, fmt.Sprintf("check %s %+v", k, checks[k]))
	}
	return lines
}

// random makes random events of few objects with few addresses, so that they often concern
// each other.
type random struct{ *rand.Rand }

func pick[T any](r *random, from ...T) T { return from[r.IntN(len(from))] }

// rarely is true once in n times.
func (r *random) rarely(n int) bool { return r.IntN(n) == 0 }

func some[T any](r *random, most int, one func() T) (all []T) {
	for range r.IntN(most + 1) {
		all = append(all, one())
	}
	return all
}

func (r *random) event() event {
	switch r.IntN(16) {
	case 0:
		return event{delete: cluster.Ref{Kind: cluster.KindService, Key: r.key()}}
	case 1, 2:
		return event{delete: cluster.Ref{Kind: cluster.KindEndpointSlice, Key: r.key()}}
	case 3:
		return event{put: &cluster.ServiceCIDR{
			Name: pick(r, "a", "b"), CIDRs: some(r, 2, func() netip.Prefix { return pick(r, prefixes("10.96.0.0/16", "fd96::/112")...) }),
		}}
	case 4:
		return event{delete: cluster.Ref{Kind: cluster.KindServiceCIDR, Key: cluster.Key{Name: pick(r, "a", "b")}}}
	case 5:
		n := theNode
		n.Name, n.Zone = pick(r, "here", "there"), pick(r, "", "east", "west")
		n.Choice = pick(r, frontend.Random, frontend.ConnectionHash)
		n.NodePorts = pick(r, nil, theNode.NodePorts, addrs("192.0.2.1"))
		n.Room = pick(r, 0, 30, 60, 120)
		return event{node: &n}
	case 6, 7, 8, 9, 10:
		return event{put: r.slice()}
	default:
		return event{put: r.service()}
	}
}

func (r *random) key() cluster.Key {
	return cluster.Key{Namespace: pick(r, "a", "b"), Name: pick(r, "one", "two", "three")}
}

func (r *random) service() *cluster.Service {
	s := &cluster.Service{Key: r.key(), Ports: some(r, 2, r.port)}
	s.ClusterIPs = pick(r, addrs("10.96.0.1"), addrs("10.96.0.2"), addrs("10.96.0.1", "fd96::1"), addrs("fd96::1", "10.96.0.2"), addrs("fd96::2"))
	if r.rarely(8) {
		s.ClusterIPs, s.Headless = nil, r.rarely(2)
	}
	if r.rarely(20) {
		return s // as a source leaves it that reads only what DNS needs
	}
	vip := func() netip.Addr { return addr(pick(r, "10.96.0.1", "203.0.113.1", "203.0.113.2", "2001:db8:1::1")) }
	s.Created = r.Int64N(4)
	s.Spec = &cluster.ServiceSpec{
		Type:          pick(r, cluster.ClusterIP, cluster.NodePort, cluster.LoadBalancer),
		ExternalLocal: r.rarely(2), InternalLocal: r.rarely(4), HealthCheckNodePort: pick(r, 0, uint16(32000)),
		ExternalIPs: some(r, 2, vip), AffinitySeconds: pick(r, 0, 0, int32(60)),
		EndpointChoice: pick(r, "", "", "random", "client-hash", "connection-hash", "x"),
		Ingress:        some(r, 2, func() cluster.IngressIP { return cluster.IngressIP{Addr: vip(), Proxy: r.rarely(4)} }),
	}
	if r.rarely(2) {
		for range s.Ports {
			s.Spec.NodePorts = append(s.Spec.NodePorts, pick(r, 0, uint16(30080), uint16(30081)))
		}
	}
	if r.rarely(3) {
		s.Spec.SourceRanges = some(r, 3, func() netip.Prefix {
			return pick(r, prefixes("198.51.100.0/24", "198.51.0.0/16", "192.0.2.0/24", "0.0.0.0/0", "2001:db8::/32", "::/0")...)
		})
	}
	if r.rarely(10) {
		s.Spec.Labels = map[string]string{cluster.LabelProxyName: pick(r, "", "other")}
	}
	if r.rarely(10) {
		s.ExternalName, s.Spec.Type = "example.com", cluster.ExternalName
	}
	return s
}

func (r *random) port() cluster.Port {
	return cluster.Port{
		Name: pick(r, "", "http", "sql"), Protocol: pick(r, cluster.TCP, cluster.TCP, cluster.UDP, cluster.SCTP), Number: uint16(pick(r, 80, 443)),
	}
}

func (r *random) slice() *cluster.EndpointSlice {
	s := &cluster.EndpointSlice{
		Key: r.key(), Service: pick(r, "one", "two", "three", ""), AddressType: pick(r, cluster.IPv4, cluster.IPv4, cluster.IPv6), Ports: some(r, 3, r.port),
		Spec: &cluster.SliceSpec{EndpointWeight: pick(r, "", "", "0", "10", "200", "x")},
	}
	hints := func(names ...string) func() string { return func() string { return pick(r, names...) } }
	for range r.IntN(5) {
		e := cluster.Endpoint{Addr: addr(pick(r, "10.1.0.1", "10.1.0.2", "10.1.0.3")), Ready: !r.rarely(3), Terminating: r.rarely(3)}
		if s.AddressType == cluster.IPv6 {
			e.Addr = addr(pick(r, "fd01::1", "fd01::2"))
		}
		e.Serving = e.Ready || r.rarely(2)
		s.Endpoints = append(s.Endpoints, e)
		s.Spec.Places = append(s.Spec.Places, cluster.Place{
			Node: pick(r, "", "here", "there"), Additional: r.rarely(6),
			Hints: pick(r, nil, &cluster.Hints{Zones: some(r, 2, hints("east", "west")), Nodes: some(r, 1, hints("here", "there"))}),
		})
	}
	if r.rarely(5) {
		s.Spec = nil
	}
	return s
}
