package request

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/support/suggest"
)

// candidate is a route or an Ingress that matches the request and does not serve it, and why.
type candidate struct {
	ref cluster.Ref
	// rank orders candidates: those for the very host come first.
	rank int
	explain.Diagnosis
}

// mostCandidates is the maximum number of candidates that are told.
const mostCandidates = 3

// unattached adds why routes and Ingresses that match the request do not serve it, and reports whether there
// are any.
func (x *explainer) unattached() bool {
	var all []candidate
	for r := range cluster.HTTPRoutes.All(x.view) {
		if rank, ok := x.wants(r); ok {
			c := candidate{ref: r.Ref(), rank: rank}
			c.Diagnosis = x.whyNotRoute(r)
			all = append(all, c)
		}
	}
	for f := range cluster.Ingresses.All(x.view) {
		if rank, ok := x.wantsIngress(f); ok {
			c := candidate{ref: f.Ref(), rank: rank}
			c.Diagnosis = x.whyNotIngress(f)
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.ref.Kind, b.ref.Kind), a.ref.Key.Compare(b.ref.Key))
	})
	for _, c := range all[:min(len(all), mostCandidates)] {
		x.add(c.Rule, c.Cure, "%s matches the request, and does not serve it: %s", c.ref, c.Why)
	}
	return len(all) > 0
}

// wants reports whether a match of a route is that of the request, and ranks the route.
func (x *explainer) wants(r *cluster.Route) (rank int, ok bool) {
	if r.Spec == nil {
		return 0, false
	}
	rank, ok = rankOf(r.Hosts, x.Message.Host, manyLabels)
	if !ok {
		return 0, false
	}
	request := x.Message.request()
	for i := range r.Spec.Rules {
		for k := range r.Spec.Rules[i].Matches {
			m, err := compile.MatchOf(&r.Spec.Rules[i].Matches[k])
			if err == nil && m.OnPath(request.Path) && m.Miss(request) == "" {
				return rank, true
			}
		}
	}
	return 0, false
}

// wantsIngress is wants for an Ingress.
func (x *explainer) wantsIngress(f *cluster.Frontend) (best int, found bool) {
	if f.Ingress == nil {
		return 0, false
	}
	for i := range f.Ingress.Rules {
		rule := &f.Ingress.Rules[i]
		var hosts []string
		if rule.Host != "" {
			hosts = append(hosts, rule.Host)
		}
		rank, ok := rankOf(hosts, x.Message.Host, oneLabel)
		if !ok {
			continue
		}
		for k := range rule.Paths {
			m, err := compile.PathMatchOf(&rule.Paths[k])
			if err == nil && m.OnPath(x.Message.Path) && (!found || rank < best) {
				best, found = rank, true
			}
		}
	}
	return best, found
}

// labels is how many labels a wildcard stands for.
type labels int

// A wildcard of an Ingress stands for one label, one of Gateway API for one or more.
const (
	oneLabel labels = iota
	manyLabels
)

// rankOf ranks hostnames by how they stand for a host: by its name, by a wildcard, or, without any, as all.
// ok is false if they do not.
func rankOf(hostnames []string, host string, of labels) (rank int, ok bool) {
	if len(hostnames) == 0 {
		return 2, true
	}
	if slices.Contains(hostnames, host) {
		return 0, true
	}
	for _, h := range hostnames {
		above, wild := strings.CutPrefix(h, "*")
		label, found := strings.CutSuffix(host, above)
		if wild && found && label != "" && (of == manyLabels || !strings.Contains(label, ".")) {
			return 1, true
		}
	}
	return 0, false
}

// whyNotRoute returns why a route does not serve what it matches: that of the parent which is nearest to it.
func (x *explainer) whyNotRoute(r *cluster.Route) explain.Diagnosis {
	if len(r.Spec.Parents) == 0 {
		return explain.Diagnosis{
			Rule: "route-not-accepted",
			Why:  "it has no parentRefs",
			Cure: "name a Gateway in parentRefs",
		}
	}
	var all []explain.Diagnosis
	for i := range r.Spec.Parents {
		d, ours := x.whyNotParent(r, &r.Spec.Parents[i])
		if ours {
			return d
		}
		all = append(all, d)
	}
	return all[0]
}

// whyNotParent returns why a route does not serve what it matches at a parent, and whether that is ours.
func (x *explainer) whyNotParent(r *cluster.Route, p *cluster.ParentRef) (d explain.Diagnosis, ours bool) {
	key := cluster.Key{Namespace: p.Namespace, Name: p.Name}
	d.Rule = "route-not-accepted"
	name := p.Kind + " " + key.String()
	gateway, exists := x.gatewayOf(p)
	switch {
	case !exists:
		d.Why = fmt.Sprintf("its parent %s does not exist", name)
		d.Cure = x.cureOfParent(p)
		return d, false
	case gateway == nil:
		d.Why = fmt.Sprintf("the Gateway of its parent %s does not exist", name)
		d.Cure = "create the Gateway, or correct the ListenerSet's parentRef"
		return d, false
	case !x.isOurs(gateway):
		d.Rule = "other-gateway"
		d.Why = fmt.Sprintf("its parent %s %s", name, x.whoseGateway(gateway))
		d.Cure = x.cureOfGateway(gateway, "see what that controller says in the route's status, or name a Gateway of a "+
			"class with the controllerName "+x.cfg.GatewayController)
		return d, false
	}
	for _, v := range x.verdicts.Routes[r.Ref()] {
		if v.Parent != *p {
			continue
		}
		for _, c := range v.Conditions {
			if c.Type == "Accepted" && c.Status == "False" {
				d.Why, d.Cure = x.rejected(r, p, &c)
				return d, true
			}
		}
		d.Why, d.Cure = x.acceptedElsewhere(p, v.Conditions)
	}
	return d, true
}

// cureOfParent returns how a reference to a parent that does not exist is cured.
func (x *explainer) cureOfParent(p *cluster.ParentRef) string {
	var names []string
	for f := range cluster.Gateways.All(x.view) {
		if f.Name == p.Name {
			return fmt.Sprintf("write namespace: %s in the parentRef, or create the Gateway", f.Namespace)
		}
		names = append(names, f.String())
	}
	slices.Sort(names)
	if near := suggest.Closest(p.Namespace+"/"+p.Name, names); near != "" {
		return fmt.Sprintf("write %s in the parentRef, or create the Gateway", strings.TrimPrefix(near, p.Namespace+"/"))
	}
	return "create it, or correct the parentRef"
}

// gatewayOf returns the Gateway that a parent is or belongs to, nil if that does not exist, and whether the
// parent exists.
func (w *World) gatewayOf(p *cluster.ParentRef) (gw *cluster.Frontend, exists bool) {
	key := cluster.Key{Namespace: p.Namespace, Name: p.Name}
	if p.Group != gatewayGroup {
		return nil, false
	}
	if p.Kind == cluster.KindListenerSet.String() {
		s := cluster.ListenerSets.Get(w.view, key)
		if s == nil {
			return nil, false
		}
		return cluster.Gateways.Get(w.view, cluster.Key{Namespace: s.Parent.Namespace, Name: s.Parent.Name}), true
	}
	if p.Kind == cluster.KindGateway.String() {
		gw = cluster.Gateways.Get(w.view, key)
	}
	return gw, gw != nil
}

// listenersOf returns the listeners that a reference to a parent leads to, or all of the parent.
func (x *explainer) listenersOf(p *cluster.ParentRef) (named, all []*listener) {
	all = x.sorted(func(l *listener) bool {
		return l.owner.Kind.String() == p.Kind && l.owner.Key == cluster.Key{Namespace: p.Namespace, Name: p.Name}
	})
	for _, l := range all {
		if (p.Section == "" || p.Section == l.spec.Name) && (p.Port == 0 || p.Port == l.spec.Port) {
			named = append(named, l)
		}
	}
	return named, all
}

// rejected returns why a parent of ours does not accept a route, and the cure.
func (x *explainer) rejected(r *cluster.Route, p *cluster.ParentRef, c *cluster.Condition) (why, cure string) {
	name := fmt.Sprintf("%s %s/%s", p.Kind, p.Namespace, p.Name)
	named, all := x.listenersOf(p)
	switch c.Reason {
	case "NoMatchingParent":
		var words []string
		for _, l := range all {
			words = append(words, fmt.Sprintf("%s at port %d", l.spec.Name, l.spec.Port))
		}
		return fmt.Sprintf("%s has no listener%s; it has %s", name, wanted(p), few(words)),
			"correct sectionName and port of the parentRef"
	case "NotAllowedByListeners":
		cure := "let allowedRoutes.namespaces of a listener select namespace " + r.Namespace
		if len(named) > 0 && named[0].spec.Namespaces.From == cluster.FromSame && p.Namespace == r.Namespace {
			cure = "let allowedRoutes.kinds of a listener have HTTPRoute"
		}
		return fmt.Sprintf("no listener of %s allows routes of its kind from namespace %s (NotAllowedByListeners)", name,
			r.Namespace), cure
	case "NoMatchingListenerHostname":
		var hostnames []string
		for _, l := range named {
			if h := cmp.Or(l.spec.Hostname, "any"); !slices.Contains(hostnames, h) {
				hostnames = append(hostnames, h)
			}
		}
		return fmt.Sprintf(
				"none of its hostnames is one of a listener of %s, which has %s (NoMatchingListenerHostname)",
				name,
				few(hostnames),
			),
			"give the route a hostname that a listener has, or change the listener's"
	}
	return fmt.Sprintf("%s does not accept it: %s, %s", name, c.Reason, c.Message), "correct the route"
}

// wanted returns what a reference to a parent says of the listener.
func wanted(p *cluster.ParentRef) (text string) {
	if p.Section != "" {
		text += " " + p.Section
	}
	if p.Port != 0 {
		text += fmt.Sprintf(" at port %d", p.Port)
	}
	return text
}

// acceptedElsewhere returns why a route that a parent of ours accepted does not serve the request.
func (x *explainer) acceptedElsewhere(p *cluster.ParentRef, conditions []cluster.Condition) (why, cure string) {
	for _, c := range conditions {
		if c.Type == "PartiallyInvalid" && c.Status == "True" {
			return c.Message, "correct the rule"
		}
	}
	named, _ := x.listenersOf(p)
	var ports []string
	for _, l := range named {
		if l.spec.Port != x.Message.Port {
			if text := strconv.Itoa(int(l.spec.Port)); !slices.Contains(ports, text) {
				ports = append(ports, text)
			}
			continue
		}
		if _, covers := rankOf(hostnamesOf(l), x.Message.Host, manyLabels); !covers {
			continue
		}
		if why := l.conflict(); why != "" {
			return fmt.Sprintf("its listener %s is not served: %s", l.name(), why), l.cure()
		}
		return fmt.Sprintf(
				"its listener %s is less specific for the host than another one, whose routes alone serve it",
				l.name(),
			),
			"attach the route to the other listener, too"
	}
	if len(ports) > 0 {
		return fmt.Sprintf("it is attached at port %s, not at %d", and(ports), x.Message.Port),
			"use that port, or attach the route to a listener with this one"
	}
	return "no listener that it is attached to is for the host", "give a listener the hostname"
}

// hostnamesOf returns the hostname of a listener; none if it is for all.
func hostnamesOf(l *listener) []string {
	if l.spec.Hostname == "" {
		return nil
	}
	return []string{l.spec.Hostname}
}

// whyNotIngress returns why an Ingress does not serve what it matches.
func (x *explainer) whyNotIngress(f *cluster.Frontend) explain.Diagnosis {
	d := explain.Diagnosis{Rule: "ingress-not-served"}
	v, ours := x.verdicts.Ingresses[f.Key]
	switch {
	case !ours:
		d.Why = "it " + x.whoseIngress(f)
		d.Cure = x.cureOfIngressClass(f, "set ingressClassName to a class with the controller "+x.cfg.IngressController+
			", or see that controller's log")
	case len(v.Problems) > 0 && v.Problems[0].Field == "spec.ingressClassName":
		d.Why = v.Problems[0].Field + " " + v.Problems[0].Reason
		d.Cure = "set ingressClassName, or let one class be the default"
	case !slices.Contains(x.ingressPorts(), x.Message.Port):
		ports := x.ingressPorts()
		d.Why = fmt.Sprintf("Ingresses are served at port %d, and with TLS at %d", ports[0], ports[1])
		d.Cure = "use one of these ports"
	case !x.servesIngresses(x.Message.Port):
		d.Why = fmt.Sprintf("no Ingress has a certificate, or a Gateway has port %d", x.Message.Port)
		d.Cure = "give it an element of spec.tls with a Secret of type kubernetes.io/tls, or the Gateway another port"
		switch {
		case len(v.Problems) > 0:
			d.Why = v.Problems[0].Field + ": " + v.Problems[0].Reason
			d.Cure = "correct " + v.Problems[0].Field + ", or create what it names"
		case x.Message.Scheme == "https" && len(f.Ingress.TLS) == 0:
			d.Why = "it has no spec.tls, and so no certificate"
			d.Cure = "give it an element of spec.tls with a Secret of type kubernetes.io/tls"
		}
	default:
		d.Why = "a listener of a Gateway has routes for the host, which alone serve it"
		d.Cure = "let one of the two have the host"
	}
	return d
}

// ingressPorts returns the ports at which Ingresses are served without and with TLS.
func (w *World) ingressPorts() []uint16 {
	return []uint16{cmp.Or(w.cfg.IngressPort, 80), cmp.Or(w.cfg.IngressTLSPort, 443)}
}

// servesIngresses reports whether Ingresses are served at a port.
func (w *World) servesIngresses(port uint16) bool {
	p := w.table.Port(table.Socket{Port: port})
	return p != nil && p.Ingresses() != nil
}
