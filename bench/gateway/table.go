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

// result chooses one of a sample's results.
type result func(*sample) *calls.Result

func small(s *sample) *calls.Result  { return s.small }
func large(s *sample) *calls.Result  { return s.large }
func steady(s *sample) *calls.Result { return s.steady }

// of returns a figure of a result.
func (choose result) of(number func(*calls.Result) float64) figure {
	return func(s *sample) (float64, bool) {
		r := choose(s)
		if r == nil {
			return 0, false
		}
		return number(r), true
	}
}

func p50(r *calls.Result) float64 { return microseconds(r.P50) }
func p99(r *calls.Result) float64 { return microseconds(r.P99) }

func idle(s *sample) (float64, bool)   { return s.idle, s.memory > 0 }
func memory(s *sample) (float64, bool) { return s.memory, s.memory > 0 }

// perSecond returns thousands of requests per second.
func perSecond(r *calls.Result) float64 {
	const thousand = 1000
	return float64(r.Answered) / r.Elapsed.Seconds() / thousand
}

// perCPUSecond returns the requests for a second of processor time.
func perCPUSecond(r *calls.Result) float64 { return float64(r.Answered) / r.ServerTime.Seconds() }

// markdown returns the tables.
func (b *bench) markdown() string {
	var s strings.Builder
	for _, e := range b.groups[0].entrants {
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
	for _, g := range b.groups {
		g.write(&s)
	}
	b.writeChanges(&s)
	b.writeHosts(&s)
	return s.String()
}

// goal is a limit for Portolan's figure, or for its ratio to a peer's.
type goal struct {
	what  string
	of    figure
	peer  string // "" for none
	limit rig.Limit
}

func plainGoals() []goal {
	requests, latency := result(small).of(perCPUSecond), result(steady).of(p99)
	return []goal{
		{"requests per CPU-second, divided by ReverseProxy's", requests, reverse, rig.AtLeast(2.4)},
		{"by Caddy's", requests, caddy, rig.AtLeast(2.5)},
		{"by nginx'", requests, nginx, rig.AtLeast(.5)},
		{"p99 at a fixed rate, divided by nginx'", latency, nginx, rig.AtMost(2)},
		{"memory of an idle connection, KiB", idle, "", rig.AtMost(6)},
	}
}

func rpcGoals() []goal {
	unary := result(small).of(perCPUSecond)
	return []goal{{"calls of gRPC per CPU-second, divided by ReverseProxy's", unary, reverse, rig.AtLeast(1.7)}}
}

// writeGoals writes what has a goal and was measured.
func (b *bench) writeGoals(s *strings.Builder) {
	s.WriteString("\n\n| Portolan | | goal | |\n|---|---|---|---|\n")
	for _, g := range b.groups {
		g.writeGoals(s)
	}
	of := func(what string, all []*changed, figure func(*changed) float64, most float64) {
		if spread, ok := rig.OverAll(all, of(figure)); ok {
			fmt.Fprintf(s, "| %s | %s | ≤ %s | %s |\n", what, spread, rig.Short(most), rig.Met(spread.Median <= most))
		}
	}
	of(fmt.Sprintf("resident memory with %d routes, MiB", b.routes), b.many, (*changed).all, 60)
	of(
		fmt.Sprintf("change of a route until a request follows it, with %d routes, p99, ms", b.routes),
		b.many,
		quantile(.99),
		10,
	)
}

// of returns a figure that each has.
func of[T any](figure func(T) float64) func(T) (float64, bool) {
	return func(one T) (float64, bool) { return figure(one), true }
}

func (h *holds) all() float64    { return h.resident }
func (h *holds) noFile() float64 { return h.own }

// quantile returns a quantile of the changes' times, in ms.
func quantile(q float64) func(*changed) float64 {
	return func(c *changed) float64 { return float64(rig.Quantile(c.took, q)) / float64(time.Millisecond) }
}

// writeGoals writes the goals of a group.
func (g *group) writeGoals(s *strings.Builder) {
	for _, goal := range g.goals {
		spread, ok := rig.OverAll(g.samples[portolan], goal.of)
		cell := spread.String()
		if goal.peer != "" {
			spread, ok = rig.Ratio(g.samples[portolan], g.samples[goal.peer], goal.of)
			cell = rig.RatioCell(spread)
		}
		if ok {
			fmt.Fprintf(s, "| %s | %s | %s | %s |\n", goal.what, cell, goal.limit, rig.Met(goal.limit.Met(spread.Median)))
		}
	}
}

// column is one of the table of a group.
type column struct {
	head string
	cell cell // nil for the figure divided by Portolan's
	of   figure
}

// cell is rig.SpreadCell or rig.MedianCell.
type cell func(all []*sample, of func(*sample) (float64, bool)) string

// ratio is the head of columns without a cell.
const ratio = "it/Portolan"

func (s *settings) plainColumns() []column {
	return []column{
		{"CPU per request, µs", rig.SpreadCell[*sample], result(small).of(cost)}, {ratio, nil, result(small).of(cost)},
		{"requests/s, thousands", rig.SpreadCell[*sample], result(small).of(perSecond)},
		{"CPU of 1 MiB, µs", rig.SpreadCell[*sample], result(large).of(cost)}, {ratio, nil, result(large).of(cost)},
		{fmt.Sprintf("p50 at %d/s, µs", s.rate), rig.SpreadCell[*sample], result(steady).of(p50)},
		{"p99, µs", rig.SpreadCell[*sample], result(steady).of(p99)},
		{"MiB", rig.MedianCell[*sample], memory}, {"KiB per idle connection", rig.MedianCell[*sample], idle},
	}
}

func secureColumns() []column {
	return []column{
		{"full handshakes, each with a request, per CPU-second", rig.SpreadCell[*sample], result(small).of(perCPUSecond)},
		{ratio, nil, result(small).of(perCPUSecond)},
		{"MiB per CPU-second", rig.SpreadCell[*sample], result(large).of(perCPUSecond)},
		{ratio, nil, result(large).of(perCPUSecond)},
		{"MiB", rig.MedianCell[*sample], memory}, {"KiB per idle connection", rig.MedianCell[*sample], idle},
	}
}

func rpcColumns() []column {
	unary, messages := result(small).of(perCPUSecond), result(large).of(perCPUSecond)
	return []column{
		{"calls per CPU-second", rig.SpreadCell[*sample], unary}, {ratio, nil, unary},
		{"calls/s, thousands", rig.SpreadCell[*sample], result(small).of(perSecond)},
		{"messages of a stream per CPU-second", rig.SpreadCell[*sample], messages}, {ratio, nil, messages},
		{"messages/s, thousands", rig.SpreadCell[*sample], result(large).of(perSecond)},
	}
}

func tcpColumns() []column {
	octets := result(large).of(perCPUSecond)
	return []column{
		{"MiB per CPU-second", rig.SpreadCell[*sample], octets}, {ratio, nil, octets},
		{"MiB/s, thousands", rig.SpreadCell[*sample], result(large).of(perSecond)},
	}
}

// write writes the table of a group.
func (g *group) write(s *strings.Builder) {
	fmt.Fprintf(s, "\n| %s |", g.name)
	for _, c := range g.columns {
		fmt.Fprintf(s, " %s |", c.head)
	}
	fmt.Fprintf(s, "\n|---|%s\n", strings.Repeat("---|", len(g.columns)))
	for _, e := range g.entrants {
		fmt.Fprintf(s, "| %s |", e.name)
		for _, c := range g.columns {
			cell := g.ratio(e, c.of)
			if c.cell != nil {
				cell = c.cell(g.samples[e.name], c.of)
			}
			fmt.Fprintf(s, " %s |", cell)
		}
		s.WriteString("\n")
	}
}

// ratio returns the cell of a contender's figure divided by Portolan's.
func (g *group) ratio(e *entrant, of figure) string {
	if e.name == portolan {
		return ""
	}
	spread, ok := rig.Ratio(g.samples[e.name], g.samples[portolan], of)
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
		{"resident memory, MiB", (*changed).all}, {"of it, what is of no file", (*changed).noFile},
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

func (b *bench) writeHosts(s *strings.Builder) {
	if len(b.manyHosts) == 0 {
		return
	}
	fmt.Fprintf(
		s, "\n| certificates, each in a Secret and of an HTTPS listener of its own | %d | %d |\n|---|---|---|\n",
		fewCertificates, b.hosts,
	)
	for _, row := range []struct {
		what   string
		figure func(*secured) float64
	}{
		{"from start until ready, s", func(h *secured) float64 { return h.ready.Seconds() }},
		{"resident memory, MiB", (*secured).all}, {"of it, what is of no file", (*secured).noFile},
	} {
		few, many := rig.SpreadCell(b.fewHosts, of(row.figure)), rig.SpreadCell(b.manyHosts, of(row.figure))
		fmt.Fprintf(s, "| %s | %s | %s |\n", row.what, few, many)
	}
}
