package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"portolan.dev/portolan/bench/rig"
)

// goal is what Portolan's figure divided by a peer's is to be, in one workload.
type goal struct {
	workload, figure string
	of               figure
	knot, coreDNS    limit
}

// limit is the least or the most that a ratio may be.
type limit struct {
	ratio   float64
	atLeast bool
}

func atMost(ratio float64) limit  { return limit{ratio: ratio} }
func atLeast(ratio float64) limit { return limit{ratio: ratio, atLeast: true} }

func (l limit) met(ratio float64) bool {
	if l.atLeast {
		return ratio >= l.ratio
	}
	return ratio <= l.ratio
}

// String writes parts of one as fractions.
func (l limit) String() string {
	if l.atLeast {
		return "≥ " + short(l.ratio)
	}
	if parts := 1 / l.ratio; parts > 1 && parts == math.Trunc(parts) {
		return fmt.Sprintf("≤ 1/%.0f", parts)
	}
	return "≤ " + short(l.ratio)
}

func goals() []goal {
	const processor, perSecond, latency = "CPU per query", "queries/s", "p99"
	return []goal{
		{"hits", processor, cost, atMost(.9), atMost(1. / 6)},
		{"mix", processor, cost, atMost(.9), atMost(1. / 8)},
		{"nxdomain", processor, cost, atMost(.9), atMost(1. / 8)},
		{"srv", processor, cost, atMost(1), atMost(1. / 8)},
		{"srv-20", processor, cost, atMost(1), atMost(1. / 8)},
		{"headless-20", processor, cost, atMost(1), atMost(1. / 8)},
		{"hits", perSecond, speed, atLeast(1), atLeast(5)},
		{"mix", perSecond, speed, atLeast(1), atLeast(5)},
		{"tcp", processor, cost, atMost(1.2), atMost(1. / 3)},
		{"hits", latency, p99, atMost(1.2), atMost(1. / 2)},
		{"mix", latency, p99, atMost(1.2), atMost(1. / 2)},
	}
}

// writeGoals writes the ratios that have a goal.
func (r *results) writeGoals(b *strings.Builder) {
	b.WriteString("| Portolan divided by | Knot | goal | | CoreDNS | with cache | goal | |\n|---|---|---|---|---|---|---|---|\n")
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
		fmt.Fprintf(b, "| %s: %s | %s | %s | %s | %s | %s | %s | %s |\n", g.workload, g.figure, knotRatio, g.knot, knotMet, plain, cached, g.coreDNS, met)
	}
}

// judge gives the ratio to a peer and whether it is good; both are empty when
// there is nothing to compare with. A peer that can't serve the fixed rate has
// lost.
func (g *goal) judge(of map[string][]*sample, peer string, l limit) (cell, met string) {
	if spread, ok := ratio(of[portolan], of[peer], g.of); ok {
		return ratioCell(spread), rig.Met(l.met(spread.Median))
	}
	_, ours := over(of[portolan], g.of)
	tooSlow := !slices.ContainsFunc(of[peer], func(s *sample) bool { return s.steady != nil })
	if len(of[peer]) > 0 && ours && tooSlow {
		return "it can't", rig.Met(true)
	}
	return "", ""
}
