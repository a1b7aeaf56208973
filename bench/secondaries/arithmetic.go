package secondaries

import (
	"fmt"

	"portolan.dev/portolan/bench/rig"
)

// nodes is the size of the computed cluster. noticePause is the shortest interval
// between two NOTIFYs for a zone to one follower, in seconds (internal/dns/transfer).
const (
	nodes       = 5000
	noticePause = .2
)

// perSecond is the number of NOTIFYs and IXFRs to all nodes per second.
const perSecond = nodes / noticePause

// arithmetic computes the cost of all nodes from the medians for one node.
func arithmetic(p *page, r *results) {
	p.line("| %d nodes, %d changes/s | factors | |\n|---|---|---|", nodes, changeRate)
	p.line("| **replicas**: IXFRs in a second | %d nodes / %.1f s between NOTIFYs | %s |",
		nodes, noticePause, large(perSecond))
	for _, h := range []*half{&r.plain, &r.headless} {
		h.arithmetic(p)
	}
	most := watcherCounts[len(watcherCounts)-1]
	const events = nodes * changeRate
	p.line("| **API watchers**: events in a second | %d nodes × %d changes/s | %s |", nodes, changeRate, large(events))
	for _, e := range encodings {
		event := r.api.event(e, most)
		octets, processor := event.octets.Median, event.processor.Median
		p.line("| %s: octets/s, all API servers together | %s × %s | %s |",
			e.name, large(events), rig.Short(octets), large(events*octets))
		p.line("| processors, all API servers together | %s × %s µs | %s |",
			large(events), rig.Short(processor), rig.Short(events*processor/1e6))
		p.line("| one node, octets/s | %d × %s | %s |", changeRate, rig.Short(octets), large(changeRate*octets))
	}
	startArithmetic(p, r)
}

// arithmetic computes the cost of changes of the half's kind of Services.
func (h *half) arithmetic(p *page) {
	most := h.counts[len(h.counts)-1]
	notice, transfer := h.notice(most), h.transfer(most)
	const changes = changeRate * noticePause // in each IXFR
	measured := h.follows(most, inOne).Median
	octets := notice.octets.Median + transfer.octets.Median*changes/measured
	processor := notice.processor.Median + transfer.processor.Median
	own := over(h.alone, func(i int) float64 { return h.alone[i].perSecond() / 1e6 }).Median
	p.line(
		"| Services %s: octets/s, all servers together | %s × (%s IXFR of %s changes × %.0f changes + %s NOTIFY) | %s |",
		h.what(), large(perSecond), rig.Short(transfer.octets.Median), rig.Short(measured), changes,
		rig.Short(notice.octets.Median), large(perSecond*octets))
	p.line("| processors, all servers together | %s × (%s + %s) µs, and %s for each server's own changes | %s |",
		large(perSecond), rig.Short(transfer.processor.Median), rig.Short(notice.processor.Median), rig.Short(own),
		rig.Short(perSecond*processor/1e6+own))
	p.line("| one node, octets/s | %s / %.1f s | %s |", large(octets), noticePause, large(octets/noticePause))
}

// startArithmetic computes the cost if all nodes start at once.
func startArithmetic(p *page, r *results) {
	const link, octet = 10e9, 8 // bits/s
	for _, h := range []*half{&r.plain, &r.headless} {
		octets := h.all(func(w *wholeZone) float64 { return w.octets }).Median
		each := h.all(func(w *wholeZone) float64 { return milliseconds(w.quiet.each) }).Median
		p.line("| **all start at once**, Services %s: octets of AXFR | %d × %s | %s |", h.what(), nodes, large(octets),
			large(nodes*octets))
		p.line("| seconds of one link of 10 Gbit/s | | %s |", rig.Short(nodes*octets*octet/link))
		p.line("| seconds of one processor | %d × %s ms | %s |", nodes, rig.Short(each), rig.Short(nodes*each/1e3))
	}
	for _, e := range encodings {
		list := r.api.list(e)
		octets, processor := list.octets.Median, list.processor.Median
		p.line("| lists of the API in %s: octets, packed | %d × %s | %s |", e.name, nodes, large(octets), large(nodes*octets))
		p.line("| seconds of one processor | %d × %s ms | %s |", nodes, rig.Short(processor), rig.Short(nodes*processor/1e3))
	}
}

// large returns a large number with about three digits.
func large(f float64) string {
	for _, unit := range []struct {
		of   float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if f >= unit.of {
			return rig.Short(f/unit.of) + unit.name
		}
	}
	return fmt.Sprintf("%.0f", f)
}
