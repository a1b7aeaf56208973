package live

import (
	"fmt"
	"strings"
	"time"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
)

// figure is one number of a round.
type figure func(*round) float64

// row is one line of the table.
type row struct {
	part part
	what string
	of   figure
	unit string
	goal float64 // highest allowed ratio of Portolan's number to CoreDNS'; 0 is none
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantile returns the figure of the q-quantile of times.
func quantile(q float64, of func(*round) changes) figure {
	return func(r *round) float64 { return milliseconds(rig.Quantile(of(r).times, q)) }
}

func rows() (all []row) {
	all = []row{
		{start, "resident memory, 5 s after ready", func(r *round) float64 { return r.memory }, "MiB", 1. / 3},
		{start, "of it, what is of no file", func(r *round) float64 { return r.own }, "MiB", 0},
		{start, "resident memory, most while loading", func(r *round) float64 { return r.peak }, "MiB", 1. / 3},
		{start, "start until ready and right", func(r *round) float64 { return milliseconds(r.took) }, "ms", 1. / 2},
		{start, "processor time for that", func(r *round) float64 { return milliseconds(r.processor) }, "ms", 0},
		{start, "the host took meanwhile", func(r *round) float64 { return 100 * r.stolen }, "%", 0},
	}
	for _, kind := range []struct {
		part part
		what string
		of   func(*round) changes
	}{
		{changing, "change to answer", func(r *round) changes { return r.change }},
		{changing, "the same in a storm", func(r *round) changes { return r.storm }},
		{stream, "the same in a stream", func(r *round) changes { return r.stream }},
	} {
		all = append(all,
			row{kind.part, kind.what + ", p50", quantile(.5, kind.of), "ms", 1},
			row{kind.part, kind.what + ", p99", quantile(.99, kind.of), "ms", 1},
			row{kind.part, kind.what + ", most", quantile(1, kind.of), "ms", 0},
			row{kind.part, "in quiet moments", func(r *round) float64 { return 100 * kind.of(r).quiet }, "%", 0})
	}
	return append(all,
		row{changing, "resident memory, after the storm", func(r *round) float64 { return r.memoryAfter }, "MiB", 0},
		row{changing, "changes in the storm", func(r *round) float64 { return r.stormRate }, "/s", 0},
		row{stream, "changes in the stream", func(r *round) float64 { return r.streamRate }, "/s", 0})
}

func over(rounds []*round, f figure) rig.Spread {
	var values []float64
	for _, r := range rounds {
		values = append(values, f(r))
	}
	return rig.Over(values)
}

func markdown(s *settings, halves []*half) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CoreDNS 1.15.0 and Portolan at %s, %d rounds, %d changes each, medians (least to most). %s;",
		s.commit, s.rounds, s.changes, s.machine)
	var all []float64
	for _, h := range halves {
		all = append(all, h.others...)
	}
	others := rig.Over(all)
	fmt.Fprintf(&b, " processors in use by others while all of this was idle: %.0f%% (%.0f%% to %.0f%%).\n\n",
		100*others.Median, 100*others.Least, 100*others.Most)
	b.WriteString("| | CoreDNS | Portolan | Portolan/CoreDNS | goal | |\n|---|---|---|---|---|---|\n")
	for _, h := range halves {
		h.write(&b, s.parts)
	}
	return b.String()
}

func (h *half) write(b *strings.Builder, parts map[part]bool) {
	fmt.Fprintf(b, "| **%d Services of %d endpoints, %d headless of %d, %d Pods** | | | | | |\n",
		h.cluster.Services[synthetic.ClusterIP], synthetic.ClusterIP.Endpoints(), h.cluster.Services[synthetic.Headless],
		synthetic.Headless.Endpoints(), h.cluster.Pods)
	for _, r := range rows() {
		if !parts[r.part] {
			continue
		}
		their, our := over(h.rounds[theirs], r.of), over(h.rounds[ours], r.of)
		ratio, goal, met := "", "", ""
		if r.unit != "%" {
			ratio = fmt.Sprintf("%.2f", our.Median/their.Median)
		}
		if r.goal > 0 {
			goal, met = fmt.Sprintf("≤ %.2f", r.goal), rig.Met(our.Median <= r.goal*their.Median)
		}
		fmt.Fprintf(b, "| %s, %s | %s | %s | %s | %s | %s |\n", r.what, r.unit, their, our, ratio, goal, met)
	}
	if parts[firstSecond] {
		first := func(r *round) [outcomes]int { return r.firstSecond }
		fmt.Fprintf(b, "| first second, a query each ms | %s | %s | | no denial | %s |\n",
			tell(h.rounds[theirs], first), tell(h.rounds[ours], first), rig.Met(neverWrong(h.rounds[ours], first)))
	}
	if parts[withoutAPI] {
		h.writeWithoutAPI(b)
	}
}

func (h *half) writeWithoutAPI(b *strings.Builder) {
	apiDown := func(r *round) [outcomes]int { return r.withoutAPI }
	fmt.Fprintf(b, "| start without the API, %s, a query each 10 ms | %s | %s | | no denial | %s |\n", watched,
		tell(h.rounds[theirs], apiDown), tell(h.rounds[ours], apiDown),
		rig.Met(neverWrong(h.rounds[ours], apiDown) && neverWrong(h.rounds[oursWarm], apiDown)))
	warm := over(h.rounds[oursWarm], func(r *round) float64 { return milliseconds(r.withoutAPIAnswers) })
	fmt.Fprintf(b, "| the same, with a snapshot | has none | %s | | | |\n", tell(h.rounds[oursWarm], apiDown))
	fmt.Fprintf(b, "| until its first right answer, ms | never | %s | | ≤ 1000 | %s |\n", warm,
		rig.Met(warm.Least > 0 && warm.Most <= 1000))
}

// tell describes the outcomes of queries, as medians over the rounds.
func tell(rounds []*round, of func(*round) [outcomes]int) string {
	var parts []string
	for o, name := range []string{
		noReply:   "no reply",
		right:     "right",
		servFail:  "SERVFAIL",
		nxDomain:  "NXDOMAIN",
		without:   "answer without the address",
		otherwise: "another code",
	} {
		if s := over(rounds, func(r *round) float64 { return float64(of(r)[o]) }); s.Most > 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f (%.0f to %.0f)", name, s.Median, s.Least, s.Most))
		}
	}
	return strings.Join(parts, ", ")
}

// neverWrong reports whether no query got the answer that the name has no address.
func neverWrong(rounds []*round, of func(*round) [outcomes]int) bool {
	return over(rounds, func(r *round) float64 { return float64(of(r)[nxDomain] + of(r)[without]) }).Most == 0
}
