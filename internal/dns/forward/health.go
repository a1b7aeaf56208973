package forward

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/support/deadline"
)

// checkInterval is the interval between checks of a route's upstreams,
// readInterval that between reads of its resolv.conf, and loopInterval that
// between tests of an upstream that forwards back to this server.
const (
	checkInterval = 250 * time.Millisecond
	readInterval  = time.Second
	loopInterval  = 10 * time.Second
)

// maintain rereads the resolv.conf when it changes and checks upstreams that
// are new, down, or forward back to this server, until ctx is done.
func (r *route) maintain(ctx context.Context, log *slog.Logger) error {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	watched := make(map[*upstream]*watch)
	var read time.Time
	for {
		now := time.Now()
		if r.ResolvConf != "" && now.Sub(read) >= readInterval {
			read = now
			r.reread(ctx, log)
		}
		r.checkUpstreams(ctx, watched, now, log)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// reread reads the resolv.conf and replaces the upstreams if they changed. A
// file without nameservers may be half written and changes nothing.
func (r *route) reread(ctx context.Context, log *slog.Logger) {
	found, err := r.readResolvConf(ctx, deadline.Prompt)
	if err == nil && found.listed == 0 {
		err = fmt.Errorf("%s: no nameserver", r.ResolvConf)
	}
	if err != nil {
		log.Debug("cannot use resolv.conf; upstreams are unchanged", "route", r, "err", err)
		return
	}
	servers := slices.Concat(r.Upstreams, found.servers)
	before := *r.upstreams.Load()
	if slices.EqualFunc(before, servers, func(u *upstream, s Upstream) bool { return u.Upstream == s }) {
		return
	}
	r.set(servers)
	log.Info("upstreams changed", "route", r, "upstreams", servers)
}

// dnsPort is the port of the servers in a resolv.conf.
const dnsPort = 53

// nameservers are the servers in a resolv.conf.
type nameservers struct {
	servers []Upstream // except this server itself
	listed  int
}

// readResolvConf returns the servers in the file, and waits for them within that time.
// The result of a read that takes longer is returned by the next call.
func (r *route) readResolvConf(ctx context.Context, within time.Duration) (nameservers, error) {
	return r.reading.Do(ctx, within, "read "+r.ResolvConf, r.parseResolvConf)
}

func (r *Route) parseResolvConf() (found nameservers, err error) {
	file, err := deadline.Open(r.ResolvConf, deadline.File, deadline.Small)
	if err != nil {
		return found, err
	}
	defer file.Close()
	conf, _, err := resolvconf.Parse(file)
	if err != nil {
		return found, fmt.Errorf("%s: %w", r.ResolvConf, err)
	}
	found.listed = len(conf.Nameservers)
	for _, addr := range conf.Nameservers {
		to := netip.AddrPortFrom(addr, dnsPort)
		if r.IsOwn == nil || !r.IsOwn(to) {
			found.servers = append(found.servers, Upstream{Addr: to})
		}
	}
	return found, nil
}

// watch is the health state of one upstream.
type watch struct {
	next    time.Time
	pause   time.Duration
	busy    atomic.Bool
	down    bool // and logged as down
	looping bool // and logged as looping
}

// maxPause is the longest pause between probes of a server that is down;
// logPause is the pause from which on the failure is logged.
const (
	maxPause = 5 * time.Second
	logPause = time.Second
)

// checkUpstreams checks each upstream.
func (r *route) checkUpstreams(ctx context.Context, watched map[*upstream]*watch, now time.Time, log *slog.Logger) {
	all := *r.upstreams.Load()
	for u := range watched {
		if !slices.Contains(all, u) {
			delete(watched, u)
		}
	}
	for _, u := range all {
		w := watched[u]
		if w == nil {
			w = &watch{pause: checkInterval}
			watched[u] = w
			w.query(ctx, u) // whether it forwards back to this server
		}
		if back := u.loop.loops(); back != w.looping {
			w.looping, w.next = back, now.Add(loopInterval)
			w.logLoop(log, r, u)
		}
		switch {
		case w.looping:
			if !now.Before(w.next) {
				w.next = now.Add(loopInterval)
				w.query(ctx, u)
			}
		case u.down.Load():
			w.probe(ctx, r, u, now, log)
		case w.down:
			log.Info("upstream replies again", "route", r, "upstream", u.Upstream)
			fallthrough
		default:
			w.down, w.pause = false, checkInterval
		}
	}
}

// probe queries an upstream that is down, less and less often.
func (w *watch) probe(ctx context.Context, r *route, u *upstream, now time.Time, log *slog.Logger) {
	if now.Before(w.next) {
		return
	}
	w.next, w.pause = now.Add(w.pause), min(2*w.pause, maxPause)
	if w.pause > logPause && !w.down {
		w.down = true
		log.Warn("upstream is down", "route", r, "upstream", u.Upstream, "err", u.why())
	}
	w.query(ctx, u)
}

// query sends a test query to u in the background, unless one is under way.
func (w *watch) query(ctx context.Context, u *upstream) {
	if !w.busy.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer w.busy.Store(false)
		u.probe(ctx)
	}()
}
