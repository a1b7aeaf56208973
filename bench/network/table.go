package network

import (
	"fmt"
	"strings"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// key names a figure: a part of the table, and what is measured.
type key struct{ part, what string }

// arriving is the part of the table about new Nodes.
const arriving = "arriving"

func inParallel(n int) key { return key{"ADD", fmt.Sprintf("%d in parallel", n)} }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// row is one line of the table.
type row struct {
	key
	title string
	most  float64 // the highest allowed number of Portolan; 0 is none
	// ratio is that of Portolan's number divided by that of the reference plugins; nil is no goal.
	ratio *rig.Limit
}

// section is a part of the table.
type section struct {
	title string
	rows  []row
}

func sections() []section {
	half := rig.AtMost(.5)
	starts := section{"A Pod starts and ends", []row{
		{key: key{"ADD", "processor"}, title: "processor time of ADD, ms", ratio: &half},
		{key: key{"ADD", "agent"}, title: "of it, the agent"},
		{key: key{"ADD", "plain"}, title: "of a Pod without hostPort, ms"},
		{key: key{"ADD", "ports"}, title: "of a Pod with a hostPort, ms"},
		{key: key{"ADD", "p50"}, title: "ADD, p50, ms"},
		{key: key{"ADD", "p99"}, title: "p99, ms"},
		{key: key{"ADD", "checked"}, title: "ADD where the kernel checks addresses for duplicates, p50, ms"},
		{key: key{"DEL", "processor"}, title: "processor time of DEL, ms"},
		{key: key{"DEL", "agent"}, title: "of it, the agent"},
		{key: key{"DEL", "p50"}, title: "DEL, p50, ms"},
		{key: key{"DEL", "p99"}, title: "p99, ms"},
	}}
	for _, n := range parallels() {
		starts.rows = append(starts.rows, row{key: inParallel(n), title: fmt.Sprintf("ADDs per second, %d at a time", n)})
	}
	all := []section{
		starts, packetSection("Pod to Pod on one node", near),
		packetSection("Pod to Pod of another node, direct", string(direct)),
		packetSection("Pod to Pod of another node, by VXLAN", string(tunnel)),
	}
	joins := section{title: "A Node joins"}
	for _, w := range ways() {
		const most = 50 // ms
		of := func(what string) key { return key{arriving, string(w) + " " + what} }
		joins.rows = append(joins.rows,
			row{key: of("p50"), title: fmt.Sprintf("until there are routes, %s, p50, ms", w), most: most},
			row{key: of("p99"), title: "p99, ms", most: most},
			row{key: of("processor"), title: "processor time of the agent, ms"})
	}
	return append(all, joins)
}

func packetSection(title, part string) section {
	equal := rig.AtMost(1.02)
	s := section{title: title}
	for _, family := range families() {
		s.rows = append(
			s.rows,
			row{key: key{part, "stream " + family}, title: "TCP over " + family + ", processor time per GiB, ms", ratio: &equal},
			row{
				key:   key{part, "packet " + family},
				title: "UDP over " + family + ", processor time of a packet, µs",
				ratio: &equal,
			},
			row{key: key{part, "rate " + family}, title: "thousands of packets per second, one thread"},
		)
	}
	return s
}

// markdown returns the table.
func (b *bench) markdown(results []*result) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s. %d rounds of %d Pods and %d batches of packets, medians (least to most). %s;",
		strings.Join(b.versions, ", "), b.rounds, b.pods, b.batches, b.machine)
	if len(b.others) > 0 {
		o := rig.Over(b.others)
		fmt.Fprintf(&s, " processors in use by others before each round: %.0f%% (%.0f%% to %.0f%%).",
			100*o.Median, 100*o.Least, 100*o.Most)
	}
	s.WriteString("\n\n|")
	for _, r := range results {
		fmt.Fprintf(&s, " | %s", r.name)
	}
	s.WriteString(" | Portolan/ptp | goal | |\n|---" + strings.Repeat("|---", len(results)) + "|---|---|---|\n")
	for _, part := range sections() {
		fmt.Fprintf(&s, "| **%s** |%s | | |\n", part.title, strings.Repeat(" |", len(results)))
		for _, line := range part.rows {
			line.write(&s, results)
		}
	}
	return s.String()
}

func (line *row) write(s *strings.Builder, results []*result) {
	of := func(f figures) (number float64, ok bool) { number, ok = f[line.key]; return number, ok }
	fmt.Fprintf(s, "| %s", line.title)
	var ours, theirs []figures
	for _, r := range results {
		fmt.Fprintf(s, " | %s", rig.SpreadCell(r.rounds, of))
		switch r.name {
		case namePortolan:
			ours = r.rounds
		case nameReference:
			theirs = r.rounds
		}
	}
	cells := [3]string{}
	if ratio, ok := rig.Ratio(ours, theirs, of); ok {
		cells[0] = rig.RatioCell(ratio)
		if line.ratio != nil {
			cells[1], cells[2] = line.ratio.String(), rig.Met(line.ratio.Met(ratio.Median))
		}
	}
	if number, ok := rig.OverAll(ours, of); ok && line.most != 0 {
		cells[1], cells[2] = "≤ "+rig.Short(line.most)+" ms", rig.Met(number.Median <= line.most)
	}
	fmt.Fprintf(s, " | %s |\n", strings.Join(cells[:], " | "))
}
