package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/policy/flows"
	"portolan.dev/portolan/internal/policy/fqdn"
	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/plan"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/support/hostaddrs"
	"portolan.dev/portolan/internal/support/programmer"
)

const (
	// addressInterval is the interval between looks at the host's addresses.
	addressInterval = 5 * time.Second
	// longestRepair is the longest pause before a repair, or the next attempt after a failed one: until
	// then, packets may pass that no policy allows.
	longestRepair = time.Second
)

var (
	errNotSynced = errors.New("the policies are not in the kernel yet")
	// errNotSeen is why a Pod is not admitted whose object did not arrive.
	errNotSeen = errors.New("the API server has not told this agent of the Pod yet")
)

// worker is the goroutine that compiles what changed and programs it.
type worker struct {
	*Policy
	table      kernelTable // nil before Bind
	programmer *programmer.Programmer
	loaded     chan struct{}           // closed when the kernel has the policies for the first time
	ended      bool                    // flows of Pods that ended before this process began are deleted
	former     map[string][]netip.Addr // the kernel's sets of domain names before the first Sync; nil before
	domains    map[string]fqdn.Set     // the sets of domain names that the kernel has
	named      map[string][]string     // the sets of domain names of chains, see setsOf
	warned     bool                    // of domain names without the part dns
	admissions

	// mu guards the compiler, which this goroutine alone changes, hosts and judges.
	mu       sync.RWMutex
	compiler *plan.Compiler
	behind   bool           // changes were not compiled
	shared   []netip.Prefix // the ranges that the log says are shared
	hosts    []netip.Addr   // the host's addresses, sorted
	judges   bool           // denied judges: the kernel has the policies, and what a former process did is known
	// pods are the addresses of the node's Pods, nil before they are known.
	pods atomic.Pointer[podAddrs]
}

// kernelTable is what the worker needs of an nft.Table.
type kernelTable interface {
	Sync(ruleset.Ruleset) error
	Apply(ruleset.Ruleset, *ruleset.Delta) error
	Assume(ruleset.Ruleset)
	Resolved(ruleset.Ruleset) (map[string][]netip.Addr, error)
	ChangeResolved([]ruleset.Resolution) error
	Cut([]ruleset.Flow) error
	Uncut([]ruleset.Flow) error
	Counters(chains ...string) ([]nft.Counter, error)
	Watch(context.Context, chan<- nft.Notice) error
	Close() error
}

func newWorker(p *Policy) *worker {
	return &worker{
		Policy: p,
		compiler: plan.New(plan.Config{
			Node: p.cfg.Node, DNS: plan.DNS{Service: p.dns, Addrs: p.cfg.DNS}, Ranges: p.settings.PodRanges,
		}),
		programmer: programmer.New(programmer.Config{
			Part: "policy", Table: p.settings.Table, Title: "the nftables table of policies",
			State: "the present policies", NotSynced: errNotSynced,
			Standby:  "another process programs the table of policies; this one takes over when it ends",
			Repeated: "each time packets pass until it is repaired", LongestRepair: longestRepair, Log: p.cfg.Log,
		}),
		admissions: newAdmissions(), loaded: make(chan struct{}), named: make(map[string][]string),
	}
}

// run works until ctx is done, and returns nil. It programs the table from when owned is closed on. From when
// ending is closed on, it refuses requests that one transaction does not complete.
func (w *worker) run(ctx context.Context, owned, ending <-chan struct{}) error {
	feed := w.cfg.Store.Subscribe()
	defer feed.Close()
	defer w.programmer.Close()
	defer w.ending.Wait()
	w.lookAtAddresses()
	look := time.NewTicker(addressInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ending:
			ending = nil
		case <-owned:
			owned = nil
			w.attachRecorded()
		case <-feed.Ready():
		case <-w.wake:
			w.takeAll()
		case <-look.C:
			w.lookAtAddresses()
			w.endLost(ctx)
			continue
		case <-w.programmer.Due():
		}
		changes := feed.Pending()
		if owned != nil {
			w.standBy(changes)
		} else {
			w.apply(ctx, changes)
		}
		if ending == nil {
			w.refuse(attach.ErrStopped)
		}
	}
}

// compile compiles changes, and returns what changed since the last call; nil while the model is not
// whole.
func (w *worker) compile(c cluster.Changes) (delta *ruleset.Delta) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cfg.Store.View(func(v *cluster.View) {
		if !v.Loaded(w.Needs()...) {
			w.behind = true
			return
		}
		c.Everything = c.Everything || w.behind
		w.behind = false
		delta = w.compiler.Apply(v, &c)
	})
	w.warnOfShared()
	return delta
}

// rangeShared is what the log and readiness say of such a range.
const rangeShared = "a Pod range is not enforced, since other nodes have addresses in it; name ranges of this " +
	"node's Pods alone in policy.podRanges"

// warnOfShared warns of ranges that are shared with other nodes from now on, and says which are not any more. The
// caller must hold mu.
func (w *worker) warnOfShared() {
	before := w.shared
	w.shared = w.compiler.SharedRanges()
	for _, r := range w.shared {
		if !slices.Contains(before, r) {
			w.cfg.Log.Warn(rangeShared, "range", r, "reason", w.describeShared(r))
		}
	}
	for _, r := range before {
		if !slices.Contains(w.shared, r) {
			w.cfg.Log.Info("a Pod range is not shared with other nodes any more", "range", r)
		}
	}
}

// describeShared returns whose address another node has in a range. The caller must hold mu.
func (w *worker) describeShared(r netip.Prefix) string {
	f := w.compiler.ForeignIn(r)
	owner := "node " + f.Node
	if f.Pod != (cluster.Key{}) {
		owner = fmt.Sprintf("pod %s on node %s", f.Pod, f.Node)
	}
	return fmt.Sprintf("%s has %s", owner, f.Addr)
}

// sharedRanges returns a remark about each range that is not enforced.
func (w *worker) sharedRanges() (remarks []string) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, r := range w.shared {
		remarks = append(remarks, fmt.Sprintf("%s: %s: %s", rangeShared, r, w.describeShared(r)))
	}
	return remarks
}

// standBy compiles changes while another process programs the table. Answers of DNS leave this process,
// too, so that their addresses are added to the sets of that table.
func (w *worker) standBy(c cluster.Changes) {
	delta := w.compile(c)
	if delta == nil {
		return
	}
	w.lookAtPods(true, delta)
	domains, _ := w.domainsNow(true, delta)
	w.table.Assume(w.compiler)
	w.gate.Update(domains)
}

// stats returns how much is compiled.
func (w *worker) stats() plan.Stats {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.compiler.Stats()
}

// apply brings changes into the kernel, and all if it may differ from the ruleset.
func (w *worker) apply(ctx context.Context, c cluster.Changes) {
	begin := time.Now()
	delta := w.compile(c)
	if delta == nil {
		return
	}
	scope := w.programmer.Begin()
	if scope == programmer.None {
		return // the next attempt brings everything
	}
	if scope == programmer.Partial && delta.Empty() {
		w.answer()
		return
	}
	err := w.program(ctx, scope, delta)
	took := time.Since(begin)
	if err == nil && !w.ended { // before Pods are admitted, whose addresses may be those of ended ones
		err = w.forgetEnded()
		w.ended = err == nil
	}
	if err == nil && !w.judges {
		err = w.takeOver()
	}
	if w.programmer.Done(programmer.Result{Scope: scope, Took: took, Err: err}) {
		stats := w.stats()
		w.cfg.Log.Info("the kernel has the policies of the cluster", "pods", stats.Local, "chains", stats.Chains,
			"sets", stats.Sets, "elements", stats.Elements, "took", time.Since(begin))
		if err := w.nodeProblem(); err != nil {
			w.cfg.Log.Warn("no policies are enforced", "err", err)
		}
		close(w.loaded)
		w.cfg.Loaded()
	}
	if err != nil {
		return
	}
	w.answer()
	if w.settings.Cut && w.flows != nil {
		w.flows.Changed()
	}
}

// nodeProblem returns an error if the Nodes are known and lack this one, whose Pods then are not known
// either. Manifests without any Node are those of a test on a workstation.
func (w *worker) nodeProblem() (err error) {
	w.cfg.Store.View(func(v *cluster.View) {
		if !v.Loaded(cluster.KindNode) || v.Node(w.cfg.Node) != nil {
			return
		}
		others := false
		for range v.Nodes() {
			others = true
			break
		}
		if others || w.cfg.Settings.Manifests == "" {
			err = fmt.Errorf("the cluster has no Node %q: set proxy.nodeName, or the environment variable NODE_NAME, "+
				"to the name of this one", w.cfg.Node)
		}
	})
	return err
}

// program programs what changed, or everything.
func (w *worker) program(ctx context.Context, scope programmer.Scope, delta *ruleset.Delta) (err error) {
	full := scope == programmer.Full
	w.lookAtPods(full, delta)
	after, changed := w.domainsNow(full, delta)
	if changed { // no answer leaves without its addresses
		w.warnOfDomains(after)
		w.gate.Update(union(w.domains, after))
	}
	if full {
		if err = w.readFormer(); err != nil {
			return err
		}
		if err = w.table.Sync(w.compiler); err == nil {
			w.programmer.Watch(ctx, w.table)
			w.gate.Refill()
		}
	} else {
		gone := w.metrics.countGone(delta.GoneChains)
		if err = w.table.Apply(w.compiler, delta); err == nil {
			gone()
		}
	}
	if changed && err == nil {
		w.gate.Update(after)
		w.domains = after
	}
	return err
}

// readFormer reads the kernel's sets of domain names, once.
func (w *worker) readFormer() (err error) {
	if w.former == nil {
		w.former, err = w.table.Resolved(w.compiler)
	}
	if w.former == nil {
		w.former = make(map[string][]netip.Addr)
	}
	return err
}

// takeOver has denied judge. The addresses that a former process gave sets are those in the kernel, and
// those of flows that it let go on: their addresses may have expired.
func (w *worker) takeOver() error {
	for set, addrs := range w.former {
		for _, addr := range addrs {
			w.gate.Recall(set, addr)
		}
	}
	recall := func(set string, addr netip.Addr) bool {
		_, ok := w.former[set]
		if ok {
			w.gate.Recall(set, addr)
		}
		return ok
	}
	if len(w.former) > 0 && w.settings.Cut && w.flows != nil {
		if err := w.flows.Each(func(f ruleset.Flow) { w.judge(f, recall) }); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judges = true
	return nil
}

// lookAtAddresses reads the addresses of the host's interfaces. If they cannot be read, the ones before
// stay.
func (w *worker) lookAtAddresses() {
	addrs, err := hostaddrs.All()
	if err != nil {
		w.cfg.Log.Warn("the addresses of the node cannot be read; the last known ones are used", "err", err)
		return
	}
	w.mu.Lock()
	changed := !slices.Equal(addrs, w.hosts)
	w.hosts = addrs
	w.mu.Unlock()
	if changed && w.settings.Cut && w.flows != nil {
		w.flows.Changed() // what the node sends itself is not judged
	}
}

// denied returns those of some flows that the policies do not allow. What the node sends itself is not judged.
func (w *worker) denied(all []ruleset.Flow) (denials []flows.Denial) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if !w.judges {
		return nil
	}
	for i, f := range all {
		resolved := func(set string, addr netip.Addr) bool { return w.resolved(f.Client.Addr(), set, addr) }
		verdict := w.judge(f, resolved)
		if verdict.Allowed || verdict.Denial.Reason == ruleset.ReasonNoPod { // what is of no Pod is forgotten when it ends
			continue
		}
		pod := f.Client.Addr()
		if verdict.Denial.Direction == ruleset.Ingress {
			pod = f.Server.Addr()
		}
		owner, _ := w.compiler.Owner(pod)
		denials = append(denials, flows.Denial{Flow: i, Share: owner.Namespace})
	}
	return denials
}

// judge returns the verdict about a flow. The caller must hold mu, or be the goroutine of run.
func (w *worker) judge(f ruleset.Flow, resolved func(string, netip.Addr) bool) ruleset.Verdict {
	client, server := f.Client.Addr(), f.Server.Addr()
	if w.isHost(client) {
		return ruleset.Verdict{Allowed: true}
	}
	return ruleset.Judge(w.compiler, ruleset.Packet{
		Source: client, Destination: server, Protocol: f.Protocol, DestinationPort: f.Server.Port(),
		ToNode: w.isHost(server),
	}, resolved)
}

// isHost reports whether an address is the node's own. The caller must hold mu, or be the goroutine of run.
// Packets with an address of a link are not forwarded (RFC 4291, section 2.5.6).
func (w *worker) isHost(a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(w.hosts, a, netip.Addr.Compare)
	return found || a.IsLoopback() || a.Is6() && a.IsLinkLocalUnicast()
}

// resolved reports whether an address was ever an answer to the Namespace of a Pod for a name of a set. Such
// addresses expire, but flows that began before go on.
func (w *worker) resolved(client netip.Addr, set string, addr netip.Addr) bool {
	s, ok := w.compiler.Set(set)
	return ok && s.Kind == ruleset.Resolved && w.gate.Gave(w.namespaceOf(client), set, addr)
}

// podAddrs are the addresses of the node's Pods. It is never changed.
type podAddrs struct {
	present map[netip.Addr]string    // their Namespaces
	ended   map[netip.Addr]time.Time // when the Pods ended that had them until a short time ago
}

// lateTime is for how long after a Pod's end packets of its flows are expected: what its peers repeat, and what
// they send before they know of the end.
const lateTime = time.Minute

// lookAtPods notes the addresses of the node's Pods.
func (w *worker) lookAtPods(all bool, d *ruleset.Delta) {
	if !all && len(d.Pods) == 0 {
		return
	}
	now := time.Now()
	pods := &podAddrs{present: make(map[netip.Addr]string), ended: make(map[netip.Addr]time.Time)}
	for addr := range w.compiler.Pods() {
		if key, ok := w.compiler.Owner(addr); ok {
			pods.present[addr] = key.Namespace
		}
	}
	if before := w.pods.Load(); before != nil {
		for addr, at := range before.ended {
			if now.Sub(at) < lateTime {
				pods.ended[addr] = at
			}
		}
		for addr := range before.present {
			pods.ended[addr] = now
		}
		maps.DeleteFunc(pods.ended, func(addr netip.Addr, _ time.Time) bool {
			_, ok := pods.present[addr]
			return ok
		})
	}
	w.pods.Store(pods)
}

// isPod reports whether a Pod of the node has an address.
func (w *worker) isPod(addr netip.Addr) bool { return w.namespaceOf(addr) != "" }

// namespaceOf returns the Namespace of the Pod of the node that has an address; empty if none has it.
func (w *worker) namespaceOf(addr netip.Addr) string {
	pods := w.pods.Load()
	if pods == nil {
		return ""
	}
	return pods.present[addr]
}

// endedLately reports whether the Pod of the node that had an address ended a short time ago.
func (w *worker) endedLately(addr netip.Addr) bool {
	pods := w.pods.Load()
	if pods == nil {
		return false
	}
	at, ok := pods.ended[addr]
	return ok && time.Since(at) < lateTime
}

// nameOf returns the Pod that has an address, as NAMESPACE/NAME; empty if none has it.
func (w *worker) nameOf(addr netip.Addr) string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	key, ok := w.compiler.Owner(addr)
	if !ok {
		return ""
	}
	return key.String()
}

// behindDevice returns the Pod behind a device, as NAMESPACE/NAME; empty if none is known.
func (w *worker) behindDevice(index uint32) string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	key, ok := w.compiler.Behind(index)
	if !ok {
		return ""
	}
	return key.String()
}

// domainsNow returns the sets of domain names of the ruleset, and whether they are others than those that the
// kernel has.
func (w *worker) domainsNow(all bool, d *ruleset.Delta) (domains map[string]fqdn.Set, changed bool) {
	if all {
		clear(w.named)
	}
	for _, chain := range d.GoneChains {
		delete(w.named, chain)
	}
	isResolved := func(name string) bool {
		s, ok := w.compiler.Set(name)
		return ok && s.Kind == ruleset.Resolved
	}
	isKnown := func(name string) bool {
		_, ok := w.domains[name]
		return ok
	}
	if !all && !slices.ContainsFunc(d.NewSets, isResolved) && !slices.ContainsFunc(d.GoneSets, isKnown) &&
		(len(w.domains) == 0 || len(d.Pods) == 0) {
		return w.domains, false
	}
	domains = make(map[string]fqdn.Set)
	for name, s := range w.compiler.Sets() {
		if s.Kind == ruleset.Resolved {
			domains[name] = fqdn.Set{Domains: s.Domains}
		}
	}
	if len(domains) > 0 {
		w.addNamespaces(domains)
	}
	return domains, all || !maps.EqualFunc(domains, w.domains, func(a, b fqdn.Set) bool {
		return slices.Equal(a.Domains, b.Domains) && slices.Equal(a.Namespaces, b.Namespaces)
	})
}

// addNamespaces notes the Namespaces of the Pods whose rules name sets.
func (w *worker) addNamespaces(domains map[string]fqdn.Set) {
	all := make(map[string]map[string]struct{}) // of each set
	for addr, pod := range w.compiler.Pods() {
		key, ok := w.compiler.Owner(addr)
		if !ok {
			continue
		}
		for _, set := range w.setsOf(pod.Egress) {
			if all[set] == nil {
				all[set] = make(map[string]struct{})
			}
			all[set][key.Namespace] = struct{}{}
		}
	}
	for name, s := range domains {
		s.Namespaces = slices.Sorted(maps.Keys(all[name]))
		domains[name] = s
	}
}

// setsOf returns the sets of domain names that the rules of a chain name, and of those where it goes on. It
// remembers them, as a chain never changes.
func (w *worker) setsOf(chain string) []string {
	if sets, ok := w.named[chain]; ok || chain == "" {
		return sets
	}
	c := w.compiler.Chain(chain)
	if c == nil {
		return nil
	}
	found := make(map[string]struct{})
	for _, r := range c.Rules {
		if s, ok := w.compiler.Set(r.Peers); ok && s.Kind == ruleset.Resolved {
			found[r.Peers] = struct{}{}
		}
		if r.Action == ruleset.Goto {
			for _, set := range w.setsOf(r.Chain) {
				found[set] = struct{}{}
			}
		}
	}
	w.named[chain] = slices.Collect(maps.Keys(found))
	return w.named[chain]
}

// warnOfDomains warns, once, of domain names whose addresses this process does not learn.
func (w *worker) warnOfDomains(domains map[string]fqdn.Set) {
	if w.warned || w.cfg.Resolves || len(domains) == 0 {
		return
	}
	w.warned = true
	w.cfg.Log.Warn("rules with domain names allow nothing: their addresses are those in the answers of this agent; "+
		"add dns to node.parts", "sets", len(domains))
}

// union returns the sets of both, each with the Namespaces of both.
func union(a, b map[string]fqdn.Set) map[string]fqdn.Set {
	all := maps.Clone(b)
	for name, s := range a {
		if also, ok := b[name]; ok {
			s.Namespaces = slices.Concat(s.Namespaces, also.Namespaces)
			slices.Sort(s.Namespaces)
			s.Namespaces = slices.Compact(s.Namespaces)
		}
		all[name] = s
	}
	return all
}

// ChangeResolved changes sets of domain names in the kernel.
func (w *worker) ChangeResolved(all []ruleset.Resolution) error { return w.table.ChangeResolved(all) }
