package forwarding

import (
	"fmt"
	"slices"
	"strings"

	"portolan.dev/portolan/bench/rig"
)

// markdown returns the whole report.
func (b *bench) markdown(r *results) string {
	var s strings.Builder
	b.writeConditions(&s, r)
	r.writeGoals(&s)
	b.writeHits(&s, r)
	b.writeMisses(&s, r)
	b.writeMemory(&s, r)
	writeHitRates(&s, r.hitRates)
	return s.String()
}

// writeConditions writes the conditions of the measurement.
func (b *bench) writeConditions(s *strings.Builder, r *results) {
	var versions []string
	for _, e := range b.entrants {
		versions = append(versions, e.name+" "+e.version)
	}
	fmt.Fprintf(s, "%s. %d rounds of %s, medians (least to most). %s.", strings.Join(versions, ", "), b.rounds,
		b.duration, b.machine)
	if len(r.others) > 0 {
		others := rig.Over(r.others)
		fmt.Fprintf(s,
			" Processors in use by others, the upstreams among them, while this was measured: %.0f%% (%.0f%% to %.0f%%). "+
				"Latency is of the %.0f%% of the time in which the host took nothing from this machine, where nothing else "+
				"is said.",
			100*others.Median, 100*others.Least, 100*others.Most, 100*float64(r.quiet)/float64(max(1, r.slices)))
	}
	s.WriteString("\n")
}

// writeGoals writes the ratios that have a goal.
func (r *results) writeGoals(s *strings.Builder) {
	head := "\n| | ratio | goal | |\n|---|---|---|---|\n"
	for _, g := range goals() {
		if spread, ok := g.ratio(r); ok {
			fmt.Fprintf(s, "%s| %s | %s | %s | %s |\n", head, g.what, rig.RatioCell(spread), g.limit,
				rig.Met(g.limit.Met(spread.Median)))
			head = ""
		}
	}
}

// table is a table with a line for each contender.
type table struct {
	columns []column
	rows    []row
}

// column is a figure of all contenders.
type column struct {
	title string
	of    figure
	cell  func([]*sample, func(*sample) (float64, bool)) string
	// beside selects a column with the ratio of Portolan's figure to this one.
	beside ratioColumn
}

// ratioColumn is true if there is a ratio column.
type ratioColumn bool

const (
	alone     ratioColumn = false
	withRatio ratioColumn = true
)

// write writes the table unless it is empty.
func (t *table) write(s *strings.Builder, b *bench, r *results) {
	if !slices.ContainsFunc(t.rows, func(of row) bool { return len(r.samples[of]) > 0 }) {
		return
	}
	s.WriteString("\n| |")
	cells := 1
	for _, c := range t.columns {
		s.WriteString(" " + c.title + " |")
		cells++
		if c.beside == withRatio {
			s.WriteString(" Portolan/it |")
			cells++
		}
	}
	s.WriteString("\n" + strings.Repeat("|---", cells) + "|\n")
	for _, of := range t.rows {
		if len(r.samples[of]) == 0 {
			continue
		}
		if len(t.rows) > 1 {
			fmt.Fprintf(s, "| **%s** |%s\n", of, strings.Repeat(" |", cells-1))
		}
		for _, e := range b.entrants {
			t.writeLine(s, r.samples[of], e.name)
		}
	}
}

// writeLine writes the results of one contender.
func (t *table) writeLine(s *strings.Builder, of map[string][]*sample, name string) {
	fmt.Fprintf(s, "| %s |", name)
	for _, c := range t.columns {
		fmt.Fprintf(s, " %s |", c.cell(of[name], c.of))
		if c.beside == withRatio {
			compared := ""
			if spread, ok := rig.Ratio(of[portolan], of[name], c.of); ok && name != portolan {
				compared = rig.RatioCell(spread)
			}
			fmt.Fprintf(s, " %s |", compared)
		}
	}
	s.WriteString("\n")
}

func (b *bench) writeHits(s *strings.Builder, r *results) {
	t := table{rows: []row{rowHit}, columns: []column{
		{"hits: CPU per query, µs", cost, rig.SpreadCell[*sample], withRatio},
		{"queries/s, thousands", speed, rig.SpreadCell[*sample], withRatio},
		{"p50, µs", p50, rig.MedianCell[*sample], alone},
		{"p99, µs", p99, rig.SpreadCell[*sample], withRatio},
		{"failed", failed, rig.MostCell[*sample], alone},
		{"lost", lost, rig.MostCell[*sample], alone},
		{"asked of upstreams, per query", asked, rig.MedianCell[*sample], alone},
	}}
	t.write(s, b, r)
}

func (b *bench) writeMisses(s *strings.Builder, r *results) {
	t := table{rows: missRows(), columns: []column{
		{"misses: CPU per query, µs", cost, rig.SpreadCell[*sample], withRatio},
		{"p50, ms", inMilliseconds(p50), rig.MedianCell[*sample], alone},
		{"p99, ms", inMilliseconds(p99), rig.SpreadCell[*sample], withRatio},
		{"p50 of all moments", inMilliseconds(whole50), rig.MedianCell[*sample], alone},
		{"p99 of all moments", inMilliseconds(whole99), rig.MedianCell[*sample], alone},
		{"slowest", inMilliseconds(slowest), rig.MedianCell[*sample], alone},
		{"failed", failed, rig.MostCell[*sample], alone},
		{"lost", lost, rig.MostCell[*sample], alone},
		{"asked of upstreams, per query", asked, rig.MedianCell[*sample], alone},
	}}
	t.write(s, b, r)
}

func (b *bench) writeMemory(s *strings.Builder, r *results) {
	t := table{rows: []row{rowMemory}, columns: []column{
		{"resident memory without names, MiB", before, rig.SpreadCell[*sample], alone},
		{"with 100,000, MiB", with, rig.SpreadCell[*sample], withRatio},
		{"octets per name", perName, rig.SpreadCell[*sample], withRatio},
	}}
	t.write(s, b, r)
}
