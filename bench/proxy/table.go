package proxy

import (
	"fmt"
	"strings"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// row is one line of the table.
type row struct {
	what string
	of   func(*result) (float64, bool)
	// most is the highest allowed number of Portolan; nil is none. ratio is that of Portolan's
	// number divided by either kube-proxy's; 0 is none.
	most  *float64
	ratio float64
	// at is the size that has the goals; the zero size stands for all.
	at size
}

// figure returns a figure that each result has.
func figure(of func(*result) float64) func(*result) (float64, bool) {
	return func(r *result) (float64, bool) { return of(r), true }
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantile returns a quantile of the changes' latencies.
func quantile(q float64) func(*result) (float64, bool) {
	return figure(func(r *result) float64 { return milliseconds(rig.Quantile(r.changes, q)) })
}

// median returns the median of batches.
func median(of func(*result) []float64) func(*result) (float64, bool) {
	return func(r *result) (float64, bool) {
		numbers := of(r)
		if len(numbers) == 0 {
			return 0, false
		}
		return rig.Over(numbers).Median, true
	}
}

func rows() []row {
	large := size{10_000, 3} // the goals of a start are for this
	return []row{
		{what: "start until connections work, ms", most: new(1000.0), at: large,
			of: figure(func(r *result) float64 { return milliseconds(r.start.took) })},
		{what: "processor time for that, ms", ratio: .1, at: large,
			of: figure(func(r *result) float64 { return milliseconds(r.start.processor) })},
		{what: "resident memory then, MiB", most: new(60.0), at: large,
			of: figure(func(r *result) float64 { return r.start.memory.all })},
		{what: "of it, what is of no file", of: figure(func(r *result) float64 { return r.start.memory.own })},
		{what: "write to first connection served, p50, ms", most: new(2.0), of: quantile(.5)},
		{what: "p99, ms", most: new(10.0), of: quantile(.99)},
		{what: "of them the connection, p50, ms",
			of: figure(func(r *result) float64 { return milliseconds(r.connection) })},
		{what: "processor time with 100 changes/s, % of a core", most: new(3.0),
			of: figure(func(r *result) float64 { return 100 * r.storm.Seconds() })},
		{what: "resident memory after that, MiB", most: new(60.0), at: large,
			of: figure(func(r *result) float64 { return r.after.all })},
		{what: "of it, what is of no file", of: figure(func(r *result) float64 { return r.after.own })},
		{what: "datagrams of a flow to an endpoint replaced over 200 ms ago, %", most: new(0.0),
			of: figure(func(r *result) float64 { return r.stale })},
		{what: "first packet of a flow, µs", ratio: .95, of: median(func(r *result) []float64 { return r.first })},
		{what: "the same to the endpoint", of: median(func(r *result) []float64 { return r.directFirst })},
		{what: "packet of an established flow, µs", ratio: .9,
			of: median(func(r *result) []float64 { return r.established })},
		{what: "the same to the endpoint", of: median(func(r *result) []float64 { return r.directEstablished })},
		{what: "connections while endpoints change", of: count(func(c *churn) int { return c.connections })},
		{what: "sets of endpoints replaced meanwhile", of: count(func(c *churn) int { return c.replaced })},
	}
}

func count(of func(*churn) int) func(*result) (float64, bool) {
	return func(r *result) (float64, bool) { return float64(of(&r.churn)), r.churn.connections > 0 }
}

// markdown returns the tables.
func (b *bench) markdown(halves []*half) string {
	var s strings.Builder
	fmt.Fprintf(&s, "kube-proxy in nftables mode and Portolan at %s, %d rounds, medians (least to most); ",
		b.portolan.Version, b.rounds)
	fmt.Fprintf(&s, "%d changes are timed each time, and %d batches of packets. %s;", b.changes, b.batches, b.machine)
	var others []float64
	for _, h := range halves {
		others = append(others, h.others...)
	}
	if len(others) > 0 {
		o := rig.Over(others)
		fmt.Fprintf(&s, " processors in use by others before each round: %.0f%% (%.0f%% to %.0f%%).",
			100*o.Median, 100*o.Least, 100*o.Most)
	}
	fmt.Fprintf(&s, "\n\n| | %s | %s | Portolan | divided by them | goal | |\n|---|---|---|---|---|---|---|\n",
		b.contenders[kubeProxy].name, b.contenders[newest].name)
	for _, h := range halves {
		h.write(&s)
	}
	return s.String()
}

func (h *half) write(s *strings.Builder) {
	fmt.Fprintf(s, "| **%d Services of %d endpoints** | | | | | | |\n", h.services, h.endpoints)
	for _, r := range rows() {
		if _, ok := rig.OverAll(h.rounds[portolan], r.of); ok {
			fmt.Fprintf(s, "| %s", r.what)
			for _, results := range h.rounds {
				fmt.Fprintf(s, " | %s", rig.SpreadCell(results, r.of))
			}
			fmt.Fprintf(s, " | %s |\n", h.compare(r))
		}
	}
	failed := count(func(c *churn) int { return c.failed })
	if most, ok := rig.OverAll(h.rounds[portolan], failed); ok {
		s.WriteString("| failed connections")
		for _, results := range h.rounds {
			fmt.Fprintf(s, " | %s", rig.MostCell(results, failed))
		}
		fmt.Fprintf(s, " | | 0 | %s |\n", rig.Met(most.Most == 0))
	}
}

// compare returns the cells of the ratios, of the goal and of whether it is met: beside each of the
// others.
func (h *half) compare(r row) string {
	var ratios []string
	var worst float64
	for _, other := range []int{kubeProxy, newest} {
		ratio, ok := rig.Ratio(h.rounds[portolan], h.rounds[other], r.of)
		if !ok {
			continue
		}
		format := "%.2f"
		if ratio.Median < .095 {
			format = "%.4f"
		}
		ratios, worst = append(ratios, fmt.Sprintf(format, ratio.Median)), max(worst, ratio.Median)
	}
	cells := strings.Join(ratios, ", ")
	ours, _ := rig.OverAll(h.rounds[portolan], r.of)
	switch {
	case r.at != size{} && r.at != h.size, r.most == nil && r.ratio == 0:
		return cells + " | | "
	case r.most != nil:
		return fmt.Sprintf("%s | ≤ %s | %s", cells, rig.Short(*r.most), rig.Met(ours.Median <= *r.most))
	}
	return fmt.Sprintf("%s | × %.2f | %s", cells, r.ratio, rig.Met(worst <= r.ratio))
}
