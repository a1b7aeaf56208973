package secondaries

import (
	"fmt"
	"strings"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
)

// page is a text under construction.
type page struct{ strings.Builder }

func (p *page) line(format string, values ...any) { fmt.Fprintf(p, format+"\n", values...) }

func (b *bench) markdown(r *results) string {
	p := new(page)
	others := rig.Over(r.others)
	p.line("Portolan at %s, %d rounds of %s each, medians (least to most). %d Services of 3 endpoints, %d "+
		"EndpointSlices changed in a second. %s. Processors in use by others, before, between and after: %.0f%% "+
		"(%.0f%% to %.0f%%).\n",
		b.portolan.Version, b.rounds, b.duration, b.services, changeRate, b.machine, 100*others.Median, 100*others.Least,
		100*others.Most)
	followersTable(p, r)
	watchersTable(p, r.api)
	wholeTable(p, r)
	nodeTable(p, r)
	arithmetic(p, r)
	return p.String()
}

// column is a half with a number of followers.
type column struct {
	*half
	of int
}

func (r *results) columns() (all []column) {
	for _, h := range []*half{&r.plain, &r.headless} {
		for _, n := range h.counts {
			all = append(all, column{h, n})
		}
	}
	return all
}

// what describes the Services of a half.
func (h *half) what() string {
	if h.kind == synthetic.ClusterIP {
		return "with a cluster IP"
	}
	return "headless"
}

func followersTable(p *page, r *results) {
	p.WriteString("| one follower; Services")
	for _, c := range r.columns() {
		fmt.Fprintf(p, " | %s; of %d", c.what(), c.of)
	}
	p.line(" |\n|---%s|", strings.Repeat("|---", len(r.columns())))
	for _, row := range []struct {
		what string
		of   func(c column) rig.Spread
	}{
		{"NOTIFYs in a second", func(c column) rig.Spread { return c.follows(c.of, noticed) }},
		{
			"NOTIFY and its answer: processor time of the server, µs",
			func(c column) rig.Spread { return c.notice(c.of).processor },
		},
		{"octets of both", func(c column) rig.Spread { return c.notice(c.of).octets }},
		{"IXFR: processor time of the server, µs", func(c column) rig.Spread { return c.transfer(c.of).processor }},
		{"octets, query and answer", func(c column) rig.Spread { return c.transfer(c.of).octets }},
		{"changes in it", func(c column) rig.Spread { return c.follows(c.of, inOne) }},
		{"messages of the answer", func(c column) rig.Spread { return c.follows(c.of, inMessages) }},
		{"memory of the server, KiB", func(c column) rig.Spread { return c.connection(c.of) }},
	} {
		fmt.Fprintf(p, "| %s", row.what)
		for _, c := range r.columns() {
			fmt.Fprintf(p, " | %s", row.of(c))
		}
		p.line(" |")
	}
	p.line("")
}

func watchersTable(p *page, r *apiResults) {
	p.line("| one watcher of EndpointSlices and Services at the API server | of %d | of %d |\n|---|---|---|",
		watcherCounts[0], watcherCounts[1])
	for _, e := range encodings {
		row := func(what string, of func(n int) rig.Spread) {
			p.line("| %s: %s | %s | %s |", e.name, what, of(watcherCounts[0]), of(watcherCounts[1]))
		}
		row("processor time of the API server for an event, µs", func(n int) rig.Spread { return r.event(e, n).processor })
		row("octets of an event, with HTTP/2 and TLS", func(n int) rig.Spread { return r.event(e, n).octets })
		row("without those", func(n int) rig.Spread { return r.content(e, n) })
	}
	p.line("")
}

func wholeTable(p *page, r *results) {
	p.line("| everything, as at a start | Services with a cluster IP | headless |\n|---|---|---|")
	row := func(what string, of func(*wholeZone) float64) {
		p.line("| %s | %s | %s |", what, r.plain.all(of), r.headless.all(of))
	}
	row("the zone (AXFR), octets", func(w *wholeZone) float64 { return w.octets })
	row("processor time of the server for one that is alone, ms",
		func(w *wholeZone) float64 { return milliseconds(w.first) })
	row("resident memory of the server before, MiB", func(w *wholeZone) float64 { return w.before })
	for _, when := range []struct {
		what string
		of   func(*wholeZone) *manyAtOnce
	}{
		{"nothing changes", func(w *wholeZone) *manyAtOnce { return &w.quiet }},
		{"EndpointSlices change", func(w *wholeZone) *manyAtOnce { return &w.churn }},
	} {
		row(fmt.Sprintf("%d at once, while %s: processor time for each, ms", atOnce, when.what),
			func(w *wholeZone) float64 { return milliseconds(when.of(w).each) })
		row("until all had it, s", func(w *wholeZone) float64 { return when.of(w).took.Seconds() })
		row("refused", func(w *wholeZone) float64 { return when.of(w).refused })
		row("resident memory of the server at most, MiB", func(w *wholeZone) float64 { return when.of(w).most })
	}
	for _, e := range encodings {
		p.line("| lists of EndpointSlices and Services in %s, packed, octets | | %s |", e.name, r.api.list(e).octets)
		p.line("| processor time of the API server for them, ms | | %s |", r.api.list(e).processor)
	}
	p.line("")
}

func nodeTable(p *page, r *results) {
	p.line("| `portolan node --mode secondary` | Services with a cluster IP | headless |\n|---|---|---|")
	row := func(what string, of func(*node) float64) {
		over := func(h *half) rig.Spread { return over(h.node, func(i int) float64 { return of(&h.node[i]) }) }
		p.line("| %s | %s | %s |", what, over(&r.plain), over(&r.headless))
	}
	row("resident memory 5 s after it was ready, MiB", func(n *node) float64 { return n.loaded })
	row("most while it loaded, MiB", func(n *node) float64 { return n.most })
	row("with changes, MiB", func(n *node) float64 { return n.after })
	row("processor time with changes, thousandths of one", func(n *node) float64 { return 1000 * n.used })
	p.line("")
}
