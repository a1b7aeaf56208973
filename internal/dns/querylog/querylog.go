// Package querylog tells of queries and what they were answered: as lines of the
// log, of one in so many, by client, name and code, and to a collector of dnstap
// (https://dnstap.info), all of them. Neither may hold up an answer: what can't
// be told soon is dropped, and counted.
package querylog

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
)

// Config is what a Log is made from.
type Config struct {
	// OneIn has one of so many queries logged, by chance, of those that the
	// other fields let pass; 0 is none.
	OneIn   int
	Clients []netip.Prefix  // all when empty
	Names   []dnsname.Name  // and those below; all when empty
	RCodes  []dnswire.RCode // all when empty
	// Tap is a collector of dnstap.
	Tap Tap
}

// Empty reports whether there is nothing to tell.
func (c *Config) Empty() bool { return c.OneIn == 0 && c.Tap.Address == "" }

// queueLen is how many queries may wait to be told of.
const queueLen = 4096

// Log tells of queries. It may be used by several goroutines at once. What waits
// when its settings change, or before Run runs, is told of in its order.
type Log struct {
	now     atomic.Pointer[settings]
	changed chan struct{} // holds one when Run has not seen the settings
	lines   chan *line
	seen    atomic.Uint64
	dropped atomic.Uint64
}

// settings are a Config, and the collector that it names; nil when it names none.
type settings struct {
	Config
	collector *collector
}

// New makes a Log, which tells nothing before Run.
func New(cfg Config) *Log {
	l := &Log{changed: make(chan struct{}, 1), lines: make(chan *line, queueLen)}
	l.now.Store(new(settings))
	l.Set(cfg)
	return l
}

// Set says what is observed from now on, and where it is told. What waits for a
// collector is still for that one. Set must not be called at once.
func (l *Log) Set(cfg Config) {
	next := &settings{Config: cfg}
	if tap := &cfg.Tap; tap.Address != "" {
		if next.collector = l.now.Load().collector; next.collector == nil || !next.collector.isAt(tap) {
			next.collector = newCollector(tap)
		}
	}
	l.now.Store(next)
	offer(l.changed, struct{}{})
}

// Dropped is how many lines and frames were.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// line is what is logged of a query.
type line struct {
	client  netip.AddrPort
	proto   string
	name    string
	qtype   dnswire.Type
	rcode   dnswire.RCode
	octets  int
	elapsed time.Duration
}

// Observe takes a query and its answer, neither of which it keeps.
func (l *Log) Observe(o *respond.Observation) {
	now := l.now.Load()
	if l.isLogged(&now.Config, o) {
		name, _, err := dnsname.FromWire(append(slices.Clone(o.QName), 0))
		if err == nil {
			l.count(offer(l.lines, &line{
				o.Client.AddrPort(), o.Client.Transport.String(), name.String(),
				o.QType, o.RCode, len(o.Answer), o.Elapsed,
			}))
		}
	}
	if now.collector != nil {
		for _, frame := range now.Tap.frames(o) {
			l.count(offer(now.collector.frames, frame))
		}
	}
}

// offer puts v into a queue, and reports whether there was room.
func offer[T any](queue chan<- T, v T) bool {
	select {
	case queue <- v:
		return true
	default:
		return false
	}
}

// count counts what found no room.
func (l *Log) count(room bool) {
	if !room {
		l.dropped.Add(1)
	}
}

func (l *Log) isLogged(c *Config, o *respond.Observation) bool {
	if c.OneIn == 0 {
		return false
	}
	if len(c.RCodes) > 0 && !slices.Contains(c.RCodes, o.RCode) {
		return false
	}
	if len(c.Clients) > 0 &&
		!slices.ContainsFunc(c.Clients, func(p netip.Prefix) bool { return p.Contains(o.Client.Addr) }) {
		return false
	}
	if len(c.Names) > 0 && !slices.ContainsFunc(c.Names, func(n dnsname.Name) bool { return n.Contains(o.QName) }) {
		return false
	}
	return l.seen.Add(1)%uint64(c.OneIn) == 0
}

// Run tells what is observed, until ctx is done, and then what waits: to a
// collector within some seconds, also to one that is not told of more.
func (l *Log) Run(ctx context.Context, log *slog.Logger) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	var told *collector
	stop := func() {}
	defer func() { stop() }()
	for {
		select {
		case <-l.changed:
			to := l.now.Load().collector
			if to == told {
				continue
			}
			stop()
			told, stop = to, l.start(ctx, &wg, to, log)
		case <-ctx.Done():
			for range len(l.lines) {
				(<-l.lines).log(log)
			}
			return ctx.Err()
		case n := <-l.lines:
			n.log(log)
		}
	}
}

// start tells a collector, if there is one, until stop is called or ctx is done.
func (l *Log) start(ctx context.Context, wg *sync.WaitGroup, to *collector, log *slog.Logger) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	if to != nil {
		wg.Go(func() { l.dropped.Add(to.run(ctx, log)) })
	}
	return stop
}

func (n *line) log(log *slog.Logger) {
	log.Info("query", "client", n.client, "proto", n.proto, "qname", n.name, "qtype", n.qtype,
		"rcode", n.rcode, "octets", n.octets, "elapsed", n.elapsed)
}
