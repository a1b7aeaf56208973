package forward

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/cache"
	"portolan.dev/portolan/internal/dnsname"
	"portolan.dev/portolan/internal/dnswire"
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

func (r *route) logLoop(log *slog.Logger, looping bool) {
	if looping {
		log.Error("an upstream server asks this server again, in a circle; queries of this route are answered SERVFAIL", "route", r, "upstreams", *r.upstreams.Load())
		return
	}
	log.Info("the circle of servers is gone", "route", r)
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

// loop is how it is noticed that an upstream asks this server again: with a name
// that nobody else can know.
type loop struct {
	token string // the name's first label
	name  []byte // in wire form, without the closing zero octet
	seen  atomic.Bool
	is    atomic.Bool
}

// tokenLen is the length of the token, in octets.
const tokenLen = 16

func (l *loop) init(suffix dnsname.Name) {
	var raw [tokenLen]byte
	for i := range raw {
		raw[i] = byte(rand.Uint32())
	}
	l.token = hex.EncodeToString(raw[:])
	labels := []string{l.token, "portolan-loop"}
	for _, label := range labels {
		l.name = dnsname.AppendLabel(l.name, label)
	}
	l.name = append(l.name, suffix.WireLabels()...)
	if len(l.name)+1 > dnsname.MaxWire {
		l.name = nil // the suffix is so long that there is no room
	}
}

// question asks for the name.
func (l *loop) question() cache.Question {
	return cache.Question{Name: l.name, Type: dnswire.TypeTXT}
}

// seesLoop notes that the name came back that only this route asks for.
func (r *route) seesLoop(name []byte) bool {
	if r.loop.name == nil || string(name) != string(r.loop.name) {
		return false
	}
	r.loop.seen.Store(true)
	r.loop.is.Store(true)
	return true
}

// looping tells whether the route leads back to this server.
func (r *route) looping() bool { return r.loop.is.Load() }

// lookForLoop asks each upstream for the name, and forgets a loop that is gone.
func (r *route) lookForLoop(ctx context.Context) {
	if r.loop.name == nil {
		return
	}
	answered := false
	for _, u := range *r.upstreams.Load() {
		ctx, cancel := context.WithTimeout(ctx, maxPatience)
		_, err := u.ask(ctx, r.loop.question())
		cancel()
		answered = answered || err == nil
	}
	if answered && !r.loop.seen.Load() {
		r.loop.is.Store(false)
	}
}

// errBadUpstream is wrapped by ParseUpstream.
var errBadUpstream = errors.New("not a server, such as 10.0.0.2, 10.0.0.2:5353, tcp://10.0.0.2, tls://9.9.9.9#dns.quad9.net or https://dns.quad9.net/dns-query@9.9.9.9")

// ParseUpstream reads a server as String writes it; a port may be left out, and
// the path of HTTPS.
func ParseUpstream(s string) (Upstream, error) {
	u, rest, port := Upstream{}, s, uint16(dnsPort)
	for prefix, transport := range map[string]Transport{"udp://": UDP, "dns://": UDP, "tcp://": TCP, "tls://": TLS, "https://": HTTPS} {
		if after, ok := strings.CutPrefix(s, prefix); ok {
			u.Transport, rest = transport, after
		}
	}
	switch u.Transport {
	case TLS:
		port = 853
		rest, u.ServerName, _ = strings.Cut(rest, "#")
	case HTTPS:
		port = 443
		url, at, ok := strings.Cut(rest, "@")
		host, path, _ := strings.Cut(url, "/")
		u.Path = "/" + path
		if path == "" {
			u.Path = "/dns-query"
		}
		if rest = host; ok {
			u.ServerName, rest = host, at
		}
	case UDP, TCP:
	}
	if addr, err := netip.ParseAddr(strings.Trim(rest, "[]")); err == nil {
		u.Addr = netip.AddrPortFrom(addr.Unmap(), port)
		return u, nil
	}
	addr, err := netip.ParseAddrPort(rest)
	if err != nil || addr.Port() == 0 {
		return u, fmt.Errorf("%q is %w", s, errBadUpstream)
	}
	u.Addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	return u, nil
}
