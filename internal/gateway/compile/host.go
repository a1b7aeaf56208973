package compile

import (
	"cmp"
	"maps"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// part is what an object has of a host.
type part struct {
	of cluster.Ref
	// by is the object's own hostname, for which it has its part.
	by     string
	age    cluster.Age
	routes []table.Route
	// rest serves what no route of the host does; nil for none.
	rest *table.Rule
	// annotated is nil unless annotations have an effect.
	annotated *annotated
	// borrows is the host whose paths are served for this one, too; empty if it is a host of the object.
	borrows string
	// redirects: requests are redirected to the host of borrows instead.
	redirects bool
}

// host is a compiled host, and the routes of it that never serve.
type host struct {
	*table.Host
	shadows []Shadow
	// problems are those of Ingresses that come of others of the host.
	problems []hostProblem
}

// putPart adds what an object has of a host, of which it has nothing.
func (c *Compiler) putPart(at place, p part, d *dirty) {
	c.parts[at] = append(c.parts[at], p)
	d.places[at] = struct{}{}
}

// takePart removes what an object has of a host.
func (c *Compiler) takePart(at place, of cluster.Ref, d *dirty) {
	c.parts[at] = slices.DeleteFunc(c.parts[at], func(p part) bool { return p.of == of })
	if len(c.parts[at]) == 0 {
		delete(c.parts, at)
	}
	d.places[at] = struct{}{}
}

// buildHosts builds the hosts of places from their parts.
func (c *Compiler) buildHosts(d *dirty) {
	c.borrow(d)
	for at := range d.places {
		d.listeners[at.listener] = struct{}{}
		parts := c.parts[at]
		if len(parts) == 0 {
			if delete(c.hosts[at.listener], at.hostname); len(c.hosts[at.listener]) == 0 {
				delete(c.hosts, at.listener)
			}
			continue
		}
		if c.hosts[at.listener] == nil {
			c.hosts[at.listener] = make(map[string]*host)
		}
		if c.cfg.Annotated && at.listener == ingresses && at.hostname != noHost {
			was, made := c.hosts[at.listener][at.hostname], c.annotatedHost(at.hostname, parts)
			if c.hosts[at.listener][at.hostname] = made; was != nil {
				d.judge(was.problems)
			}
			d.judge(made.problems)
			continue
		}
		c.hosts[at.listener][at.hostname] = newHost(at.hostname, parts)
	}
}

// judge notes the Ingresses that have problems.
func (d *dirty) judge(problems []hostProblem) {
	for i := range problems {
		d.verdicts[problems[i].of] = struct{}{}
	}
}

// newHost builds a host. Routes whose own hostname is more specific come first (HTTPRouteSpec.hostnames), then
// those of older objects, and what serves the rest last. It sorts parts so.
func newHost(hostname string, parts []part) *host {
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(specificity(a.by, b.by), a.age.Compare(b.age), alphabetical(a.of.Key, b.of.Key))
	})
	var groups [][]table.Route
	var late, rest []table.Route
	owners := make(map[*table.Rule]cluster.Ref)
	for i, p := range parts {
		if i == 0 || p.by != parts[i-1].by {
			groups = append(groups, nil)
		}
		for _, r := range p.routes {
			owners[r.Rule] = p.of
			if r.AnyService {
				late = append(late, r)
			} else {
				groups[len(groups)-1] = append(groups[len(groups)-1], r)
			}
		}
		if last := i == len(parts)-1 || parts[i+1].by != p.by; last && late != nil {
			groups, late = append(groups, late), nil
		}
		if p.rest != nil {
			rest = append(rest, table.Route{Match: table.Match{Kind: table.Prefix, Path: "/"}, Rule: p.rest})
		}
	}
	if rest != nil {
		groups = append(groups, rest)
	}
	made := &host{Host: table.NewHost(groups...)}
	made.shadows = shadows(hostname, made.Routes(), owners)
	return made
}

// shadows returns the routes of a host that never serve, by the owners of their rules. Rules without an owner
// serve the rest, which are not counted.
func shadows(hostname string, routes []table.Route, owners map[*table.Rule]cluster.Ref) (all []Shadow) {
	serves := make(map[string]*table.Rule)
	for _, r := range routes {
		of, counts := owners[r.Rule]
		if !counts {
			continue
		}
		key := r.String()
		by, taken := serves[key]
		if !taken {
			serves[key] = r.Rule
		} else if by != r.Rule {
			all = append(all, Shadow{hostname, of, r.Rule.Index, owners[by]})
		}
	}
	return all
}

// buildListeners builds the listeners whose hosts changed, and the ports that have them.
func (c *Compiler) buildListeners(d *dirty) {
	serving := make(map[string]*listener)
	for _, l := range c.gateways.serving {
		serving[l.name()] = l
	}
	for name := range d.listeners {
		from := serving[name]
		made := c.listeners[name]
		switch {
		case name == ingresses && len(c.ingresses) > 0:
			made = cmp.Or(made, table.NewIngresses())
		case from == nil:
			delete(c.listeners, name)
			continue
		case made == nil || made.Hostname != from.hostname:
			made = table.NewListener(name, from.hostname)
		}
		made = c.withHosts(made, name, d)
		if name == ingresses {
			made = c.withHostCertificates(made, d)
		} else {
			made = made.WithMode(from.mode()).WithCertificates(c.certificates.list(name)).
				WithClientCertificate(c.certificates.clients[from.gateway].shown()).WithClients(from.clients)
		}
		c.listeners[name] = made
	}
	taken := c.taken
	if c.buildPorts(); !maps.Equal(taken, c.taken) {
		for key := range c.ingresses {
			d.verdicts[cluster.Ref{Kind: cluster.KindIngress, Key: key}] = struct{}{}
		}
	}
}

// withHosts returns a listener with the hosts that it is to have.
func (c *Compiler) withHosts(l *table.Listener, name string, d *dirty) *table.Listener {
	differ := make(map[string]*table.Host)
	if l != c.listeners[name] { // it has none
		for hostname, h := range c.hosts[name] {
			differ[hostname] = h.Host
		}
	} else {
		for at := range d.places {
			if at.listener == name {
				differ[at.hostname] = c.hosts[name][at.hostname].table()
			}
		}
	}
	if rest, ok := differ[noHost]; ok {
		l = l.WithRest(rest)
		delete(differ, noHost)
	}
	return l.WithHosts(differ)
}

// of returns the problems of an Ingress.
func (h *host) of(ref cluster.Ref) (all []hostProblem) {
	if h != nil {
		for _, p := range h.problems {
			if p.of == ref {
				all = append(all, p)
			}
		}
	}
	return all
}

// table returns the Host of h; nil if there is no h.
func (h *host) table() *table.Host {
	if h == nil {
		return nil
	}
	return h.Host
}
