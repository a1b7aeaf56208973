package app

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/status"
	"portolan.dev/portolan/internal/gateway/table"
)

// keepUnused is how long the endpoints of an upstream are kept that no rule refers to any more, for requests
// that were given one before. Then they are kept while they have requests.
const keepUnused = 10 * time.Second

// worker is the goroutine that compiles what changed, and has it served.
type worker struct {
	*Gateway
	compiler *compile.Compiler
	table    atomic.Pointer[table.Table] // that is served; nil before the first
	serves   chan struct{}               // closed when there is a table
	// unused are upstreams to which no rule refers any more, and when each is looked at again.
	unused map[table.Upstream]time.Time
}

func newWorker(g *Gateway) *worker {
	return &worker{
		Gateway: g, compiler: compile.NewCompiler(g.settings.Compile), serves: make(chan struct{}),
		unused: make(map[table.Upstream]time.Time),
	}
}

// run works until ctx is done, and returns nil.
func (w *worker) run(ctx context.Context) error {
	feed := w.cfg.Store.Subscribe()
	defer feed.Close()
	wake := time.NewTimer(0)
	defer wake.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-feed.Ready():
			w.follow(ctx, feed.Pending())
		case <-wake.C:
			w.sockets.retry(ctx)
			w.reportSockets()
		}
		w.removeUnused()
		wake.Reset(w.pause())
	}
}

// follow has changes served. Until the cluster is known there is no table; the first one has everything.
func (w *worker) follow(ctx context.Context, changes cluster.Changes) {
	began := time.Now()
	var out compile.Output
	var reported status.Batch
	gone := changes.Everything // Ingresses or routes
	first := w.table.Load() == nil
	loaded := !first
	w.cfg.Store.View(func(v *cluster.View) {
		if loaded = loaded || v.Loaded(w.Needs()...); !loaded {
			return
		}
		if first {
			changes = cluster.Changes{Everything: true}
		}
		out = w.compiler.Apply(v, &changes)
		reported = w.reporter.Look(v, w.compiler, out.Changed)
		gone = gone || goneRoutes(v, &changes)
	})
	if !loaded {
		return
	}
	w.serve(ctx, out)
	w.reporter.Report(reported, w.sockets.errors())
	if gone {
		w.metrics.prune()
	}
	w.metrics.changed(time.Since(began), &changes)
	if first {
		w.sockets.forgetInherited()
		close(w.serves)
		w.cfg.Log.Info("requests are served", "took", time.Since(began))
		w.cfg.Loaded()
	}
}

// reportSockets has statuses say which sockets are bound.
func (w *worker) reportSockets() {
	if w.table.Load() != nil {
		w.reporter.Bound(w.sockets.errors())
	}
}

// goneRoutes reports whether Ingresses or routes were deleted.
func goneRoutes(v *cluster.View, changes *cluster.Changes) bool {
	for ref := range changes.Objects {
		if (ref.Kind == cluster.KindIngress || slices.Contains(cluster.RouteKinds(), ref.Kind)) &&
			v.Object(ref.Kind, ref.Key) == nil {
			return true
		}
	}
	return false
}

// hasRoute reports whether there is an Ingress or a route, by the text of its Ref.
func (g *Gateway) hasRoute(name string) (has bool) {
	word, object, _ := strings.Cut(name, " ")
	var key cluster.Key
	key.Namespace, key.Name, _ = strings.Cut(object, "/")
	g.cfg.Store.View(func(v *cluster.View) {
		for _, k := range append(cluster.RouteKinds(), cluster.KindIngress) {
			has = has || strings.EqualFold(word, k.String()) && v.Object(k, key) != nil
		}
	})
	return has
}

// serve has requests from now on be served by what was compiled: endpoints are there before the rules that
// refer to them, and go after them.
func (w *worker) serve(ctx context.Context, out compile.Output) {
	now := time.Now()
	used := make(map[table.Upstream][]netip.AddrPort, len(out.Endpoints))
	for up, addrs := range out.Endpoints {
		if addrs == nil {
			w.unused[up] = now.Add(keepUnused)
			continue
		}
		delete(w.unused, up)
		used[up] = addrs
	}
	if len(used) > 0 {
		w.endpoints.Update(used)
	}
	if out.Table == w.table.Load() {
		return
	}
	w.table.Store(out.Table)
	w.proxy.SetTable(out.Table)
	w.sockets.update(ctx, slices.AppendSeq(w.always(), out.Table.Sockets()))
}

// always returns the sockets that are bound with any table: that of Ingresses.
func (w *worker) always() []table.Socket {
	return []table.Socket{{Port: w.settings.Compile.IngressPort}}
}

// removeUnused removes upstreams that no rule refers to, and that have no requests any more.
func (w *worker) removeUnused() {
	now := time.Now()
	gone := make(map[table.Upstream][]netip.AddrPort)
	for up, next := range w.unused {
		if now.Before(next) {
			continue
		}
		if pool := w.endpoints.Pool(up); pool != nil && pool.UnderWay() > 0 {
			w.unused[up] = now.Add(keepUnused)
			continue
		}
		gone[up] = nil
		delete(w.unused, up)
	}
	if len(gone) > 0 {
		w.endpoints.Update(gone)
	}
}

// pause returns for how long there is nothing to do but changes.
func (w *worker) pause() time.Duration {
	const long = time.Hour
	next := w.sockets.next()
	for _, at := range w.unused {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if next.IsZero() {
		return long
	}
	return max(0, time.Until(next))
}
