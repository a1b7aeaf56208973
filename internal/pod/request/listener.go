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
	if x.Message.Scheme == "https" { // the server name decides whose connection it is
		if owner, _ := p.port.Host(x.Message.serverName()); owner != nil && owner.Mode != table.Requests {
			l, host = owner, nil
		}
	}
	if l != nil {
		a.Listener, a.Hostname = l.Name, l.Hostname
	}
	a.TLS = x.tls(p.port)
	unrecognized := a.TLS != nil && a.TLS.Refused == noListenerForTLS
	switch {
	case l == nil && unrecognized:
		a.Reason = a.TLS.Refused
		x.noListener(p.port)
		x.e.Answers = append(x.e.Answers, a)
		return
	case unrecognized:
		x.noServerName(p.port)
	}
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
	case l.Mode != table.Requests && (x.Message.Scheme != "https" || a.TLS == nil || a.TLS.Listener == l.Name):
		x.stream(&a, p.port)
	case x.Message.Scheme == "https" && p.port.Misdirected(x.Message.serverName(), x.Message.Host):
		a.Status, a.Reason = 421, "another listener has the host"
		cure := "use " + x.Message.Host + " in the URL; a client that shares connections between hosts opens one for the " +
			"host when it gets 421"
		x.add("misdirected", cure,
			"the TLS connection is for %s, and %s serves the host %s on connections for it only (421, Misdirected Request)",
			x.Message.Name, l.Name, x.Message.Host)
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
		x.add("listener-not-served", l.cure(), "%s, which has port %d, is not served: %s", l.name(), port,
			l.whyNot())
	}
	if len(others) > 0 && len(unserved) == 0 {
		x.e.Outcome = fmt.Sprintf("not this gateway's: port %d is that of Gateway %s", port, others[0].gateway.Key)
	}
	for _, l := range others[:min(len(others), mostNamed)] {
		x.add("other-gateway", x.cureOfGateway(l.gateway, seeGateway),
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
	cure := "use one of these hosts, or add a listener for this one"
	if x.isAddressed() {
		cure = nameTheHost
	}
	if !x.unattached() {
		x.add(
			"no-listener",
			cure,
			"no listener of port %d is for the host %s; there are those for %s",
			x.Message.Port,
			x.Message.Host,
			few(hostnames(p)),
		)
	}
}

// noServerName says that no listener of a port has the server name of the TLS handshake, although one has the host.
func (x *explainer) noServerName(p *table.Port) {
	name := "a handshake without a server name, as to an address"
	if server := x.Message.serverName(); server != "" {
		name = "the server name " + server
	}
	x.add("no-server-name", "use "+x.Message.Host+" in the URL, as clients do that resolve it themselves (curl --resolve)",
		"no listener of port %d is for %s; there are those for %s", x.Message.Port, name, few(hostnames(p)))
}

// hostnames returns the hostnames of the listeners of a port, with the listeners' names.
func hostnames(p *table.Port) (all []string) {
	for l := range p.Listeners() {
		all = append(all, l.Hostname+" ("+l.Name+")")
	}
	slices.Sort(all)
	return all
}

// isAddressed reports whether the host of a request is an address, which hostnames of listeners and routes never are.
func (x *explainer) isAddressed() bool {
	return x.Message.HasAddress() && x.Message.Host == x.Message.Name
}

// nameTheHost is the cure of a request to an address.
const nameTheHost = "name the host that the address stands for, --header 'Host: NAME'"

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

// cure returns how a listener of ours is served that is not, or that refuses all clients.
func (l *listener) cure() string {
	reason, _, _ := strings.Cut(l.conflict(), ",")
	switch reason {
	case "NoValidCACertificate":
		return "name a ConfigMap that exists, and has certificates in ca.crt, in spec.tls.frontend of Gateway " +
			l.gateway.String()
	case "HostnameConflict":
		return "give one of the listeners another port or hostname"
	case "ProtocolConflict":
		return "give one of the listeners another port, or both the same protocol"
	case "UnsupportedProtocol", "UnsupportedValue":
		return "correct the protocol and the mode of TLS of the listener"
	}
	return fmt.Sprintf("correct listener %s of %s", l.spec.Name, l.owner)
}

// isOurs reports whether a Gateway is ours.
func (w *World) isOurs(f *cluster.Frontend) bool {
	_, ours := w.verdicts.Gateways[f.Key]
	return ours
}

// seeGateway is the cure of what another controller serves.
const seeGateway = "see what that controller says in the status of the Gateway and its routes"

// whoseGateway says whose a Gateway is that is not ours, as in "is of GatewayClass x of controller y".
func (w *World) whoseGateway(f *cluster.Frontend) string {
	class := cluster.GatewayClasses.Get(w.view, cluster.Key{Name: f.Gateway.Class})
	if class == nil {
		return fmt.Sprintf("is of GatewayClass %s, which does not exist: nobody serves it", f.Gateway.Class)
	}
	return fmt.Sprintf("is of GatewayClass %s, whose controller is %s", class.Name, class.Controller)
}

// cureOfGateway returns what to do about a Gateway that is not ours; ask is where its controller says more.
func (w *World) cureOfGateway(f *cluster.Frontend, ask string) string {
	if cluster.GatewayClasses.Get(w.view, cluster.Key{Name: f.Gateway.Class}) != nil {
		return ask
	}
	var ours []string
	for c := range cluster.GatewayClasses.All(w.view) {
		if c.Controller == w.cfg.GatewayController {
			ours = append(ours, c.Name)
		}
	}
	return cureOfClass("spec.gatewayClassName of Gateway "+f.String(), "controllerName "+w.cfg.GatewayController, ours)
}

// cureOfIngressClass returns what to do about the class of an Ingress that is not ours; ask is where its controller
// says more.
func (w *World) cureOfIngressClass(f *cluster.Frontend, ask string) string {
	name := cmp.Or(f.Ingress.Class, f.Ingress.OldClass)
	if name == "" || cluster.IngressClasses.Get(w.view, cluster.Key{Name: name}) != nil {
		return ask
	}
	var ours []string
	for c := range cluster.IngressClasses.All(w.view) {
		if c.Controller == w.cfg.IngressController {
			ours = append(ours, c.Name)
		}
	}
	return cureOfClass("spec.ingressClassName of Ingress "+f.String(), "controller "+w.cfg.IngressController, ours)
}

// cureOfClass returns what to do about a class in a field that does not exist, where some exist that are ours.
func cureOfClass(field, controller string, ours []string) string {
	if slices.Sort(ours); len(ours) > 0 {
		return fmt.Sprintf("set %s to %s, or create the class", field, strings.Join(ours, " or "))
	}
	return "create the class, with the " + controller
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
