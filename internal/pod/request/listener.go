package request

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/table"
)

// listener is a listener of a Gateway or ListenerSet, of any class.
type listener struct {
	owner   cluster.Ref
	gateway *cluster.Frontend
	spec    *cluster.Listener
	// verdict is nil for those of others.
	verdict *compile.ListenerVerdict
}

// name returns the name that the table has it by.
func (l *listener) name() string { return l.owner.String() + " " + l.spec.Name }

// allListeners returns the listeners of all Gateways by their names.
func (w *World) allListeners() map[string]*listener {
	all := make(map[string]*listener)
	add := func(owner cluster.Ref, gw *cluster.Frontend, specs []cluster.Listener, v *compile.GatewayVerdict) {
		for i := range specs {
			l := &listener{owner: owner, gateway: gw, spec: &specs[i]}
			if v != nil && i < len(v.Listeners) {
				l.verdict = &v.Listeners[i]
			}
			all[l.name()] = l
		}
	}
	for f := range cluster.Gateways.All(w.view) {
		if f.Gateway == nil {
			continue
		}
		add(f.Ref(), f, f.Gateway.Listeners, w.verdicts.Gateways[f.Key])
		ref := cluster.ObjectRef{Group: gatewayGroup, Kind: f.Kind.String(), Namespace: f.Namespace, Name: f.Name}
		for _, s := range cluster.ListenerSetsByGateway.Get(w.view, ref) {
			add(s.Ref(), f, s.Listeners, w.verdicts.Sets[s.Key])
		}
	}
	return all
}

// ingresses is the name of the listener of Ingresses in a table.
const ingresses = "Ingress"

// gatewayGroup is the API group of Gateway API.
const gatewayGroup = "gateway.networking.k8s.io"

// sorted returns the listeners for which keep holds, by port and name.
func (w *World) sorted(keep func(*listener) bool) (all []*listener) {
	for _, l := range w.listeners {
		if keep(l) {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b *listener) int {
		return cmp.Or(cmp.Compare(a.spec.Port, b.spec.Port), cmp.Compare(a.name(), b.name()))
	})
	return all
}

// answer says what becomes of the request at a place.
func (x *explainer) answer(p place) {
	a := Answer{Port: x.Message.Port, Rules: []Rule{}}
	if p.addr.IsValid() {
		a.Address = p.addr.String()
	}
	l, host := p.port.Host(x.Message.Host)
	if l != nil {
		a.Listener, a.Hostname = l.Name, l.Hostname
	}
	a.TLS = x.tls(p.port)
	switch {
	case x.Message.Method == http.MethodConnect:
		a.Status, a.Reason = 405, "CONNECT is not served"
		x.add("method", "use another method", "CONNECT asks for a tunnel, which gateways do not give")
	case x.Message.BadPath:
		a.Status, a.Reason = 400, "the path is not valid"
		x.add("bad-path", "encode the path as RFC 3986, section 2.1 says",
			"the path %s has a percent-encoding that is broken, or that of a NUL", x.Message.Path)
	case l == nil:
		a.Status, a.Reason = 404, "no listener has the host"
		x.noListener(p.port)
	case l.Mode != table.Requests:
		x.stream(&a, p.port)
	case x.Message.Scheme == "https" && p.port.Misdirected(x.Message.serverName(), x.Message.Host):
		a.Status, a.Reason = 421, "another listener has the host"
		x.add("misdirected", "use "+x.Message.Host+" in the URL, too",
			"the connection is to %s, and the host %s of the request is that of another listener, %s", x.Message.Name,
			x.Message.Host, l.Name)
	default:
		x.rules(&a, l, host)
	}
	x.e.Answers = append(x.e.Answers, a)
}

// noPort says that nothing is served at the port, and what is.
func (x *explainer) noPort() {
	port := x.Message.Port
	x.e.Outcome = fmt.Sprintf("no connection: no Gateway or Ingress is served at port %d", port)
	unserved := x.sorted(func(l *listener) bool { return l.spec.Port == port && x.isOurs(l.gateway) })
	others := x.sorted(func(l *listener) bool { return l.spec.Port == port && !x.isOurs(l.gateway) })
	for _, l := range unserved {
		x.add("listener-not-served", "correct the listener", "%s, which has port %d, is not served: %s", l.name(), port,
			l.whyNot())
	}
	if len(others) > 0 && len(unserved) == 0 {
		x.e.Outcome = fmt.Sprintf("not this gateway's: port %d is that of Gateway %s", port, others[0].gateway.Key)
	}
	for _, l := range others[:min(len(others), mostNamed)] {
		x.add("other-gateway", "see what that controller says in the status of the Gateway and its routes",
			"%s has port %d, and %s", l.name(), port, x.whoseGateway(l.gateway))
	}
	if len(unserved)+len(others) > 0 {
		return
	}
	if x.unattached() {
		return
	}
	if ports := x.ports(); ports != "" {
		x.add("no-port", "use one of these ports, or add a listener with this one", "the gateway listens on %s", ports)
		return
	}
	x.add("no-gateway", fmt.Sprintf("create a GatewayClass with the controllerName %s and a Gateway of it, or an "+
		"IngressClass with the controller %s", x.cfg.GatewayController, x.cfg.IngressController),
		"no Gateway or Ingress is of a class that the gateway serves")
}

// ports lists the ports that are served, as in "80 (Ingress) and 8080 (gateway shop/web http)".
func (x *explainer) ports() string {
	names := make(map[uint16][]string)
	for at := range x.table.Sockets() {
		p := x.table.Port(at)
		for l := range p.Listeners() {
			names[at.Port] = append(names[at.Port], l.Name)
		}
		if p.Ingresses() != nil {
			names[at.Port] = append(names[at.Port], p.Ingresses().Name)
		}
	}
	var words []string
	for _, port := range slices.Sorted(maps.Keys(names)) {
		of := names[port]
		slices.Sort(of)
		words = append(words, fmt.Sprintf("%d (%s)", port, few(slices.Compact(of))))
	}
	return and(words)
}

// and joins words: "a, b and c".
func and(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// noListener says that no listener of a port has the host.
func (x *explainer) noListener(p *table.Port) {
	var hostnames []string
	for l := range p.Listeners() {
		hostnames = append(hostnames, l.Hostname+" ("+l.Name+")")
	}
	slices.Sort(hostnames)
	cure := "use one of these hosts, or add a listener for this one"
	if x.Message.HasAddress() && x.Message.Host == x.Message.Name {
		cure = "name the host that the address stands for, --header 'Host: NAME'"
	}
	if !x.unattached() {
		x.add("no-listener", cure,
			"no listener of port %d is for the host %s; there are those for %s", x.Message.Port, x.Message.Host, few(hostnames))
	}
}

// whyNot returns why a listener of ours that is not served is not.
func (l *listener) whyNot() string {
	return cmp.Or(l.conflict(), "its "+l.owner.Kind.String()+" is not accepted")
}

// conflict returns the condition due to which a listener of ours is not served; empty if there is none.
func (l *listener) conflict() string {
	if l.verdict == nil {
		return ""
	}
	for _, c := range l.verdict.Conditions {
		if bad := map[string]string{"Accepted": "False", "Conflicted": "True"}[c.Type]; bad != "" && c.Status == bad {
			return c.Reason + ", " + c.Message
		}
	}
	return ""
}

// isOurs reports whether a Gateway is ours.
func (w *World) isOurs(f *cluster.Frontend) bool {
	_, ours := w.verdicts.Gateways[f.Key]
	return ours
}

// whoseGateway says whose a Gateway is that is not ours, as in "is of GatewayClass x of controller y".
func (w *World) whoseGateway(f *cluster.Frontend) string {
	class := cluster.GatewayClasses.Get(w.view, cluster.Key{Name: f.Gateway.Class})
	if class == nil {
		return fmt.Sprintf("is of GatewayClass %s, which does not exist: nobody serves it", f.Gateway.Class)
	}
	return fmt.Sprintf("is of GatewayClass %s, whose controller is %s", class.Name, class.Controller)
}

// whoseIngress says whose an Ingress is that is not ours.
func (w *World) whoseIngress(f *cluster.Frontend) string {
	name := cmp.Or(f.Ingress.Class, f.Ingress.OldClass)
	if name == "" {
		return "has no class, and none of ours is the default"
	}
	class := cluster.IngressClasses.Get(w.view, cluster.Key{Name: name})
	if class == nil {
		return fmt.Sprintf("is of IngressClass %s, which does not exist: nobody serves it", name)
	}
	return fmt.Sprintf("is of IngressClass %s, whose controller is %s", name, class.Controller)
}
