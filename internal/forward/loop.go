package forward

import (
	"context"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"

	"portolan.dev/portolan/internal/cache"
	"portolan.dev/portolan/internal/dnsname"
	"portolan.dev/portolan/internal/dnswire"
)

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

func (r *route) logLoop(log *slog.Logger, looping bool) {
	if looping {
		log.Error("an upstream server asks this server again, in a circle; queries of this route are answered SERVFAIL", "route", r, "upstreams", *r.upstreams.Load())
		return
	}
	log.Info("the circle of servers is gone", "route", r)
}
