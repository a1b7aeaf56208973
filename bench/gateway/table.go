package gateway

import (
	"fmt"
	"strings"
	"time"

	"portolan.dev/portolan/bench/gateway/calls"
	"portolan.dev/portolan/bench/rig"
)

// figure is one number of a sample; ok is false if the sample has none.
type figure func(*sample) (number float64, ok bool)

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// cost returns the processor time of a request, in µs.
func cost(r *calls.Result) float64 { return microseconds(r.ServerTime) / float64(r.Answered) }

func smallCost(s *sample) (float64, bool) { return cost(s.small), true }
func largeCost(s *sample) (float64, bool) { return cost(s.large), true }
func p50(s *sample) (float64, bool)       { return microseconds(s.steady.P50), true }
func p99(s *sample) (float64, bool)       { return microseconds(s.steady.P99), true }
func idle(s *sample) (float64, bool)      { return s.idle, s.memory > 0 }
func memory(s *sample) (float64, bool)    { return s.memory, s.memory > 0 }

// perSecond returns thousands of requests per second.
func perSecond(s *sample) (float64, bool) {
	const thousand = 1000
	return float64(s.small.Answered) / s.small.Elapsed.Seconds() / thousand, true
}

// inverse returns the inverse of a figure: of a cost, the requests for it.
func inverse(f figure) figure {
	return func(s *sample) (float64, bool) {
		n, ok := f(s)
		return 1 / n, ok
	}
}

// markdown returns the tables.
func (b *bench) markdown() string {
	var s strings.Builder
	for _, e := range b.entrants {
		fmt.Fprintf(&s, "%s, ", strings.TrimSpace(e.name+" "+e.version))
	}
	fmt.Fprintf(&s, "each on one processor, %d rounds of %s, medians (least to most); ", b.rounds, b.duration)
	fmt.Fprintf(&s, "%d connections, GET and a body of 1 KiB. %s;", b.connections, b.machine)
	if len(b.others) > 0 {
		const percent = 100
		o := rig.Over(b.others)
		fmt.Fprintf(&s, " processors in use by others before each round: %.0f%% (%.0f%% to %.0f%%).",
			percent*o.Median, percent*o.Least, percent*o.Most)
	}
	b.writeGoals(&s)
	b.writeContenders(&s)
	b.writeChanges(&s)
	return s.String()
}

// goal is a limit for Portolan's figure, or for its ratio to a peer's.
type goal struct {
	what  string
	of    figure
	peer  string // "" for none
	limit rig.Limit
}

func goals() []goal {
	requests, latency := inverse(smallCost), figure(p99)
	return []goal{
		{"requests per CPU-second, divided by ReverseProxy's", requests, reverse, rig.AtLeast(2.4)},
		{"by Caddy's", requests, caddy, rig.AtLeast(2.5)},
		{"by nginx'", requests, nginx, rig.AtLeast(.5)},
		{"p99 at a fixed rate, divided by nginx'", latency, nginx, rig.AtMost(2)},
		{"memory of an idle connection, KiB", idle, "", rig.AtMost(6)},
	}
}

// writeGoals writes what has a goal and was measured.
func (b *bench) writeGoals(s *strings.Builder) {
	s.WriteString("\n\n| Portolan | | goal | |\n|---|---|---|---|\n")
	for _, g := range goals() {
		spread, ok := rig.OverAll(b.samples[portolan], g.of)
		cell := spread.String()
		if g.peer != "" {
			spread, ok = rig.Ratio(b.samples[portolan], b.samples[g.peer], g.of)
			cell = rig.RatioCell(spread)
		}
		if ok {
			fmt.Fprintf(s, "| %s | %s | %s | %s |\n", g.what, cell, g.limit, rig.Met(g.limit.Met(spread.Median)))
		}
	}
	of := func(what string, all []*changed, figure func(*changed) float64, most float64) {
		if spread, ok := rig.OverAll(all, of(figure)); ok {
			fmt.Fprintf(s, "| %s | %s | ≤ %s | %s |\n", what, spread, rig.Short(most), rig.Met(spread.Median <= most))
		}
	}
	of(fmt.Sprintf("resident memory with %d routes, MiB", b.routes), b.many, resident, 60)
	of(
		fmt.Sprintf("change of a route until a request follows it, with %d routes, p99, ms", b.routes),
		b.many,
		quantile(.99),
		10,
	)
}

// of returns a figure that each has.
func of(figure func(*changed) float64) func(*changed) (float64, bool) {
	return func(c *changed) (float64, bool) { return figure(c), true }
}

func resident(c *changed) float64 { return c.resident }
func own(c *changed) float64      { return c.own }

// quantile returns a quantile of the changes' times, in ms.
func quantile(q float64) func(*changed) float64 {
	return func(c *changed) float64 { return float64(rig.Quantile(c.took, q)) / float64(time.Millisecond) }
}

func (b *bench) writeContenders(s *strings.Builder) {
	fmt.Fprintf(
		s,
		"\n| | CPU per request, µs | it/Portolan | requests/s, thousands | CPU of 1 MiB, µs | it/Portolan | p50 at %d/s, µs "+
			"| p99, µs | MiB | KiB per idle connection |\n|---|---|---|---|---|---|---|---|---|---|\n",
		b.rate,
	)
	for _, e := range b.entrants {
		all := b.samples[e.name]
		fmt.Fprintf(s, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", e.name,
			rig.SpreadCell(all, smallCost), b.ratio(e, smallCost), rig.SpreadCell(all, perSecond),
			rig.SpreadCell(all, largeCost), b.ratio(e, largeCost), rig.SpreadCell(all, p50), rig.SpreadCell(all, p99),
			rig.MedianCell(all, memory), rig.MedianCell(all, idle))
	}
}

// ratio returns the cell of a contender's figure divided by Portolan's.
func (b *bench) ratio(e *entrant, of figure) string {
	if e.name == portolan {
		return ""
	}
	spread, ok := rig.Ratio(b.samples[e.name], b.samples[portolan], of)
	if !ok {
		return ""
	}
	return rig.RatioCell(spread)
}

func (b *bench) writeChanges(s *strings.Builder) {
	if len(b.many) == 0 {
		return
	}
	fmt.Fprintf(
		s,
		"\n| HTTPRoutes, each with a host and a Service of two endpoints | %d | %d |\n|---|---|---|\n",
		fewRoutes,
		b.routes,
	)
	for _, row := range []struct {
		what   string
		figure func(*changed) float64
	}{
		{"change until a request follows it, p50, ms", quantile(.5)}, {"p99, ms", quantile(.99)},
		{"resident memory, MiB", resident}, {"of it, what is of no file", own},
	} {
		fmt.Fprintf(
			s,
			"| %s | %s | %s |\n",
			row.what,
			rig.SpreadCell(b.few, of(row.figure)),
			rig.SpreadCell(b.many, of(row.figure)),
		)
	}
}
