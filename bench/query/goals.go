package query

import (
	"fmt"
	"slices"
	"strings"

	"portolan.dev/portolan/bench/rig"
)

// goal is a limit for the ratio of Portolan's figure to a peer's in one workload.
type goal struct {
	workload, figure string
	of               figure
	knot, coreDNS    rig.Limit
}

func goals() []goal {
	const processor, perSecond, latency = "CPU per query", "queries/s", "p99"
	return []goal{
		{"hits", processor, cost, rig.AtMost(.9), rig.AtMost(1. / 6)},
		{"mix", processor, cost, rig.AtMost(.9), rig.AtMost(1. / 8)},
		{"nxdomain", processor, cost, rig.AtMost(.9), rig.AtMost(1. / 8)},
		{"srv", processor, cost, rig.AtMost(1), rig.AtMost(1. / 8)},
		{"srv-20", processor, cost, rig.AtMost(1), rig.AtMost(1. / 8)},
		{"headless-20", processor, cost, rig.AtMost(1), rig.AtMost(1. / 8)},
		{"hits", perSecond, speed, rig.AtLeast(1), rig.AtLeast(5)},
		{"mix", perSecond, speed, rig.AtLeast(1), rig.AtLeast(5)},
		{"tcp", processor, cost, rig.AtMost(1.2), rig.AtMost(1. / 3)},
		{"hits", latency, p99, rig.AtMost(1.2), rig.AtMost(1. / 2)},
		{"mix", latency, p99, rig.AtMost(1.2), rig.AtMost(1. / 2)},
	}
}

// writeGoals writes the ratios that have a goal.
func (r *results) writeGoals(b *strings.Builder) {
	b.WriteString(
		"| Portolan divided by | Knot | goal | | CoreDNS | with cache | goal | |\n|---|---|---|---|---|---|---|---|\n")
	for _, g := range goals() {
		of := r.samples[g.workload]
		if len(of[portolan]) == 0 {
			continue
		}
		knotRatio, knotMet := g.judge(of, knot, g.knot)
		plain, plainMet := g.judge(of, coreDNS, g.coreDNS)
		cached, cachedMet := g.judge(of, coreDNSCached, g.coreDNS)
		met := plainMet
		if plainMet == "" || cachedMet == rig.Met(false) {
			met = cachedMet
		}
		fmt.Fprintf(b, "| %s: %s | %s | %s | %s | %s | %s | %s | %s |\n", g.workload, g.figure, knotRatio, g.knot,
			knotMet, plain, cached, g.coreDNS, met)
	}
}

// judge returns the ratio to a peer, and whether the goal is met. Both are empty if
// there is nothing to compare. A peer that cannot serve the fixed rate has lost.
func (g *goal) judge(of map[string][]*sample, peer string, l rig.Limit) (cell, met string) {
	if spread, ok := rig.Ratio(of[portolan], of[peer], g.of); ok {
		return rig.RatioCell(spread), rig.Met(l.Met(spread.Median))
	}
	_, ours := rig.OverAll(of[portolan], g.of)
	tooSlow := !slices.ContainsFunc(of[peer], func(s *sample) bool { return s.steady != nil })
	if len(of[peer]) > 0 && ours && tooSlow {
		return "it can't", rig.Met(true)
	}
	return "", ""
}
