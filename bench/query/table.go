package main

import (
	"fmt"
	"strings"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
)

// markdown is the whole report.
func (b *bench) markdown(r *results) string {
	var s strings.Builder
	b.writeConditions(&s, r)
	r.writeGoals(&s)
	s.WriteString("\n| | CPU per query, µs | Portolan/it | queries/s, thousands | Portolan/it | p50, µs | p99, µs | Portolan/it | lost | octets |\n|---|---|---|---|---|---|---|---|---|---|\n")
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

// writeConditions says what was measured where, and which answers differed.
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
	fmt.Fprintf(s, "%s. %d rounds of %s, medians (least to most). %d Services of 3 endpoints, headless ones: %d of 20, %d of 1, %d of 500; read from %s.",
		strings.Join(versions, ", "), b.rounds, b.duration, n[synthetic.ClusterIP], n[synthetic.Headless], n[synthetic.Single], n[synthetic.Wide], from)
	fmt.Fprintf(s, " %s. Processors in use by others while this was measured: %.0f%% (%.0f%% to %.0f%%). Latency is of the %.0f%% of the time in which the host took nothing from this machine.\n\n",
		b.machine, 100*others.Median, 100*others.Least, 100*others.Most, 100*float64(r.quiet)/float64(max(1, r.slices)))
	fmt.Fprintf(s, "Answers to %d queries were compared, code and answer section. Explained differences:", b.answersCompared)
	if len(b.differences) == 0 {
		s.WriteString(" none are known.")
	}
	for _, d := range b.differences {
		fmt.Fprintf(s, " %s (seen %d times).", d.reason, d.seen)
	}
	s.WriteString("\n\n")
}

// writeRow writes what was measured of one contender under one workload.
func (r *results) writeRow(s *strings.Builder, workload, name string) {
	ours, theirs := r.samples[workload][portolan], r.samples[workload][name]
	compared := func(of figure) string {
		spread, ok := ratio(ours, theirs, of)
		if !ok || name == portolan {
			return ""
		}
		return ratioCell(spread)
	}
	fmt.Fprintf(s, "| %s | %s | %s | %s%s | %s | %s | %s | %s | %s | %s |\n", name,
		cell(theirs, cost), compared(cost), limited(theirs), cell(theirs, speed), compared(speed),
		median(theirs, p50), cell(theirs, p99), compared(p99), most(theirs, lost), median(theirs, octets))
}

// limited marks rates that were the load generator's limit, not the server's.
func limited(samples []*sample) string {
	const all = .9
	if spread, ok := over(samples, busy); ok && spread.Median < all {
		return "≥ "
	}
	return ""
}

func cell(samples []*sample, of figure) string {
	spread, ok := over(samples, of)
	if !ok {
		return ""
	}
	return spread.String()
}

func median(samples []*sample, of figure) string {
	spread, ok := over(samples, of)
	if !ok {
		return ""
	}
	return rig.Short(spread.Median)
}

// most is for what is whole, and best 0.
func most(samples []*sample, of figure) string {
	spread, ok := over(samples, of)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%.0f", spread.Most)
}

// ratioCell writes two digits behind the point, for what is near 1.
func ratioCell(s rig.Spread) string {
	return fmt.Sprintf("%s (%s to %s)", short(s.Median), short(s.Least), short(s.Most))
}

func short(ratio float64) string {
	const many = 20
	if ratio >= many {
		return rig.Short(ratio)
	}
	return fmt.Sprintf("%.2f", ratio)
}
