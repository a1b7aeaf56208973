package forwarding

import (
	"context"
	"slices"

	"portolan.dev/portolan/bench/rig"
)

// row is a row of the tables.
type row string

// These are the rows.
const (
	rowHit       row = "hit"
	rowMiss      row = "miss, 2,000/s"
	rowGood      row = "both upstreams good"
	rowDeadFirst row = "one of two dead, the first 2 s"
	rowDead      row = "one of two dead, after that"
	rowLittle    row = "1% of packets lost"
	rowMuch      row = "10% of packets lost"
	rowStall     row = "both stall for 3 s"
	rowMemory    row = "memory"
)

// missRows returns the rows in the order of the table.
func missRows() []row {
	return []row{rowMiss, rowGood, rowDeadFirst, rowDead, rowLittle, rowMuch, rowStall}
}

// part is a set of measurements on one stage.
type part struct {
	name string
	play func(*act, context.Context) error // nil if no server is needed
}

// hitRatePart is the part that needs no server.
const hitRatePart = "hitrate"

func parts() []part {
	return []part{
		{"answers", (*act).answers},
		{"dead", (*act).dead},
		{"loss-1", loss(rowLittle, "loss 1")},
		{"loss-10", loss(rowMuch, "loss 10")},
		{"stall", (*act).stall},
		{"memory", (*act).memory},
		{hitRatePart, nil},
	}
}

func partNames() (names []string) {
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// has reports whether a part was selected.
func (b *bench) has(name string) bool {
	return slices.ContainsFunc(b.parts, func(p part) bool { return p.name == name })
}

// goal is a limit for a ratio.
type goal struct {
	what  string
	ratio func(*results) (rig.Spread, bool)
	limit rig.Limit
}

// against returns the ratio of Portolan's figure to a peer's.
func against(peer string, of row, f figure) func(*results) (rig.Spread, bool) {
	return func(r *results) (rig.Spread, bool) {
		return rig.Ratio(r.samples[of][portolan], r.samples[of][peer], f)
	}
}

func goals() []goal {
	return []goal{
		{"hit: CPU per query, Portolan/CoreDNS", against(coreDNS, rowHit, cost), rig.AtMost(1. / 4)},
		{"hit: CPU per query, Portolan/Unbound", against(unbound, rowHit, cost), rig.AtMost(1.2)},
		{"p99 of Portolan, one of two upstreams dead for 2 s/both good", func(r *results) (rig.Spread, bool) {
			return rig.Ratio(r.samples[rowDead][portolan], r.samples[rowGood][portolan], p99)
		}, rig.AtMost(2)},
	}
}
