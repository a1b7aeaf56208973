package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/ipam"
	"portolan.dev/portolan/internal/network/link"
	"portolan.dev/portolan/internal/network/nft"
	"portolan.dev/portolan/internal/network/plan"
	"portolan.dev/portolan/internal/network/route"
	"portolan.dev/portolan/internal/network/settings"
	"portolan.dev/portolan/internal/network/wireguard"
	"portolan.dev/portolan/internal/support/programmer"
)

// router has the kernel have routes to the Pods of other nodes. *route.Router implements it.
type router interface {
	Host() (route.Host, error)
	HostChanged() <-chan struct{}
	Sync(*route.Plan) error
	Apply(*route.Changes) error
	Run(context.Context) error
	Close()
}

// kernelTable has the kernel have the ranges, and the ports of the node that lead to Pods. *nft.Table implements it.
type kernelTable interface {
	ports
	Restore([]nft.Owner) error
	Sync(nft.Ranges) error
	Apply(*nft.RangeChanges) error
	Watch(context.Context, chan<- nft.Notice) error
	Close()
}

// tunnels has the device of encrypted tunnels have the keys and addresses of the other nodes. *wireguard.Tunnels
// implements it.
type tunnels interface {
	Sync([]wireguard.Peer) error
	Apply(*wireguard.Changes) error
	Resync() error
	Key() wireguard.Key
	Peers() int
}

// worker follows the model.
type worker struct {
	cfg        *Config
	compiler   *plan.Compiler
	programmer *programmer.Programmer
	router     router
	table      kernelTable
	tunnels    tunnels // nil without encryption
	keys       *publisher
	others     *problems
	host       route.Host // that was compiled for last
	pool       *ipam.Pool
	boxes      *sandboxes
	usable     chan struct{} // closed when Pods can have links for the first time
	isUsable   bool          // usable is closed

	absent     atomic.Bool  // the cluster has no Node of this name
	programmed atomic.Bool  // the kernel has the table
	keyless    atomic.Int64 // how many other nodes have no key for an encrypted tunnel

	mu       sync.Mutex // guards the fields below
	local    route.Local
	ranges   []netip.Prefix
	verdicts []string // of the own Node
}

// errNotSynced is the error until the first transaction.
var errNotSynced = errors.New("the kernel does not have the routes of the cluster yet")

// longestRepair is the longest pause before a repair, and before the next attempt after a failed one.
const longestRepair = 10 * time.Second

func newWorker(cfg *Config, s *settings.Compiled) *worker {
	w := &worker{
		cfg:      cfg,
		compiler: plan.NewCompiler(planConfig(cfg.Node, s)),
		programmer: programmer.New(programmer.Config{
			Part:      "network",
			Table:     s.Table,
			Title:     "the nftables table of the network",
			State:     "the network of the Pods",
			NotSynced: errNotSynced,
			Standby: "another process makes the network of this node, or locks its network namespace; " +
				"this one takes over when it ends",
			Repeated:      "each time Pods may not reach what is outside the cluster until it is repaired",
			LongestRepair: longestRepair,
			Log:           cfg.Log,
		}),
		keys:   newPublisher(cfg.Publish, cfg.Log),
		others: newProblems(cfg.Log),
		usable: make(chan struct{}),
	}
	if s.Encryption == plan.WireGuard {
		w.tunnels = wireguard.New(wireguard.Config{Device: route.DeviceWG, Port: s.WireGuardPort})
	}
	return w
}

// pass is what one pass of the worker brings into the kernel.
type pass struct {
	scope   programmer.Scope
	changes cluster.Changes
	// hostChanged: the interfaces of the node, or their addresses, changed.
	hostChanged bool
}

// run works until ctx is done, and returns nil.
func (w *worker) run(ctx context.Context) error {
	feed := w.cfg.Store.Subscribe()
	defer feed.Close()
	defer w.programmer.Close()
	missed := false // changes while the cluster was not known
	for {
		var p pass
		select {
		case <-ctx.Done():
			return nil
		case <-feed.Ready():
			p.changes = feed.Pending()
		case <-w.router.HostChanged():
			p.hostChanged = true
		case <-w.programmer.Due():
		}
		if !w.known() {
			missed = true
			continue
		}
		p.scope = w.programmer.Begin()
		if p.scope == programmer.None {
			continue // the next attempt brings everything
		}
		if p.changes.Everything || missed {
			p.scope, missed = programmer.Full, false
		}
		w.apply(ctx, p)
		w.others.update(w.compiler.Problems())
		w.watchKeys()
	}
}

// watchKeys has the own Node have the key of this node, and notes how many other nodes have none.
func (w *worker) watchKeys() {
	if w.tunnels == nil {
		return
	}
	keyless := int64(w.compiler.Keyless())
	if was := w.keyless.Swap(keyless); was < keyless {
		w.cfg.Log.Warn("nodes have no key for encrypted tunnels", "nodes", keyless)
	}
	w.cfg.Store.View(func(v *cluster.View) {
		if n := v.Node(w.cfg.Node); n != nil {
			w.keys.compare(w.tunnels.Key(), n.WireGuardKey)
		}
	})
}

// countKeys returns how many other nodes have an encrypted tunnel, and how many have no key for one.
func (w *worker) countKeys() (peers, keyless int) { return w.tunnels.Peers(), int(w.keyless.Load()) }

// known reports whether the cluster is known, with the own Node. Until then the kernel keeps what it has: without the
// Node nothing can be compiled, and its Pods go on.
func (w *worker) known() (known bool) {
	w.cfg.Store.View(func(v *cluster.View) {
		known = v.Loaded(plan.Kinds()...)
		node := v.Node(w.cfg.Node)
		absent := known && node == nil
		known = known && !absent
		switch {
		case absent == w.absent.Swap(absent):
		case absent:
			w.cfg.Log.Warn("the cluster has no Node of this name: routes stay as they are, and no Pod can start; "+
				"proxy.nodeName names another", "node", w.cfg.Node)
		case known:
			w.cfg.Log.Info("the cluster has the Node", "node", w.cfg.Node, "ranges", node.PodCIDRs)
		}
	})
	return known
}

// apply brings what a pass has into the kernel, or everything.
func (w *worker) apply(ctx context.Context, p pass) {
	start := time.Now()
	var err error
	if p.scope == programmer.Full {
		err = w.sync(ctx)
	} else {
		var changed bool
		if changed, err = w.change(p); !changed {
			return
		}
	}
	first := w.programmer.Done(programmer.Result{Scope: p.scope, Took: time.Since(start), Err: err})
	if first {
		w.cfg.Log.Info("the kernel has the routes of the cluster", "took", time.Since(start))
		w.cfg.Loaded()
	}
	switch problem := w.problem(); {
	case w.isUsable:
	case problem == nil:
		w.isUsable = true
		w.cfg.Log.Info("the node can start Pods", "ranges", w.ranges, "mtu", w.local.MTU)
		close(w.usable)
	case first:
		w.cfg.Log.Warn("the node cannot start Pods", "err", problem)
	}
}

// sync has the kernel have everything.
func (w *worker) sync(ctx context.Context) error {
	host, err := w.router.Host()
	if err != nil {
		return fmt.Errorf("read the interfaces of the node: %w", err)
	}
	var state *plan.State
	w.host = host
	w.cfg.Store.View(func(v *cluster.View) { state = w.compiler.All(v, host) })
	if err := w.adopt(state.Routes.Local, state.Ranges.Pods); err != nil {
		return err
	}
	routes, table := w.router.Sync(&state.Routes), w.table.Sync(state.Ranges)
	if table == nil {
		w.programmed.Store(true)
	}
	err = errors.Join(routes, table, w.refresh())
	if w.tunnels != nil {
		if failed := w.tunnels.Sync(state.Tunnels); routes == nil || !errors.Is(failed, wireguard.ErrNoDevice) {
			err = errors.Join(err, failed)
		} // else the router has said why there is no device
	}
	w.programmer.Watch(ctx, w.table)
	return err
}

// change has the kernel have what changed, and reports whether anything did.
func (w *worker) change(p pass) (changed bool, err error) {
	var all []*plan.Changes
	w.cfg.Store.View(func(v *cluster.View) {
		if len(p.changes.Objects) > 0 {
			all = append(all, w.compiler.Apply(v, namesOf(p.changes)))
		}
	})
	if p.hostChanged {
		host, err := w.router.Host()
		if err != nil {
			return true, fmt.Errorf("read the interfaces of the node: %w", err)
		}
		if !host.Equal(&w.host) { // a renewed address changes nothing
			w.host = host
			all = append(all, w.compiler.SetHost(host))
		}
	}
	var errs []error
	for _, c := range all {
		if c.Routes.Empty() && c.Ranges.Empty() && c.Tunnels.Empty() {
			continue
		}
		changed = true
		errs = append(errs, w.follow(c), w.router.Apply(&c.Routes), w.table.Apply(&c.Ranges))
		if w.tunnels != nil {
			errs = append(errs, w.tunnels.Apply(&c.Tunnels))
		}
	}
	if len(all) > 0 && w.hasNewVerdicts() { // a range may be usable, or no longer, though no route changed
		changed = true
		errs = append(errs, w.follow(new(plan.Changes)))
	}
	if p.hostChanged {
		errs = append(errs, w.refresh())
		if w.tunnels != nil { // their device may have been made anew
			errs = append(errs, w.tunnels.Resync())
		}
	}
	err = errors.Join(errs...)
	return changed || err != nil, err
}

// AddPorts has ports of the node lead to a Pod. If the kernel may lack what was programmed, it is programmed again.
func (w *worker) AddPorts(owner string, all []nft.Port) error {
	return w.mend(w.table.AddPorts(owner, all))
}

// CheckPorts returns an error for each port of a Pod that the kernel lacks.
func (w *worker) CheckPorts(owner string, all []nft.Port) error {
	return w.table.CheckPorts(owner, all)
}

// DeletePorts removes the ports of a Pod.
func (w *worker) DeletePorts(owner string) error { return w.mend(w.table.DeletePorts(owner)) }

// mend has everything be programmed again after an error of the kernel.
func (w *worker) mend(err error) error {
	if _, taken := errors.AsType[*nft.ConflictError](err); err != nil && !taken {
		w.programmer.Retry()
	}
	return err
}

// refresh has the node have routes to its Pods, which the kernel removes with an address of the node.
func (w *worker) refresh() error {
	w.mu.Lock()
	cfg, known := w.linkConfig()
	w.mu.Unlock()
	if !known {
		return nil
	}
	return w.boxes.refresh(cfg)
}

// follow has new Pods have what changed of the node.
func (w *worker) follow(c *plan.Changes) error {
	w.mu.Lock()
	local, ranges := w.local, slices.Clone(w.ranges)
	w.mu.Unlock()
	if c.Routes.Local != nil {
		local = *c.Routes.Local
	}
	ranges = slices.DeleteFunc(ranges, func(r netip.Prefix) bool { return slices.Contains(c.Ranges.DeletePods, r) })
	return w.adopt(local, append(ranges, c.Ranges.AddPods...))
}

// adopt has new Pods have addresses out of some ranges, and links with what the node has.
func (w *worker) adopt(local route.Local, ranges []netip.Prefix) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.local, w.ranges = local, ranges
	w.verdicts = w.ownVerdicts()
	usable := slices.Clone(ranges)
	for _, v := range w.compiler.Verdicts(w.cfg.Node) {
		// The other nodes have a route to the Node that has it, or none.
		if v.Reason == plan.RangeTaken || v.Reason == plan.RangeOfHost {
			usable = slices.DeleteFunc(usable, func(r netip.Prefix) bool { return r == v.Range })
		}
	}
	return w.pool.SetRanges(usable)
}

// ownVerdicts returns what of the own Node has no effect.
func (w *worker) ownVerdicts() (verdicts []string) {
	for _, v := range w.compiler.Verdicts(w.cfg.Node) {
		verdicts = append(verdicts, fmt.Sprintf("Node %s: %s", w.cfg.Node, v))
	}
	return verdicts
}

// hasNewVerdicts reports whether new Pods have not been adapted to what of the own Node has no effect.
func (w *worker) hasNewVerdicts() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.Equal(w.verdicts, w.ownVerdicts())
}

// link returns what the links of Pods have in common, or why they cannot be made.
func (w *worker) link() (link.Config, error) {
	if w.absent.Load() {
		return link.Config{}, fmt.Errorf("the cluster has no Node %s", w.cfg.Node)
	}
	if !w.programmed.Load() { // a route to another node that cannot be programmed is no reason to start no Pods
		return link.Config{}, w.programmer.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	cfg, known := w.linkConfig()
	if !known || len(w.pool.Stats()) == 0 {
		return link.Config{}, w.unusable()
	}
	return cfg, nil
}

// startTime is how long a Pod waits for an agent that has just started, and reads the cluster.
const startTime = 5 * time.Second

// await is link, but waits until the kernel has the routes of the cluster for the first time, so that Pods start while
// one agent takes over from another.
func (w *worker) await(ctx context.Context) (link.Config, error) {
	cfg, err := w.link()
	if !errors.Is(err, errNotSynced) {
		return cfg, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	select {
	case <-w.usable:
	case <-ctx.Done():
	}
	return w.link()
}

// linkConfig returns what the links of Pods have in common; known is false before the node has an address. The caller
// holds mu.
func (w *worker) linkConfig() (cfg link.Config, known bool) {
	return link.Config{
		MTU: w.local.MTU, Source4: w.local.Source(netip.IPv4Unspecified()), Source6: w.local.Source(netip.IPv6Unspecified()),
	}, w.local.MTU != 0
}

// unusable returns why Pods cannot have links. The caller holds mu.
func (w *worker) unusable() error {
	if len(w.verdicts) > 0 {
		return errors.New(w.verdicts[0])
	}
	return ipam.ErrNoRanges
}

// problem returns why Pods cannot have links, or nil.
func (w *worker) problem() error {
	_, err := w.link()
	return err
}

// remarks returns what of the own Node has no effect, and of others.
func (w *worker) remarks() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	remarks := slices.Clone(w.verdicts)
	if w.tunnels != nil && !w.keys.isPublished() {
		remarks = append(remarks, "other nodes do not know the key of this one: its Node has another, or none")
	}
	return append(remarks, w.others.remarks()...)
}

// namesOf yields the names of the Nodes among changes.
func namesOf(c cluster.Changes) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for ref := range c.Objects {
			if ref.Kind == cluster.KindNode && !yield(ref.Key.Name) {
				return
			}
		}
	}
}
