package forward

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/resolvconf"
)

// lookTime is how often a route is looked after.
const lookTime = 250 * time.Millisecond

// readTime is how often its resolv.conf is looked at, and loopTime how often a
// loop, once seen, is looked for.
const (
	readTime = time.Second
	loopTime = 10 * time.Second
)

// keep reads the resolv.conf when it changes, looks for upstreams that are down
// and for loops, until ctx is done.
func (r *route) keep(ctx context.Context, log *slog.Logger) error {
	defer func() {
		for _, u := range *r.upstreams.Load() {
			u.close()
		}
	}()
	ticker := time.NewTicker(lookTime)
	defer ticker.Stop()
	go r.lookForLoop(ctx)
	probes := make(map[*upstream]*probe)
	var read, looked time.Time
	looping := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-ticker.C:
			if r.ResolvConf != "" && now.Sub(read) >= readTime {
				read = now
				if r.reread(log) {
					looked = now
					go r.lookForLoop(ctx)
				}
			}
			r.probe(ctx, probes, now, log)
			if is := r.looping(); is != looping {
				looping, looked = is, now
				r.logLoop(log, is)
			} else if is && now.Sub(looked) >= loopTime {
				looked = now
				r.loop.seen.Store(false)
				go r.lookForLoop(ctx)
			}
		}
	}
}

// reread reads the resolv.conf and tells whether the upstreams are others now.
func (r *route) reread(log *slog.Logger) (changed bool) {
	found, err := r.readResolvConf()
	if err != nil {
		log.Debug("resolv.conf can't be read; upstreams stay", "route", r, "err", err)
		return false
	}
	servers := append(append([]Upstream(nil), r.Upstreams...), found...)
	before := *r.upstreams.Load()
	same := len(before) == len(servers)
	for i := range before {
		same = same && before[i].Upstream == servers[i]
	}
	if same {
		return false
	}
	r.set(servers)
	log.Info("upstreams changed", "route", r, "upstreams", servers)
	return true
}

// dnsPort is that of the servers in a resolv.conf.
const dnsPort = 53

// readResolvConf gives the servers of the file that are not this one.
func (r *Route) readResolvConf() ([]Upstream, error) {
	file, err := os.Open(r.ResolvConf)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	conf, _, err := resolvconf.Parse(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.ResolvConf, err)
	}
	var found []Upstream
	for _, addr := range conf.Nameservers {
		to := netip.AddrPortFrom(addr, dnsPort)
		if r.Own == nil || !r.Own(to) {
			found = append(found, Upstream{Addr: to})
		}
	}
	return found, nil
}

// probe is how an upstream that is down is asked whether it still is.
type probe struct {
	next   time.Time
	pause  time.Duration
	under  atomic.Bool
	logged bool
}

// maxPause is how long a server that is down is left alone at most, and logPause
// from when on it is worth a line.
const (
	maxPause = 5 * time.Second
	logPause = time.Second
)

// probe asks upstreams that are down, less often the longer they are.
func (r *route) probe(ctx context.Context, probes map[*upstream]*probe, now time.Time, log *slog.Logger) {
	for u := range probes {
		if !u.down.Load() {
			if probes[u].logged {
				log.Info("upstream answers again", "route", r, "upstream", u.Upstream)
			}
			delete(probes, u)
		}
	}
	for _, u := range *r.upstreams.Load() {
		if !u.down.Load() {
			continue
		}
		p := probes[u]
		if p == nil {
			p = &probe{pause: lookTime}
			probes[u] = p
		}
		if now.Before(p.next) || p.under.Load() {
			continue
		}
		p.next, p.pause = now.Add(p.pause), min(2*p.pause, maxPause)
		if p.pause > logPause && !p.logged {
			p.logged = true
			log.Warn("upstream is down", "route", r, "upstream", u.Upstream)
		}
		p.under.Store(true)
		go func() {
			defer p.under.Store(false)
			ctx, cancel := context.WithTimeout(ctx, maxPatience)
			defer cancel()
			// Whatever it answers, it answers; unless the question comes back.
			_, _ = u.ask(ctx, r.loop.question())
		}()
	}
}
