package forward

import (
	"context"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// loop detects that an upstream forwards queries back to this server. It sends
// the upstream names that contain a random token, each name only once, so that
// no cache answers them, and watches for queries for them.
type loop struct {
	labels []byte // the suffix of the names; nil if the route's suffix is too long

	mu       sync.Mutex
	sent     int
	received int // the highest number received
	isLoop   bool
}

// tokenLen is the length of the random token, in octets.
const tokenLen = 16

func newLoop(suffix dnsname.Name) loop {
	var raw [tokenLen]byte
	for i := range raw {
		raw[i] = byte(rand.Uint32())
	}
	labels := dnsname.AppendLabel(nil, hex.EncodeToString(raw[:]))
	labels = append(dnsname.AppendLabel(labels, "portolan-loop"), suffix.WireLabels()...)
	const room = 1 + 20 // the label with the number
	if room+len(labels)+1 > dnsname.MaxWire {
		return loop{}
	}
	return loop{labels: labels}
}

// question returns the question for the next name and the name's number. If the
// route's suffix is too long for names, the question is for the root, which at
// least shows whether the upstream replies.
func (l *loop) question() (q cache.Key, number int) {
	if l.labels == nil {
		return cache.Key{Type: dnswire.TypeNS}, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	name := append(dnsname.AppendLabel(nil, strconv.Itoa(l.sent)), l.labels...)
	return cache.Key{Name: name, Type: dnswire.TypeTXT}, l.sent
}

// receive reports whether name is one of loop's names, and records that it came
// back.
func (l *loop) receive(name []byte) bool {
	if l.labels == nil || len(name) <= len(l.labels) || string(name[len(name)-len(l.labels):]) != string(l.labels) {
		return false
	}
	number, err := strconv.Atoi(string(name[1 : 1+name[0]]))
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.received, l.isLoop = max(l.received, number), true
	return true
}

// answered records that the name with that number was answered. If the name did
// not come back, the upstream does not loop any more.
func (l *loop) answered(number int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.received < number {
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
	q, number := u.loop.question()
	if _, err := u.query(ctx, q); err == nil {
		u.loop.answered(number)
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

func (u *upstream) logLoop(log *slog.Logger, r *route, back bool) {
	if back {
		log.Error("upstream forwards queries back to this server (forwarding loop); it is not used", "route", r,
			"upstream", u.Upstream)
		return
	}
	log.Info("forwarding loop is gone", "route", r, "upstream", u.Upstream)
}
