package app

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/settings"
	"portolan.dev/portolan/internal/gateway/status"
	"portolan.dev/portolan/internal/gateway/table"
)

// keepUnused is how long the endpoints of an upstream are kept that no rule refers to any more, for requests
// that were given one before. Then they are kept while they have requests, at most for keepBusy.
const (
	keepUnused = 10 * time.Second
	keepBusy   = time.Hour
)

// worker is the goroutine that compiles what changed, and has it served.
type worker struct {
	*Gateway
	compiler *compile.Compiler
	table    atomic.Pointer[table.Table] // that is served; nil before the first
	serves   chan struct{}               // closed when there is a table
	// unused are upstreams to which no rule refers any more.
	unused map[table.Upstream]unused
}

// unused is since when no rule refers to an upstream, and when it is looked at again.
type unused struct{ since, next time.Time }

func newWorker(g *Gateway) *worker {
	return &worker{
		Gateway: g, compiler: compile.NewCompiler(g.settings.Compile), serves: make(chan struct{}),
		unused: make(map[table.Upstream]unused),
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
	var gone []string // Ingresses and routes
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
		if w.reporter != nil {
			reported = w.reporter.Look(v, w.compiler, out.Changed)
		}
		gone = goneRoutes(v, &changes)
	})
	if !loaded {
		return
	}
	w.serve(ctx, out)
	if w.reporter != nil {
		w.reporter.Report(reported, w.sockets.errors())
	}
	w.metrics.routes.forget(gone)
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
	if w.reporter != nil && w.table.Load() != nil {
		w.reporter.Bound(w.sockets.errors())
	}
}

// goneRoutes returns the names of Ingresses and routes that were deleted.
func goneRoutes(v *cluster.View, changes *cluster.Changes) (gone []string) {
	for ref := range changes.Objects {
		if ref.Kind == cluster.KindIngress && cluster.Ingresses.Get(v, ref.Key) == nil ||
			ref.Kind == cluster.KindHTTPRoute && cluster.HTTPRoutes.Get(v, ref.Key) == nil {
			gone = append(gone, ref.String())
		}
	}
	return gone
}

// serve has requests from now on be served by what was compiled: endpoints are there before the rules that
// refer to them, and go after them.
func (w *worker) serve(ctx context.Context, out compile.Output) {
	now := time.Now()
	used := make(map[table.Upstream][]netip.AddrPort, len(out.Endpoints))
	for up, addrs := range out.Endpoints {
		if addrs == nil {
			w.unused[up] = unused{now, now.Add(keepUnused)}
			continue
		}
		delete(w.unused, up)
		used[up] = w.endpointsOf(up, addrs)
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

// endpointsOf returns the endpoints of an upstream: those that are set, or those of the cluster.
func (w *worker) endpointsOf(up table.Upstream, addrs []netip.AddrPort) []netip.AddrPort {
	for _, port := range []uint16{up.Port, 0} {
		of := settings.ServicePort{Namespace: up.Namespace, Service: up.Service, Port: port}
		if set := w.settings.Endpoints[of]; set != nil {
			return set
		}
	}
	return addrs
}

// always returns the sockets that are bound with any table: that of Ingresses.
func (w *worker) always() []table.Socket {
	return []table.Socket{{Port: w.settings.Compile.IngressPort}}
}

// removeUnused removes upstreams that no rule refers to, and that have no requests any more.
func (w *worker) removeUnused() {
	now := time.Now()
	gone := make(map[table.Upstream][]netip.AddrPort)
	for up, u := range w.unused {
		if now.Before(u.next) {
			continue
		}
		if pool := w.endpoints.Pool(up); pool != nil && pool.UnderWay() > 0 && now.Sub(u.since) < keepBusy {
			w.unused[up] = unused{u.since, now.Add(keepUnused)}
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
	for _, u := range w.unused {
		if next.IsZero() || u.next.Before(next) {
			next = u.next
		}
	}
	if next.IsZero() {
		return long
	}
	return max(0, time.Until(next))
}
