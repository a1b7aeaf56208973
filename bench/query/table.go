package query

import (
	"fmt"
	"strings"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
)

// markdown returns the whole report.
func (b *bench) markdown(r *results) string {
	var s strings.Builder
	b.writeConditions(&s, r)
	r.writeGoals(&s)
	s.WriteString("\n| | CPU per query, µs | Portolan/it | queries/s, thousands | Portolan/it | p50, µs | p99, µs " +
		"| Portolan/it | lost | octets |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, w := range b.chosen {
		fmt.Fprintf(&s, "| **%s** | | | | | | | | | |\n", w.name)
		for _, c := range b.running {
			if len(r.samples[w.name][c.name]) > 0 {
				r.writeRow(&s, w.name, c.name)
			}
		}
	}
	return s.String()
}

// writeConditions writes the conditions of the measurement, and which answers differed.
func (b *bench) writeConditions(s *strings.Builder, r *results) {
	var versions []string
	for _, c := range b.running {
		versions = append(versions, strings.TrimSpace(c.name+" "+c.version))
	}
	from := "manifests"
	if b.api != nil {
		from = "a real API server"
	}
	n := b.cluster.Services
	others := rig.Over(r.others)
	fmt.Fprintf(s,
		"%s. %d rounds of %s, medians (least to most). %d Services of 3 endpoints, headless ones: %d of 20, %d of 1, "+
			"%d of 500; read from %s.",
		strings.Join(versions, ", "), b.rounds, b.duration, n[synthetic.ClusterIP], n[synthetic.Headless],
		n[synthetic.Single], n[synthetic.Wide], from)
	fmt.Fprintf(s,
		" %s. Processors in use by others while this was measured: %.0f%% (%.0f%% to %.0f%%). Latency is of the "+
			"%.0f%% of the time in which the host took nothing from this machine.\n\n",
		b.machine, 100*others.Median, 100*others.Least, 100*others.Most, 100*float64(r.quiet)/float64(max(1, r.slices)))
	fmt.Fprintf(s, "Answers to %d queries were compared, code and answer section. Explained differences:",
		b.answersCompared)
	if len(b.differences) == 0 {
		s.WriteString(" none are known.")
	}
	for _, d := range b.differences {
		fmt.Fprintf(s, " %s (seen %d times).", d.reason, d.seen)
	}
	s.WriteString("\n\n")
}

// writeRow writes the results of one contender for one workload.
func (r *results) writeRow(s *strings.Builder, workload, name string) {
	ours, theirs := r.samples[workload][portolan], r.samples[workload][name]
	compared := func(of figure) string {
		spread, ok := rig.Ratio(ours, theirs, of)
		if !ok || name == portolan {
			return ""
		}
		return rig.RatioCell(spread)
	}
	fmt.Fprintf(s, "| %s | %s | %s | %s%s | %s | %s | %s | %s | %s | %s |\n", name, rig.SpreadCell(theirs, cost),
		compared(cost), limited(theirs), rig.SpreadCell(theirs, speed), compared(speed), rig.MedianCell(theirs, p50),
		rig.SpreadCell(theirs, p99), compared(p99), rig.MostCell(theirs, lost), rig.MedianCell(theirs, octets))
}

// limited returns a mark for rates that the load generator limited and not the server.
func limited(samples []*sample) string {
	const all = .9
	if spread, ok := rig.OverAll(samples, busy); ok && spread.Median < all {
		return "≥ "
	}
	return ""
}
