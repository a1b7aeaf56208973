package request

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// Unserved is a rule of a route or of an Ingress that is served, and that has no endpoint for some of its requests.
type Unserved struct {
	// Rule is its path in the object, as in spec.rules[0], or spec.rules[0].http.paths[0] of an Ingress.
	Rule string
	// Why says which Service has no endpoint, and how its requests are answered.
	Why string
}

// UnservedOf returns the rules of a route or of an Ingress that have no endpoint for some of their requests, in order.
// Backends that are invalid are not among them: the problems of the route or Ingress say so.
func (w *World) UnservedOf(ref cluster.Ref) (all []Unserved) {
	for _, rule := range w.uses()[ref.String()].rules {
		made := Unserved{Rule: fieldOf(rule), Why: w.unserved(ref.Kind, rule)}
		if made.Why != "" && !slices.Contains(all, made) {
			all = append(all, made)
		}
	}
	return all
}

// fieldOf returns the path of a rule in its object.
func fieldOf(rule *table.Rule) string {
	if strings.HasPrefix(rule.Object, "ingress ") {
		return "spec." + strings.Replace(rule.Name, ".paths[", ".http.paths[", 1)
	}
	return "spec.rules[" + strconv.Itoa(rule.Index) + "]"
}

// unserved says which backends of a rule have no endpoint; empty if all have one, or the rule needs none.
func (w *World) unserved(kind cluster.Kind, rule *table.Rule) string {
	if rule.Status != 0 || rule.Redirect != nil {
		return ""
	}
	var total, lost uint64
	var services []string
	for i := range rule.Backends {
		b := &rule.Backends[i]
		total += uint64(b.Weight)
		if b.Weight == 0 || b.Upstream == (table.Upstream{}) || len(w.endpoints[b.Upstream]) > 0 {
			continue
		}
		lost += uint64(b.Weight)
		services = once(services, fmt.Sprintf(
			"Service %s/%s has no ready endpoint at port %d", b.Upstream.Namespace, b.Upstream.Service, b.Upstream.Port,
		))
	}
	if lost == 0 {
		return ""
	}
	what, answer := outcomeOf(kind)
	if lost < total {
		what = fmt.Sprintf("some %s (%.3g %%)", what, 100*float64(lost)/float64(total))
	}
	return fmt.Sprintf("%s are %s, since %s", what, answer, and(services))
}

// outcomeOf returns what a route of a kind is for, and what becomes of it without an endpoint.
func outcomeOf(kind cluster.Kind) (what, answer string) {
	switch kind {
	case cluster.KindGRPCRoute:
		return "calls", "answered with UNAVAILABLE"
	case cluster.KindTLSRoute, cluster.KindTCPRoute:
		return "connections", "closed"
	case cluster.KindUDPRoute:
		return "datagrams", "dropped"
	}
	return "requests", "answered with 503"
}

// use is what the table has of a route or an Ingress.
type use struct {
	rules []*table.Rule
	// hosts are those that a listener of a Gateway serves for it, by the listener's name; "" is any.
	hosts map[string][]string
}

// usesOf returns what the table has of routes and Ingresses, by their names in it.
func usesOf(t *table.Table) map[string]use {
	all := make(map[string]use)
	seen := make(map[*table.Rule]bool)
	add := func(listener, host string, h *table.Host) {
		routes := h.Routes()
		for i := range routes {
			rule := routes[i].Rule
			u := all[rule.Object]
			if !seen[rule] {
				seen[rule], u.rules = true, append(u.rules, rule)
			}
			if listener != ingresses {
				if u.hosts == nil {
					u.hosts = make(map[string][]string)
				}
				u.hosts[listener] = once(u.hosts[listener], host)
			}
			all[rule.Object] = u
		}
	}
	for at := range t.Sockets() {
		p := t.Port(at)
		listeners := slices.Collect(p.Listeners())
		if p.Ingresses() != nil {
			listeners = append(listeners, p.Ingresses())
		}
		for _, l := range listeners {
			for host, h := range l.Hosts() {
				add(l.Name, host, h)
			}
			if l.Rest() != nil {
				add(l.Name, "", l.Rest())
			}
		}
	}
	for _, u := range all {
		slices.SortFunc(u.rules, compareRules)
		for _, hosts := range u.hosts {
			slices.Sort(hosts)
		}
	}
	return all
}

// compareRules orders the rules of an object as they are in it.
func compareRules(a, b *table.Rule) int {
	return cmp.Or(
		cmp.Compare(a.Index, b.Index), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name),
	)
}
