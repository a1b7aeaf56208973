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

// loop is how it is noticed that an upstream asks this server again: it is asked
// for names that nobody else can know, each of them once, so that no cache on the
// way answers.
type loop struct {
	labels []byte // what the names are below; nil where the suffix leaves no room

	mu    sync.Mutex
	asked int
	seen  int // the highest number that came back
	back  bool
}

// tokenLen is the length of what nobody else can know, in octets.
const tokenLen = 16

func newLoop(suffix dnsname.Name) loop {
	var raw [tokenLen]byte
	for i := range raw {
		raw[i] = byte(rand.Uint32())
	}
	labels := dnsname.AppendLabel(nil, hex.EncodeToString(raw[:]))
	labels = append(dnsname.AppendLabel(labels, "portolan-loop"), suffix.WireLabels()...)
	const room = 1 + 20 // a number's label
	if room+len(labels)+1 > dnsname.MaxWire {
		return loop{}
	}
	return loop{labels: labels}
}

// question gives a question for the next name, and its number. Where there is no
// room for names it is one for the root, which shows whether somebody answers.
func (l *loop) question() (q cache.Key, number int) {
	if l.labels == nil {
		return cache.Key{Type: dnswire.TypeNS}, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	name := append(dnsname.AppendLabel(nil, strconv.Itoa(l.asked)), l.labels...)
	return cache.Key{Name: name, Type: dnswire.TypeTXT}, l.asked
}

// sees notes a name that came back, and tells whether it is one.
func (l *loop) sees(name []byte) bool {
	if l.labels == nil || len(name) <= len(l.labels) || string(name[len(name)-len(l.labels):]) != string(l.labels) {
		return false
	}
	number, err := strconv.Atoi(string(name[1 : 1+name[0]]))
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.back = max(l.seen, number), true
	return true
}

// answered notes that the name of that number was answered: if it did not come
// back, the upstream does not lead here any more.
func (l *loop) answered(number int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen < number {
		l.back = false
	}
}

// leadsBack tells whether the upstream asks this server again.
func (l *loop) leadsBack() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.back
}

// look asks u whether it answers, and leads back here.
func (u *upstream) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxPatience)
	defer cancel()
	q, number := u.loop.question()
	if _, err := u.ask(ctx, q); err == nil {
		u.loop.answered(number)
	}
}

// seesLoop notes that a name came back that only an upstream of this route was
// asked for.
func (r *route) seesLoop(name []byte) bool {
	return slices.ContainsFunc(*r.upstreams.Load(), func(u *upstream) bool { return u.loop.sees(name) })
}

// looping tells whether all upstreams lead back here, if there are any.
func (r *route) looping() bool {
	all := *r.upstreams.Load()
	return len(all) > 0 && !slices.ContainsFunc(all, func(u *upstream) bool { return !u.loop.leadsBack() })
}

func (u *upstream) logLoop(log *slog.Logger, r *route, back bool) {
	if back {
		log.Error("an upstream server asks this server again, in a circle; it is not asked", "route", r, "upstream", u.Upstream)
		return
	}
	log.Info("the circle of servers is gone", "route", r, "upstream", u.Upstream)
}
