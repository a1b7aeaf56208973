// Package querylog reports queries and their answers: to the log, sampled and filtered
// by client, name and response code, and to a dnstap collector (https://dnstap.info),
// all of them. Neither delays an answer: what does not fit into a queue is dropped and
// counted.
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
	"portolan.dev/portolan/internal/dns/zone"
)

// Config configures a Log.
type Config struct {
	// OneIn logs one in this many of the queries that match the other fields; 0 logs
	// none.
	OneIn   int
	Clients []netip.Prefix  // all when empty
	Names   []dnsname.Name  // and names below; all when empty
	RCodes  []dnswire.RCode // all when empty
	// Tap is the dnstap collector.
	Tap Tap
}

// Empty reports whether neither the log nor dnstap is configured.
func (c *Config) Empty() bool { return c.OneIn == 0 && c.Tap.Address == "" }

// queueLen is the number of lines or frames that a queue holds.
const queueLen = 4096

// Log reports queries. It is safe for concurrent use. Queries that were observed before
// a change of settings, or before Run, are reported in order.
type Log struct {
	now     atomic.Pointer[settings]
	changed chan struct{} // has an element if Run has not seen the settings
	lines   chan *line
	seen    atomic.Uint64
	dropped atomic.Uint64
}

// settings are a Config and the collector that it names; nil if it names none.
type settings struct {
	Config
	collector *collector
}

// New returns a Log, which reports nothing before Run.
func New(cfg Config) *Log {
	l := &Log{changed: make(chan struct{}, 1), lines: make(chan *line, queueLen)}
	l.now.Store(new(settings))
	l.Set(cfg)
	return l
}

// Set replaces the settings. Queued frames still go to the previous collector. Set must
// not be called concurrently.
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

// Dropped returns the number of dropped lines and frames.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// line is the log line of a query.
type line struct {
	client  netip.AddrPort
	proto   string
	name    string
	qtype   dnswire.Type
	rcode   dnswire.RCode
	ede     *zone.EDE
	octets  int
	elapsed time.Duration
}

// Observe queues the reports of a query and its answer. It does not retain o.
func (l *Log) Observe(o *respond.Observation) {
	now := l.now.Load()
	if l.isLogged(&now.Config, o) {
		name, _, err := dnsname.FromWire(append(slices.Clone(o.QName), 0))
		if err == nil {
			l.count(offer(l.lines, &line{
				o.Client.AddrPort(), o.Client.Transport.String(), name.String(),
				o.QType, o.RCode, o.EDE, len(o.Answer), o.Elapsed,
			}))
		}
	}
	if now.collector != nil {
		for _, frame := range now.Tap.frames(o) {
			l.count(offer(now.collector.frames, frame))
		}
	}
}

// offer adds v to a queue and reports whether there was room.
func offer[T any](queue chan<- T, v T) bool {
	select {
	case queue <- v:
		return true
	default:
		return false
	}
}

// count counts a dropped report if there was no room.
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

// Run reports observed queries until ctx is done, and then sends what is queued. It
// takes at most some seconds to finish with a collector, including one that the
// settings no longer name.
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

// start sends frames to a collector, if there is one, until stop is called or ctx is
// done.
func (l *Log) start(ctx context.Context, wg *sync.WaitGroup, to *collector, log *slog.Logger) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	if to != nil {
		wg.Go(func() { l.dropped.Add(to.run(ctx, log)) })
	}
	return stop
}

func (n *line) log(log *slog.Logger) {
	attrs := []any{
		"client", n.client, "proto", n.proto, "qname", n.name, "qtype", n.qtype, "rcode", n.rcode, "octets", n.octets,
		"elapsed", n.elapsed,
	}
	if n.ede != nil {
		attrs = append(attrs, "reason", n.ede.Why().String(), "why", n.ede.Text)
	}
	log.Info("query", attrs...)
}
