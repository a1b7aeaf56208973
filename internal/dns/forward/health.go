package forward

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/resolvconf"
)

// lookTime is how often a route is looked after, readTime how often its
// resolv.conf is read, and loopTime how often an upstream that leads back here is
// asked whether it still does.
const (
	lookTime = 250 * time.Millisecond
	readTime = time.Second
	loopTime = 10 * time.Second
)

// keep reads the resolv.conf when it changes, and looks after upstreams that are
// new, down, or lead back here, until ctx is done.
func (r *route) keep(ctx context.Context, log *slog.Logger) error {
	ticker := time.NewTicker(lookTime)
	defer ticker.Stop()
	watched := make(map[*upstream]*watch)
	var read time.Time
	for {
		now := time.Now()
		if r.ResolvConf != "" && now.Sub(read) >= readTime {
			read = now
			r.reread(log)
		}
		r.lookAfter(ctx, watched, now, log)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// reread reads the resolv.conf, and replaces the upstreams when they are others
// now. A file without any, which may be half written, changes nothing.
func (r *route) reread(log *slog.Logger) {
	found, listed, err := r.readResolvConf()
	if err == nil && listed == 0 {
		err = fmt.Errorf("%s: no nameserver", r.ResolvConf)
	}
	if err != nil {
		log.Debug("resolv.conf can't be used; upstreams stay", "route", r, "err", err)
		return
	}
	servers := slices.Concat(r.Upstreams, found)
	before := *r.upstreams.Load()
	if slices.EqualFunc(before, servers, func(u *upstream, s Upstream) bool { return u.Upstream == s }) {
		return
	}
	r.set(servers)
	log.Info("upstreams changed", "route", r, "upstreams", servers)
}

// dnsPort is that of the servers in a resolv.conf.
const dnsPort = 53

// readResolvConf gives the servers of the file that are not this one, and tells
// how many there are with it.
func (r *Route) readResolvConf() (found []Upstream, listed int, err error) {
	file, err := os.Open(r.ResolvConf)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	conf, _, err := resolvconf.Parse(file)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", r.ResolvConf, err)
	}
	for _, addr := range conf.Nameservers {
		to := netip.AddrPortFrom(addr, dnsPort)
		if r.IsOwn == nil || !r.IsOwn(to) {
			found = append(found, Upstream{Addr: to})
		}
	}
	return found, len(conf.Nameservers), nil
}

// watch is what is known of an upstream that is looked after.
type watch struct {
	next    time.Time
	pause   time.Duration
	under   atomic.Bool
	down    bool // and that was logged
	looping bool // likewise
}

// maxPause is how long a server that is down is left alone at most, and logPause
// from when on it is worth a line.
const (
	maxPause = 5 * time.Second
	logPause = time.Second
)

// lookAfter looks after each upstream.
func (r *route) lookAfter(ctx context.Context, watched map[*upstream]*watch, now time.Time, log *slog.Logger) {
	all := *r.upstreams.Load()
	for u := range watched {
		if !slices.Contains(all, u) {
			delete(watched, u)
		}
	}
	for _, u := range all {
		w := watched[u]
		if w == nil {
			w = &watch{pause: lookTime}
			watched[u] = w
			w.ask(ctx, u) // whether it leads back here
		}
		if back := u.loop.leadsBack(); back != w.looping {
			w.looping, w.next = back, now.Add(loopTime)
			u.logLoop(log, r, back)
		}
		switch {
		case w.looping:
			if !now.Before(w.next) {
				w.next = now.Add(loopTime)
				w.ask(ctx, u)
			}
		case u.down.Load():
			w.probe(ctx, r, u, now, log)
		case w.down:
			log.Info("upstream answers again", "route", r, "upstream", u.Upstream)
			fallthrough
		default:
			w.down, w.pause = false, lookTime
		}
	}
}

// probe asks an upstream that is down, less often the longer it is.
func (w *watch) probe(ctx context.Context, r *route, u *upstream, now time.Time, log *slog.Logger) {
	if now.Before(w.next) {
		return
	}
	w.next, w.pause = now.Add(w.pause), min(2*w.pause, maxPause)
	if w.pause > logPause && !w.down {
		w.down = true
		log.Warn("upstream is down", "route", r, "upstream", u.Upstream, "err", u.why())
	}
	w.ask(ctx, u)
}

// ask asks u something, unless it is being asked.
func (w *watch) ask(ctx context.Context, u *upstream) {
	if !w.under.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer w.under.Store(false)
		u.look(ctx)
	}()
}
