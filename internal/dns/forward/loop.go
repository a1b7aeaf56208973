package forward

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"slices"
	"sync"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// loop detects that an upstream forwards queries back to this server. It sends
// the upstream names that contain a random token, each name only once, so that
// no cache answers them and nobody else knows them, and watches for queries for
// them.
type loop struct {
	labels []byte // the suffix of the names; nil if the route's suffix is too long

	mu     sync.Mutex
	probes [keptProbes]*probe // the last ones
	sent   int
	isLoop bool
}

// probe is a name that was sent to the upstream.
type probe struct {
	token    string
	returned bool
}

// keptProbes is how many probes may still come back.
const keptProbes = 8

// tokenLen is the length of a random token, in octets.
const tokenLen = 16

func newLoop(suffix dnsname.Name) loop {
	labels := append(dnsname.AppendLabel(nil, "portolan-loop"), suffix.WireLabels()...)
	const room = 1 + 2*tokenLen // the label with the token
	if room+len(labels)+1 > dnsname.MaxWire {
		return loop{}
	}
	return loop{labels: labels}
}

// question returns the question for a new name, and the probe. If the route's
// suffix is too long for names, the question is for the root, which at least
// shows whether the upstream replies.
func (l *loop) question() (cache.Key, *probe) {
	if l.labels == nil {
		return cache.Key{Type: dnswire.TypeNS}, new(probe)
	}
	var raw [tokenLen]byte
	_, _ = rand.Read(raw[:]) // never fails
	made := &probe{token: hex.EncodeToString(raw[:])}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probes[l.sent%keptProbes] = made
	l.sent++
	return cache.Key{Name: append(dnsname.AppendLabel(nil, made.token), l.labels...), Type: dnswire.TypeTXT}, made
}

// receive reports whether name is one of loop's last names, and records that it
// came back.
func (l *loop) receive(name []byte) bool {
	if l.labels == nil || len(name) <= len(l.labels) || string(name[len(name)-len(l.labels):]) != string(l.labels) {
		return false
	}
	token := string(name[1 : 1+name[0]])
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.probes[:], func(p *probe) bool { return p != nil && p.token == token })
	if i < 0 {
		return false
	}
	l.probes[i].returned, l.isLoop = true, true
	return true
}

// answered records that a probe was answered. If it did not come back, the
// upstream does not loop any more.
func (l *loop) answered(p *probe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !p.returned {
		l.isLoop = false
	}
}

// loops reports whether the upstream forwards queries back to this server.
func (l *loop) loops() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isLoop
}

// probe queries u to find out whether it replies and whether it loops.
func (u *upstream) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxPatience)
	defer cancel()
	q, sent := u.loop.question()
	if _, err := newAttempt(u).query(ctx, q); err == nil {
		u.loop.answered(sent)
	}
}

// receivesProbe reports whether name is a probe that was sent to an upstream of
// r, and records that it came back.
func (r *route) receivesProbe(name []byte) bool {
	return slices.ContainsFunc(*r.upstreams.Load(), func(u *upstream) bool { return u.loop.receive(name) })
}

// allLoop reports whether the route has upstreams and all of them loop.
func (r *route) allLoop() bool {
	all := *r.upstreams.Load()
	return len(all) > 0 && !slices.ContainsFunc(all, func(u *upstream) bool { return !u.loop.loops() })
}

// logLoop logs that a forwarding loop was found or is gone.
func (w *watch) logLoop(log *slog.Logger, r *route, u *upstream) {
	if w.looping {
		log.Error("upstream forwards queries back to this server (forwarding loop); it is not used", "route", r,
			"upstream", u.Upstream)
		return
	}
	log.Info("forwarding loop is gone", "route", r, "upstream", u.Upstream)
}
