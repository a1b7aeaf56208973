package app

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/gateway/table"
)

// TablePath is the page that WriteTable writes.
const TablePath = "/debug/gateway"

// WriteTable writes the table that requests are served by: of each socket the listeners, their hosts and the
// routes in their order, with what they lead to and the endpoints there.
func (g *Gateway) WriteTable(to io.Writer) error {
	t := g.worker.table.Load()
	out := bufio.NewWriter(to)
	if t == nil {
		fmt.Fprintln(out, "# requests are answered with 503: the cluster is not known yet")
		return out.Flush()
	}
	problems := g.sockets.errors()
	compare := func(a, b table.Socket) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), a.Addr.Compare(b.Addr), cmp.Compare(a.Transport, b.Transport))
	}
	for _, at := range slices.SortedFunc(t.Sockets(), compare) {
		host := "*"
		if at.Addr.IsValid() {
			host = at.Addr.String()
		}
		transport := ""
		if at.Transport == table.UDP {
			transport = " for UDP"
		}
		bound := strings.Join(g.sockets.addresses(at), ", ")
		fmt.Fprintf(out, "port %d of %s%s, bound at %s\n", at.Port, host, transport, bound)
		if err := problems[at]; err != nil {
			fmt.Fprintf(out, "  not bound: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		port := t.Port(at)
		byName := func(a, b *table.Listener) int { return cmp.Compare(a.Name, b.Name) }
		for _, l := range slices.SortedFunc(port.Listeners(), byName) {
			g.writeListener(out, l)
		}
		if l := port.Ingresses(); l != nil {
			g.writeListener(out, l)
		}
	}
	return out.Flush()
}

// writeListener writes a listener.
func (g *Gateway) writeListener(out io.Writer, l *table.Listener) {
	fmt.Fprintf(out, "  %s, hostname %s%s\n", l.Name, cmp.Or(l.Hostname, "*"), modeText[l.Mode])
	hosts := maps.Collect(l.Hosts())
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		fmt.Fprintf(out, "    host %s\n", cmp.Or(name, "*"))
		g.writeRoutes(out, hosts[name])
	}
	if rest := l.Rest(); rest != nil {
		fmt.Fprintln(out, "    requests that no route serves")
		g.writeRoutes(out, rest)
	}
}

// modeText is what a listener does with connections, but for requests.
var modeText = map[table.Mode]string{table.Stream: ", passed on", table.Passthrough: ", passed on with their TLS"}

// writeRoutes writes the routes of a host.
func (g *Gateway) writeRoutes(out io.Writer, h *table.Host) {
	for _, r := range h.Routes() {
		fmt.Fprintf(out, "      %s → %s rule %d: %s\n", r.String(), r.Rule.Object, r.Rule.Index, g.outcome(r.Rule))
	}
}

// outcome says what becomes of the requests of a rule.
func (g *Gateway) outcome(r *table.Rule) string {
	switch {
	case r.Status != 0:
		return fmt.Sprintf("%d, %s", r.Status, r.Reason)
	case r.Redirect != nil:
		return fmt.Sprintf("redirect with %d", r.Redirect.Status)
	case len(r.Backends) == 0:
		return "no backend"
	}
	var all []string
	for i := range r.Backends {
		b := &r.Backends[i]
		if b.Upstream == (table.Upstream{}) {
			all = append(all, fmt.Sprintf("weight %d %s", b.Weight, b.Reason))
			continue
		}
		endpoints := 0
		if pool := g.endpoints.Pool(b.Upstream); pool != nil {
			endpoints = pool.Len()
		}
		up := &b.Upstream
		all = append(all, fmt.Sprintf(
			"weight %d %s/%s:%d with endpoints %d", b.Weight, up.Namespace, up.Service, up.Port, endpoints,
		))
	}
	return strings.Join(all, "; ")
}
