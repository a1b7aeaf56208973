package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/conntrack"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/healthcheck"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/internal/proxy/plan"
	"portolan.dev/portolan/internal/support/hostaddrs"
	"portolan.dev/portolan/internal/support/retry"
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
	stale    bool        // the kernel may differ from what the table recorded
	failures retry.Backoff
	repairs  retry.Repairs
	tuned    bool            // connection tracking has its settings
	notices  chan nft.Notice // of changes by other programs
	blind    chan error      // why there are no more notices
	watching sync.WaitGroup
	stop     context.CancelFunc // of watching; nil if nothing watches
	full     bool               // some Services are left out
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
		notices: make(chan nft.Notice, 1), blind: make(chan error, 1),
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
	compare := time.NewTicker(compareInterval)
	defer compare.Stop()
	var again, repair, step <-chan time.Time // nil if none is waited for
	for {
		var changes cluster.Changes
		select {
		case <-ctx.Done():
			return nil
		case <-feed.Ready():
			changes = feed.Pending()
		case <-look.C:
			w.lookAtAddresses()
		case <-compare.C:
			w.stale = true
		case <-again:
			again = nil
		case notice := <-w.notices:
			if repair == nil && again == nil { // else everything is repaired soon
				repair = time.After(w.disturbed(notice))
			}
			continue
		case err := <-w.blind:
			repair = time.After(w.blinded(err))
			continue
		case <-step:
			step = nil
		case <-repair:
			repair, w.stale = nil, true
			select { // what it is about is repaired, too
			case <-w.notices:
			default:
			}
		}
		w.noteCauses(changes)
		w.countChanges(changes)
		if again != nil {
			continue // the next attempt brings everything
		}
		if err := w.apply(ctx, changes); err != nil {
			again = time.After(w.failures.Next())
		} else {
			w.failures = retry.Backoff{}
		}
		if w.nextStep > 0 && step == nil {
			step = time.After(w.nextStep)
		}
	}
}

func (w *worker) close() {
	w.stopWatching()
	if w.table != nil {
		_ = w.table.Close()
	}
}

// apply brings changes into the kernel. After an error the next call brings everything.
func (w *worker) apply(ctx context.Context, c cluster.Changes) error {
	start := time.Now()
	job := w.compile(c)
	if job.kind == noSync {
		clear(w.causes)
		return nil
	}
	w.eachFamily(w.health.Queued)
	changed, err := job.run(ctx, w)
	if w.standBy(err) {
		return err
	}
	w.metrics.observe(job.kind, changed, time.Since(start), err)
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
	if w.record(err) {
		w.cfg.Log.Info("the kernel has the Services of the cluster", "frontends", len(job.state.Frontends),
			"elementsChanged", changed, "took", time.Since(start))
		w.warnWithoutNode()
		close(w.programmed)
		w.cfg.Loaded()
	}
	return err
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
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := errors.Is(err, nft.ErrOwned) && !w.synced
	if waits && !w.standby {
		w.cfg.Log.Info(standbyRemark, "table", w.settings.Table.Name)
	}
	if w.standby = waits; waits {
		w.failures = retry.Backoff{}   // the tables are free at any moment
		w.eachFamily(w.health.Updated) // the other process has what this one lacks
	}
	return waits
}

// record records the result of a transaction, and reports whether it is the first success.
func (w *worker) record(err error) (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		w.stale = true
		if w.problem == nil || w.problem.Error() != err.Error() {
			w.cfg.Log.Error("the kernel does not have the present state of the cluster", "err", withCure(err))
		}
		w.problem = err
	case w.problem != nil:
		w.cfg.Log.Info("the kernel has the present state of the cluster again")
		w.problem = nil
	}
	first = err == nil && !w.synced
	w.synced = w.synced || first
	return first
}

// withCure adds what the user can do to an error of a transaction, where that is known.
func withCure(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (it needs the capability NET_ADMIN, in the node's network)", err)
	case errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("%w (it needs Linux 5.13 or newer, with all modules of nftables)", err)
	}
	return err
}

func (w *worker) eachFamily(do func(cluster.AddressType)) {
	do(cluster.IPv4)
	do(cluster.IPv6)
}

// job is what is to be programmed.
type job struct {
	kind    syncKind
	config  nft.Config
	state   *frontend.State   // for a full sync
	changes *frontend.Changes // for a partial one
	checks  map[cluster.Key]plan.HealthCheck
	checked bool // checks are others than before
}

// compile compiles changes: everything if the node changed, or if the kernel may differ from
// what was programmed.
func (w *worker) compile(c cluster.Changes) (j job) {
	j.kind = noSync
	w.cfg.Store.View(func(v *cluster.View) {
		if !v.Loaded(w.Needs()...) {
			return
		}
		now := time.Now()
		warmer := w.warmup.Advance(now)
		switch node := w.nodeOf(v); {
		case w.table == nil, w.stale, c.Everything, !equalNodes(node, w.node), w.podsMoved(v):
			w.node = node
			w.warmup.LookAtAll(v, now)
			before := slices.Collect(w.compiler.Addresses())
			j = job{kind: fullSync, config: w.tableConfig(v), state: w.compiler.All(v, node)}
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
			j = job{kind: partialSync, changes: changes}
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
	if j.kind == partialSync {
		return w.table.Apply(j.changes)
	}
	switch {
	case w.table == nil:
		w.table = w.open(j.config)
	case !reflect.DeepEqual(j.config, w.config): // the Node has other ranges of Pods
		w.stopWatching()
		w.table.Configure(j.config)
	}
	w.config = j.config
	changed, err = w.table.Sync(j.state)
	w.stale = err != nil
	if err != nil {
		return changed, err
	}
	w.watch(ctx)
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
