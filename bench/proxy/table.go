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
	// most is the highest allowed number of Portolan, and ratio that of Portolan's number
	// divided by kube-proxy's; 0 is none.
	most, ratio float64
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
		{what: "start until connections work, ms", most: 1000, at: large,
			of: figure(func(r *result) float64 { return milliseconds(r.start.took) })},
		{what: "processor time for that, ms", ratio: .1, at: large,
			of: figure(func(r *result) float64 { return milliseconds(r.start.processor) })},
		{what: "resident memory then, MiB", most: 60, at: large,
			of: figure(func(r *result) float64 { return r.start.memory.all })},
		{what: "of it, what is of no file", of: figure(func(r *result) float64 { return r.start.memory.own })},
		{what: "write to first connection served, p50, ms", most: 2, of: quantile(.5)},
		{what: "p99, ms", most: 10, of: quantile(.99)},
		{what: "of them the connection, p50, ms",
			of: figure(func(r *result) float64 { return milliseconds(r.connection) })},
		{what: "processor time with 100 changes/s, % of a core", most: 3,
			of: figure(func(r *result) float64 { return 100 * r.storm.Seconds() })},
		{what: "resident memory after that, MiB", most: 60, at: large,
			of: figure(func(r *result) float64 { return r.after.all })},
		{what: "of it, what is of no file", of: figure(func(r *result) float64 { return r.after.own })},
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
	fmt.Fprintf(&s, "kube-proxy 1.36.3 in nftables mode and Portolan at %s, %d rounds, medians (least to most); ",
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
	s.WriteString("\n\n| | kube-proxy | Portolan | Portolan/kube-proxy | goal | |\n|---|---|---|---|---|---|\n")
	for _, h := range halves {
		h.write(&s)
	}
	return s.String()
}

func (h *half) write(s *strings.Builder) {
	fmt.Fprintf(s, "| **%d Services of %d endpoints** | | | | | |\n", h.services, h.endpoints)
	for _, r := range rows() {
		if _, ok := rig.OverAll(h.rounds[portolan], r.of); ok {
			fmt.Fprintf(s, "| %s | %s | %s | %s |\n", r.what, rig.SpreadCell(h.rounds[kubeProxy], r.of),
				rig.SpreadCell(h.rounds[portolan], r.of), h.compare(r))
		}
	}
	failed := count(func(c *churn) int { return c.failed })
	if most, ok := rig.OverAll(h.rounds[portolan], failed); ok {
		fmt.Fprintf(s, "| failed connections | %s | %s | | 0 | %s |\n", rig.MostCell(h.rounds[kubeProxy], failed),
			rig.MostCell(h.rounds[portolan], failed), rig.Met(most.Most == 0))
	}
}

// compare returns the cells of the ratio, of the goal and of whether it is met.
func (h *half) compare(r row) string {
	ratio, _ := rig.Ratio(h.rounds[portolan], h.rounds[kubeProxy], r.of)
	cells := fmt.Sprintf("%.2f", ratio.Median)
	if ratio.Median < .095 {
		cells = fmt.Sprintf("%.4f", ratio.Median)
	}
	ours, _ := rig.OverAll(h.rounds[portolan], r.of)
	switch {
	case r.at != size{} && r.at != h.size, r.most == 0 && r.ratio == 0:
		return cells + " | | "
	case r.most > 0:
		return fmt.Sprintf("%s | ≤ %s | %s", cells, rig.Short(r.most), rig.Met(ours.Median <= r.most))
	}
	return fmt.Sprintf("%s | × %.2f | %s", cells, r.ratio, rig.Met(ratio.Median <= r.ratio))
}
