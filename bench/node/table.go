package node

import (
	"fmt"
	"strconv"
	"strings"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/test/netns/nodes"
)

// markdown returns the whole report.
func (b *bench) markdown(r *results) string {
	var s strings.Builder
	fmt.Fprintf(&s,
		"Portolan at %s, CoreDNS %s. %s. Processors in use by others before the start: %.0f%%; the host took %.1f%% "+
			"of them meanwhile. All took %s.\n",
		b.portolan.Version, b.coreDNS.Version, b.machine, 100*r.before, 100*r.stolen, r.took.Round(1e9))
	r.writePackets(&s)
	r.writeOctets(&s)
	b.writeLatency(&s, r)
	r.writeFailovers(&s)
	r.writeFaults(&s)
	r.writeMemory(&s)
	return s.String()
}

// line writes a line of a table.
func line(s *strings.Builder, cells ...string) {
	s.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// head writes a table's head. The first column has no title.
func head(s *strings.Builder, titles ...string) {
	s.WriteString("\n")
	line(s, append([]string{""}, titles...)...)
	s.WriteString(strings.Repeat("|---", len(titles)+1) + "|\n")
}

func (r *results) writePackets(s *strings.Builder) {
	if len(r.packets) == 0 {
		return
	}
	titles := []string{""}
	for _, k := range nameKinds() {
		titles = append(titles, fmt.Sprintf("queries of the Pod: %s (goal ≤ %d)", k.name, k.goal))
	}
	titles = append(titles, "")
	for _, k := range nameKinds() {
		titles = append(titles, fmt.Sprintf("packets to and from the server: %s, first time; again", k.name))
	}
	head(s, titles...)
	for _, row := range r.packets {
		cells := []string{row.way, string(row.libc)}
		cells = append(cells, row.cells(func(c packetsCount) string { return shortCount(c.queries) })...)
		cells = append(cells, rig.Met(row.met()))
		cells = append(cells,
			row.cells(func(c packetsCount) string { return shortCount(c.first) + "; " + shortCount(c.again) })...)
		line(s, cells...)
	}
}

func (r *results) writeOctets(s *strings.Builder) {
	if len(r.octets) == 0 {
		return
	}
	head(s, "the Pod's query, octets", "the agent's over UDP, octets", "packets, both ways", "over TCP, octets",
		"packets, both ways")
	for _, row := range r.octets {
		cells := []string{row.what}
		for _, n := range []float64{row.pod, row.udp, row.udpPackets, row.tcp, row.tcpPackets} {
			cells = append(cells, shortCount(n))
		}
		line(s, cells...)
	}
}

// These return the numbers of a latency.
func p50(l latency) float64  { return l.p50 }
func p99(l latency) float64  { return l.p99 }
func most(l latency) float64 { return l.most }
func bad(l latency) float64  { return l.bad }

func (b *bench) writeLatency(s *strings.Builder, r *results) {
	if len(r.latencies) == 0 {
		return
	}
	fmt.Fprintf(s,
		"\nLatency: %d rounds, %d lookups each, 200 a second from either Pod, medians (least to most) in ms; failed "+
			"are the most of a round.\n",
		len(r.latencies), b.lookups)
	for _, external := range []bool{false, true} {
		what := map[bool]string{false: "names of the cluster", true: "external names"}[external]
		head(s, what, "packets lost", "p50", "p99", "slowest", "failed")
		for _, w := range b.ways {
			for _, libc := range libcs {
				for _, loss := range losses {
					r.writeLatencyLine(s, latencyKey{w.title, libc, loss, external})
				}
			}
		}
	}
	b.writeGoals(s, r)
}

func (r *results) writeLatencyLine(s *strings.Builder, key latencyKey) {
	cells := []string{key.way, string(key.libc), fmt.Sprintf("%d%%", key.loss/10)}
	for _, of := range []func(latency) float64{p50, p99, most} {
		spread, _ := r.figure(key, of)
		cells = append(cells, spread.String())
	}
	failed, _ := r.figure(key, bad)
	line(s, append(cells, fmt.Sprintf("%.0f", failed.Most))...)
}

// besideNoLoss returns the ratio of the latency to that without loss in the same round.
func (r *results) besideNoLoss(key latencyKey, of func(latency) float64) (rig.Spread, bool) {
	without := key
	without.loss = 0
	var lossy, clean []float64
	for _, l := range r.latencies {
		lossy, clean = append(lossy, of(l[key])), append(clean, of(l[without]))
	}
	return rig.Ratio(lossy, clean, func(n float64) (float64, bool) { return n, n > 0 })
}

func (r *results) writeFailovers(s *strings.Builder) {
	if len(r.failovers) == 0 {
		return
	}
	head(s, "", "p50 with an agent, ms", "slowest", "p50 after its end, ms", "p99", "slowest", "failed")
	for _, f := range r.failovers {
		line(s, f.what, string(f.libc), rig.Short(f.with.p50), rig.Short(f.with.most), rig.Short(f.without.p50),
			rig.Short(f.without.p99), rig.Short(f.without.most), fmt.Sprintf("%.0f of %d", f.without.bad, f.lookups))
	}
}

func (r *results) writeFaults(s *strings.Builder) {
	if len(r.faults) == 0 {
		return
	}
	titles := []string{"", "times", "queries", "lost", "failed", "wrong", "s until well again"}
	for _, libc := range libcs {
		titles = append(titles, string(libc)+": lookups", "failed", "wrong", "slowest, s")
	}
	head(s, titles...)
	for _, f := range r.faults {
		cells := []string{f.fault, f.way, strconv.Itoa(f.times), strconv.Itoa(f.sent)}
		for _, result := range []nodes.Result{nodes.Lost, nodes.Failed, nodes.Wrong} {
			cells = append(cells, strconv.Itoa(f.results[result]))
		}
		cells = append(cells, f.heal.String())
		for _, libc := range libcs {
			l := f.lookups[libc]
			cells = append(cells, strconv.Itoa(l.all), strconv.Itoa(l.results[nodes.Failed]),
				strconv.Itoa(l.results[nodes.Wrong]), rig.Short(l.slowest))
		}
		line(s, cells...)
	}
}

func (r *results) writeMemory(s *strings.Builder) {
	if len(r.memory) == 0 {
		return
	}
	head(s, "resident memory when ready, MiB", "after 10,000 names", "CPU per query of a new name, µs",
		"of one that was asked for before")
	for _, m := range r.memory {
		line(s, m.way, rig.Short(m.ready), rig.Short(m.after), rig.Short(m.costOfNew), rig.Short(m.costOfOld))
	}
}
