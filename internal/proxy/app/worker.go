package app

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/conntrack"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/healthcheck"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/internal/proxy/plan"
	"portolan.dev/portolan/internal/support/hostaddrs"
	"portolan.dev/portolan/internal/support/programmer"
)

// worker is the goroutine that compiles what changed and programs it.
type worker struct {
	*Proxy
	compiler *plan.Compiler
	node     plan.Node
	addrs    []netip.Addr // the host's
	// gone are addresses that are no more since flows were last looked at.
	gone map[frontend.Address]struct{}
	// causes are when what changed since the last success was caused, see cluster.Changes.
	causes   map[cluster.Ref]int64
	open     func(nft.Config) kernelTable
	table    kernelTable // nil before the first Sync
	config   nft.Config  // of table
	tuned    bool        // connection tracking has its settings
	full     bool        // some Services are left out
	warmup   *plan.Warmup
	nextStep time.Duration // of warmup, after the last compile; 0 for none
}

// kernelTable is what the worker needs of an nft.Table.
type kernelTable interface {
	Sync(s *frontend.State) (changed int, err error)
	Apply(c *frontend.Changes) (changed int, err error)
	Watch(ctx context.Context, notices chan<- nft.Notice) error
	Configure(cfg nft.Config)
	Close() error
}

func newWorker(p *Proxy) *worker {
	return &worker{
		Proxy: p, compiler: plan.NewCompiler(plan.Node{}), open: func(c nft.Config) kernelTable { return nft.New(c) },
		gone: make(map[frontend.Address]struct{}), causes: make(map[cluster.Ref]int64),
		warmup: plan.NewWarmup(p.settings.SlowStart),
	}
}

// run works until ctx is done, and returns nil.
func (w *worker) run(ctx context.Context) error {
	feed := w.cfg.Store.Subscribe()
	defer feed.Close()
	defer w.close()
	w.lookAtAddresses()
	look := time.NewTicker(addressInterval)
	defer look.Stop()
	var step <-chan time.Time // nil if none is waited for
	for {
		var changes cluster.Changes
		select {
		case <-ctx.Done():
			return nil
		case <-feed.Ready():
			changes = feed.Pending()
		case <-look.C:
			w.lookAtAddresses()
		case <-w.programmer.Due():
		case <-step:
			step = nil
		}
		w.noteCauses(changes)
		w.countChanges(changes)
		if !w.loaded() {
			clear(w.causes)
			continue
		}
		if scope := w.programmer.Begin(); scope != programmer.None { // else the next attempt brings everything
			w.apply(ctx, changes, scope)
		}
		if w.nextStep > 0 && step == nil {
			step = time.After(w.nextStep)
		}
	}
}

func (w *worker) close() {
	w.programmer.Close()
	if w.table != nil {
		_ = w.table.Close()
	}
}

// apply brings changes into the kernel, or everything.
func (w *worker) apply(ctx context.Context, c cluster.Changes, scope programmer.Scope) {
	start := time.Now()
	job := w.compile(c, scope)
	if job.scope == programmer.None {
		clear(w.causes)
		return
	}
	w.eachFamily(w.health.Queued)
	changed, err := job.run(ctx, w)
	if w.standBy(err) {
		return
	}
	result := programmer.Result{Scope: job.scope, Took: time.Since(start), Err: err}
	w.metrics.observe(result, changed)
	if err == nil {
		w.metrics.programmed(w.causes)
		w.metrics.kube.programmed(w.causesByFamily(), w.compiler)
		clear(w.causes)
		w.eachFamily(w.health.Updated)
		w.flows.Changed(append(job.flows(), w.deleted()...))
		if job.checked {
			w.checks.Update(healthcheck.State{Checks: job.checks, Addresses: w.node.NodePorts})
		}
	}
	if err != nil && job.changes != nil {
		for _, a := range job.changes.Delete {
			w.gone[a] = struct{}{}
		}
	}
	if w.programmer.Done(result) {
		w.cfg.Log.Info("the kernel has the Services of the cluster", "frontends", len(job.state.Frontends),
			"elementsChanged", changed, "took", time.Since(start))
		w.warnWithoutNode()
		close(w.programmed)
		w.cfg.Loaded()
	}
}

// warnWithoutNode warns if the cluster has no Node of the proxy's name.
func (w *worker) warnWithoutNode() {
	w.cfg.Store.View(func(v *cluster.View) {
		if v.Node(w.Proxy.node) == nil {
			w.cfg.Log.Warn("there is no Node of this name: its zone, addresses and Pod ranges are not known; "+
				"--node-name names another", "node", w.Proxy.node)
		}
	})
}

// noteCauses keeps when changes were caused, until the kernel has them.
func (w *worker) noteCauses(c cluster.Changes) {
	for ref, cause := range c.Objects {
		if known := w.causes[ref]; cause != 0 && (known == 0 || cause < known) {
			w.causes[ref] = cause
		}
	}
}

// standBy records that another process owns the tables while this one has not programmed them
// yet, and reports whether that is so. The other one is replaced: when it ends, the next attempt
// takes the tables over.
func (w *worker) standBy(err error) bool {
	waits := errors.Is(err, nft.ErrOwned) && !w.programmer.Synced()
	w.programmer.SetStandby(waits)
	if waits {
		w.programmer.Retry()           // the tables are free at any moment
		w.eachFamily(w.health.Updated) // the other process has what this one lacks
	}
	return waits
}

func (w *worker) eachFamily(do func(cluster.AddressType)) {
	do(cluster.IPv4)
	do(cluster.IPv6)
}

// job is what is to be programmed.
type job struct {
	scope   programmer.Scope
	config  nft.Config
	state   *frontend.State   // for a full sync
	changes *frontend.Changes // for a partial one
	checks  map[cluster.Key]plan.HealthCheck
	checked bool // checks are others than before
}

// loaded reports whether the cluster is known.
func (w *worker) loaded() (loaded bool) {
	w.cfg.Store.View(func(v *cluster.View) { loaded = v.Loaded(w.Needs()...) })
	return loaded
}

// compile compiles changes: everything if the node changed, or if the scope is Full.
func (w *worker) compile(c cluster.Changes, scope programmer.Scope) (j job) {
	j.scope = programmer.None
	w.cfg.Store.View(func(v *cluster.View) {
		now := time.Now()
		warmer := w.warmup.Advance(now)
		switch node := w.nodeOf(v); {
		case scope == programmer.Full, c.Everything, !equalNodes(node, w.node), w.podsMoved(v):
			w.node = node
			w.warmup.LookAtAll(v, now)
			before := slices.Collect(w.compiler.Addresses())
			j = job{scope: programmer.Full, config: w.tableConfig(v), state: w.compiler.All(v, node)}
			for _, a := range before {
				if !w.compiler.Serves(a) {
					w.gone[a] = struct{}{}
				}
			}
			j.checks, j.checked = w.compiler.Checks()
			w.counters.replace(v, w.compiler, j.config)
		case len(c.Objects) > 0 || len(warmer) > 0:
			changed := servicesOf(c)
			w.warmup.Look(v, slices.Values(changed), now)
			changes := w.compiler.Apply(v, slices.Values(append(changed, warmer...)))
			j = job{scope: programmer.Partial, changes: changes}
			j.checks, j.checked = w.compiler.Checks()
			w.counters.update(v, w.compiler)
		}
		w.reportLeftOut()
		w.nextStep = w.warmup.Next(now)
	})
	return j
}

// reportLeftOut records how many Services are left out for want of room, and logs the first and the
// last time.
func (w *worker) reportLeftOut() {
	keys, n := w.compiler.LeftOut()
	w.metrics.leftOut.Set(float64(n))
	switch {
	case n > 0 && !w.full:
		one := slices.MinFunc(slices.Collect(keys), cluster.Key.Compare)
		w.cfg.Log.Error(
			"Services are not served: older ones of the cluster, or of a namespace, have all that the proxy holds "+
				"with its memory limit",
			"services",
			n,
			"one",
			one,
			"room",
			w.room,
		)
	case n == 0 && w.full:
		w.cfg.Log.Info("all Services are served again")
	}
	w.full = n > 0
}

// servicesOf returns the Services among changes, and those whose endpoints are.
func servicesOf(c cluster.Changes) (keys []cluster.Key) {
	for ref := range c.Objects {
		if ref.Kind == cluster.KindService {
			keys = append(keys, ref.Key)
		}
	}
	return keys
}

// run programs the job.
func (j *job) run(ctx context.Context, w *worker) (changed int, err error) {
	if j.scope == programmer.Partial {
		return w.table.Apply(j.changes)
	}
	switch {
	case w.table == nil:
		w.table = w.open(j.config)
	case !reflect.DeepEqual(j.config, w.config): // the Node has other ranges of Pods
		w.programmer.StopWatching()
		w.table.Configure(j.config)
	}
	w.config = j.config
	changed, err = w.table.Sync(j.state)
	if err != nil {
		return changed, err
	}
	w.programmer.Watch(ctx, w.table)
	if !w.tuned { // the kernel has these settings since its first rule that needs connection tracking
		w.tuned = true
		if err := conntrack.Apply(w.settings.Conntrack.Sysctls(conntrack.CPUs()), w.cfg.Log); err != nil {
			w.cfg.Log.Error("cannot make the settings of connection tracking; correct those of proxy.conntrack", "err", err)
		}
	}
	return changed, nil
}

// flows returns the frontends whose flows may have become stale.
func (j *job) flows() (all []conntrack.Target) {
	if j.state != nil {
		for _, f := range j.state.Frontends {
			all = append(all, conntrack.Target{Address: f.Address, Endpoints: f.Serving})
		}
		return all
	}
	for _, f := range j.changes.Serving {
		all = append(all, conntrack.Target{Address: f.Address, Endpoints: f.Serving})
	}
	for _, a := range j.changes.Delete {
		all = append(all, conntrack.Target{Address: a, Deleted: true})
	}
	return all
}

// deleted returns the addresses that are no more, for flows to them.
func (w *worker) deleted() (all []conntrack.Target) {
	for a := range w.gone {
		if !w.compiler.Serves(a) {
			all = append(all, conntrack.Target{Address: a, Deleted: true})
		}
	}
	clear(w.gone)
	return all
}

// tableConfig returns the settings of the table, with the families of the host and the Node's
// Pods.
func (w *worker) tableConfig(v *cluster.View) nft.Config {
	cfg := w.settings.Table
	cfg.Families = families()
	if w.settings.PodCIDRs {
		cfg.Pods.CIDRs = w.config.Pods.CIDRs // as long as there is no Node
		if n := v.Node(w.Proxy.node); n != nil {
			cfg.Pods.CIDRs = n.PodCIDRs
		}
	}
	return cfg
}

// podsMoved reports whether the Node has other ranges of Pods than the table, if it matters.
func (w *worker) podsMoved(v *cluster.View) bool {
	n := v.Node(w.Proxy.node)
	return w.settings.PodCIDRs && n != nil && !slices.Equal(n.PodCIDRs, w.config.Pods.CIDRs)
}

// families returns the families of the host. Where IPv6 is disabled, it has no such file.
func families() []nft.Family {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return []nft.Family{nft.IPv4}
	}
	return []nft.Family{nft.IPv4, nft.IPv6}
}

// nodeOf returns the node. Without its Node object it is what it was with it; before there was
// one, it has no zone and, unless the settings have ranges, no addresses for node ports.
func (w *worker) nodeOf(v *cluster.View) plan.Node {
	node := plan.Node{
		Name: w.Proxy.node, Addresses: w.addrs, Zone: w.node.Zone, NodePorts: w.node.NodePorts, Choice: w.settings.Choice,
		Warmup: w.warmup, Room: w.room,
	}
	if n := v.Node(w.Proxy.node); n != nil {
		node.Zone, node.NodePorts = n.Zone, plan.Primary(n.InternalIPs)
	}
	if len(w.settings.NodePorts) == 0 {
		return node
	}
	node.NodePorts = nil
	for _, a := range node.Addresses {
		if !a.IsLoopback() && slices.ContainsFunc(w.settings.NodePorts, func(p netip.Prefix) bool { return p.Contains(a) }) {
			node.NodePorts = append(node.NodePorts, a)
		}
	}
	return node
}

func equalNodes(a, b plan.Node) bool {
	return a.Name == b.Name && a.Zone == b.Zone && a.Choice == b.Choice && slices.Equal(a.NodePorts, b.NodePorts) &&
		slices.Equal(a.Addresses, b.Addresses)
}

// lookAtAddresses reads the addresses of the host's interfaces. If they cannot be read, the ones before
// stay.
func (w *worker) lookAtAddresses() {
	addrs, err := hostaddrs.All()
	if err != nil {
		w.cfg.Log.Warn("the addresses of the node cannot be read; the last known ones are used", "err", err)
		return
	}
	// Those of links alone come and go with Pods.
	w.addrs = slices.DeleteFunc(addrs, netip.Addr.IsLinkLocalUnicast)
}
