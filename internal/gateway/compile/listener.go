package compile

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// gatewayGroup is the API group of Gateway API.
const gatewayGroup = "gateway.networking.k8s.io"

// groupKind returns a kind of Gateway API.
func groupKind(k cluster.Kind) cluster.GroupKind {
	return cluster.GroupKind{Group: gatewayGroup, Kind: k.String()}
}

// listener is a listener of a Gateway or ListenerSet.
type listener struct {
	owner   cluster.Ref
	gateway cluster.Key
	spec    *cluster.Listener
	// fullName has the owner, too.
	fullName string
	// hostname is empty for protocols without one.
	hostname string
	sockets  []table.Socket
	// kinds are those of routes that it takes.
	kinds []cluster.GroupKind
	// conditions are Accepted, Conflicted and ResolvedRefs.
	conditions []cluster.Condition
	// clients are those that may open connections; nil for all.
	clients        *table.Clients
	lacksAuthority bool // a reference to authorities of clients leads to none
	valid          bool // serves
	refuses        bool // all clients, though it is valid
}

// name returns the listener's name, for people.
func (l *listener) name() string { return l.fullName }

// holder is a Gateway or ListenerSet with listeners.
type holder struct {
	from      cluster.Object
	ref       cluster.Ref
	gateway   cluster.Key // itself, or that of a ListenerSet
	meta      *cluster.Meta
	accepted  cluster.Condition
	at        *assignment // of the Gateway
	listeners []*listener
}

// gateways is all that Gateways of our classes are compiled into.
type gateways struct {
	classes map[cluster.Key]ClassVerdict
	holders map[cluster.Ref]*holder
	// sets are the ListenerSets of each Gateway.
	sets    map[cluster.Key][]*holder
	serving []*listener // those that are valid
	shared  shared
}

// compileGateways compiles the Gateways of our classes.
func (c *Config) compileGateways(v *cluster.View) gateways {
	g := gateways{
		classes: make(map[cluster.Key]ClassVerdict), holders: make(map[cluster.Ref]*holder),
		sets: make(map[cluster.Key][]*holder), shared: c.Publish.find(v),
	}
	for class := range cluster.GatewayClasses.All(v) {
		if class.Controller == c.GatewayController {
			g.classes[class.Ref().Key] = classVerdict(class)
		}
	}
	metaOf := func(f *cluster.Frontend) *cluster.Meta { return &f.Gateway.Meta }
	all := slices.DeleteFunc(sorted(cluster.Gateways.All(v), metaOf), func(gw *cluster.Frontend) bool {
		_, ours := g.classes[cluster.Key{Name: gw.Gateway.Class}]
		return !ours
	})
	assigned := c.assign(slices.DeleteFunc(slices.Clone(all), func(gw *cluster.Frontend) bool {
		return g.classes[cluster.Key{Name: gw.Gateway.Class}].Conditions[0].Status != "True"
	}), &g.shared)
	var order []*holder
	for _, gw := range all {
		order = append(order, c.compileGateway(v, gw, assigned[gw.Key])...)
	}
	resolveConflicts(order)
	findOverlaps(order)
	for _, h := range order {
		g.holders[h.ref] = h
		if h.ref.Kind == cluster.KindListenerSet {
			g.sets[h.gateway] = append(g.sets[h.gateway], h)
		}
		for _, l := range h.listeners {
			if l.valid {
				g.serving = append(g.serving, l)
			}
		}
	}
	return g
}

// classVerdict says what is said of a class.
func classVerdict(class *cluster.GatewayClass) ClassVerdict {
	if class.Parameters != nil {
		return ClassVerdict{[]cluster.Condition{no(accepted, "InvalidParameters", "spec.parametersRef is not supported")}}
	}
	return ClassVerdict{[]cluster.Condition{yes(accepted, "Accepted", "")}}
}

// compileGateway compiles a Gateway and the ListenerSets that add to it, older ones first. at is nil if its class
// is not accepted.
func (c *Config) compileGateway(v *cluster.View, gw *cluster.Frontend, at *assignment) []*holder {
	h := &holder{
		from: gw, ref: gw.Ref(), gateway: gw.Key, meta: &gw.Gateway.Meta, accepted: c.acceptance(gw.Gateway), at: at,
	}
	if at == nil {
		h.accepted = no(accepted, "Invalid", fmt.Sprintf("GatewayClass %s is not accepted", gw.Gateway.Class))
		h.at = new(assignment)
	}
	h.add(v, gw, gw.Gateway.Listeners)
	all := []*holder{h}
	ref := cluster.ObjectRef{Group: gatewayGroup, Kind: "Gateway", Namespace: gw.Namespace, Name: gw.Name}
	sets := slices.Values(cluster.ListenerSetsByGateway.Get(v, ref))
	for _, set := range sorted(sets, func(s *cluster.ListenerSet) *cluster.Meta { return &s.Meta }) {
		s := &holder{
			from: set, ref: set.Ref(), gateway: gw.Key, meta: &set.Meta, accepted: yes(accepted, "Accepted", ""), at: h.at,
		}
		of := v.Namespace(set.Namespace)
		if of == nil || !gw.Gateway.ListenerSets.Selects(of, gw.Namespace) {
			s.accepted = no(accepted, "NotAllowed", "the Gateway's spec.allowedListeners does not select the namespace")
		} else if h.accepted.Status != "True" {
			s.accepted = no(accepted, "ParentNotAccepted", fmt.Sprintf("Gateway %s is not accepted", gw.Key))
		}
		s.add(v, gw, set.Listeners)
		all = append(all, s)
	}
	return all
}

// add adds listeners of a Gateway.
func (h *holder) add(v *cluster.View, gw *cluster.Frontend, specs []cluster.Listener) {
	for i := range specs {
		l := &listener{
			owner: h.ref, gateway: gw.Key, spec: &specs[i], fullName: h.ref.String() + " " + specs[i].Name,
			valid: h.accepted.Status == "True",
		}
		if l.spec.Protocol != cluster.TCPProtocol && l.spec.Protocol != cluster.UDPProtocol {
			l.hostname = l.spec.Hostname
		}
		for _, a := range h.at.addrs {
			l.sockets = append(l.sockets, table.Socket{Addr: a, Port: l.spec.Port, Transport: l.transport()})
		}
		l.judge()
		l.admit(v, gw)
		h.listeners = append(h.listeners, l)
	}
}

// judge sets the listener's kinds, and its conditions but for Conflicted and what is known of certificates.
func (l *listener) judge() {
	acceptance, refs := yes(accepted, "Accepted", ""), yes(resolvedRefs, "ResolvedRefs", "")
	for _, k := range protocolKinds[l.spec.Protocol] {
		l.kinds = append(l.kinds, groupKind(k))
	}
	switch {
	case l.unsupported():
		acceptance = no(accepted, "UnsupportedProtocol", fmt.Sprintf("protocol %s is not supported", l.spec.Protocol))
	case l.spec.Protocol == cluster.HTTPSProtocol && !l.terminates():
		acceptance = no(accepted, "UnsupportedValue", "tls.mode is Passthrough, which protocol HTTPS cannot have")
	}
	l.valid = l.valid && acceptance.Status == "True"
	if len(l.spec.Kinds) > 0 {
		known, unknown := l.kinds, []string(nil)
		l.kinds = nil
		for _, k := range l.spec.Kinds {
			switch {
			case slices.Contains(known, k):
				l.kinds = append(l.kinds, k)
			case k.Group == gatewayGroup:
				unknown = append(unknown, k.Kind)
			default:
				unknown = append(unknown, k.Kind+" of group "+k.Group)
			}
		}
		if unknown != nil {
			message := "kinds of routes that are not supported: " + strings.Join(unknown, ", ")
			refs = no(resolvedRefs, "InvalidRouteKinds", message)
		}
	}
	l.conditions = []cluster.Condition{acceptance, refs}
}

// unsupported reports whether the listener's protocol is none that is served.
func (l *listener) unsupported() bool { return protocolKinds[l.spec.Protocol] == nil }

// protocolKinds are the kinds of routes that listeners of each protocol take (Gateway API,
// ListenerStatus.supportedKinds).
var protocolKinds = map[cluster.ListenerProtocol][]cluster.Kind{
	cluster.HTTPProtocol:  {cluster.KindHTTPRoute, cluster.KindGRPCRoute},
	cluster.HTTPSProtocol: {cluster.KindHTTPRoute, cluster.KindGRPCRoute},
	cluster.TLSProtocol:   {cluster.KindTLSRoute},
	cluster.TCPProtocol:   {cluster.KindTCPRoute},
	cluster.UDPProtocol:   {cluster.KindUDPRoute},
}

// transport returns what carries the listener's protocol.
func (l *listener) transport() table.Transport {
	if l.spec.Protocol == cluster.UDPProtocol {
		return table.UDP
	}
	return table.TCP
}

// opening returns how connections to the listener begin.
func (l *listener) opening() table.Opening {
	switch l.spec.Protocol {
	case cluster.HTTPSProtocol, cluster.TLSProtocol:
		return table.Handshake
	case cluster.TCPProtocol, cluster.UDPProtocol:
		return table.Raw
	}
	return table.Plain
}

// mode returns what the listener does with connections.
func (l *listener) mode() table.Mode {
	switch {
	case l.spec.Protocol == cluster.TLSProtocol && !l.terminates():
		return table.Passthrough
	case l.spec.Protocol == cluster.TLSProtocol || l.opening() == table.Raw:
		return table.Stream
	}
	return table.Requests
}

// claim is what only one listener can have.
type claim struct {
	socket   table.Socket
	hostname string
}

// resolveConflicts decides which listeners of equal sockets serve. Holders come in the order of their
// right; of those of one holder that conflict, and lose to no other holder, none serves (Gateway API,
// GatewaySpec.listeners), and none of another holder in their place. Listeners that cannot be served conflict with
// none, but one whose protocol is not supported loses to one of another holder that has the port (conformance,
// ListenerSetProtocolConflict).
func resolveConflicts(order []*holder) {
	taken := make(map[claim]*listener)
	protocols := make(map[table.Socket][]*listener) // the first of each
	for _, h := range order {
		late := make(map[*listener]cluster.Condition) // those that lost to another holder
		for _, l := range h.listeners {
			if !l.valid && (!l.unsupported() || h.accepted.Status != "True") {
				continue
			}
			for _, s := range l.sockets {
				if by := taken[claim{s, l.hostname}]; by != nil {
					late[l] = yes(conflicted, "HostnameConflict", by.name()+" has the port and the hostname")
				}
				if i := slices.IndexFunc(protocols[s], l.differs); i >= 0 {
					by := protocols[s][i]
					late[l] = yes(conflicted, "ProtocolConflict", by.name()+" has the port, with another protocol")
				}
			}
		}
		claims := slices.DeleteFunc(slices.Clone(h.listeners), func(l *listener) bool {
			_, lost := late[l]
			return lost || !l.valid
		})
		lost := conflictsWithin(claims)
		for _, l := range claims {
			for _, s := range l.sockets {
				at := claim{s, l.hostname}
				taken[at] = cmp.Or(taken[at], l)
				if !slices.ContainsFunc(protocols[s], func(o *listener) bool { return !l.differs(o) }) {
					protocols[s] = append(protocols[s], l)
				}
			}
		}
		maps.Copy(lost, late)
		for _, l := range h.listeners {
			condition, ok := lost[l]
			if !ok {
				condition = no(conflicted, "NoConflicts", "")
			}
			l.conditions = append(l.conditions, condition)
			l.valid = l.valid && !ok
		}
	}
}

// differs reports whether two listeners have protocols that one port cannot serve. Those with TLS are told apart by
// the server name.
func (l *listener) differs(o *listener) bool {
	return l.spec.Protocol != o.spec.Protocol && (l.opening() != table.Handshake || o.opening() != table.Handshake)
}

// conflictsWithin returns the listeners of a holder whose port another one has with another protocol, or with the
// same hostname.
func conflictsWithin(listeners []*listener) map[*listener]cluster.Condition {
	lost := make(map[*listener]cluster.Condition)
	for i, l := range listeners {
		for _, o := range listeners[:i] {
			if l.spec.Port != o.spec.Port || l.transport() != o.transport() {
				continue
			}
			switch {
			case l.differs(o):
				const message = "listener %s has the port, with another protocol"
				lost[l] = yes(conflicted, "ProtocolConflict", fmt.Sprintf(message, o.spec.Name))
				lost[o] = yes(conflicted, "ProtocolConflict", fmt.Sprintf(message, l.spec.Name))
			case l.hostname == o.hostname:
				const message = "listener %s has the port and the hostname, too"
				lost[l] = yes(conflicted, "HostnameConflict", fmt.Sprintf(message, o.spec.Name))
				lost[o] = yes(conflicted, "HostnameConflict", fmt.Sprintf(message, l.spec.Name))
			}
		}
	}
	return lost
}

// verdict returns what is said of a Gateway or ListenerSet, with the number of routes at each listener and
// its certificates.
func (h *holder) verdict(attached map[string]int32, of map[string]*certified) *GatewayVerdict {
	made := &GatewayVerdict{
		Conditions: []cluster.Condition{h.acceptance(of)}, Addresses: h.at.addrs, Named: h.at.named,
		Unprogrammed: h.at.problem,
	}
	some := false // is programmed
	for _, l := range h.listeners {
		verdict := l.verdict(of[l.name()])
		verdict.AttachedRoutes = attached[l.name()]
		some = some || verdict.Unprogrammed == nil
		made.Listeners = append(made.Listeners, verdict)
	}
	if made.Unprogrammed == nil && !some {
		made.Unprogrammed = new(no(programmed, "Invalid", "no listener is programmed"))
	}
	return made
}

// acceptance returns the condition Accepted. What is acceptable itself is accepted as long as one of its
// listeners is (GatewayReasonListenersNotValid). To a ListenerSet, one that lacks its certificates does not count
// (conformance, ListenerSetReferenceGrant); a Gateway's is accepted without (GatewayWithAttachedRoutes).
func (h *holder) acceptance(of map[string]*certified) cluster.Condition {
	var valid, invalid []string
	for _, l := range h.listeners {
		if l.valid && !l.refuses && (h.ref.Kind == cluster.KindGateway || !of[l.name()].lacking()) {
			valid = append(valid, l.spec.Name)
		} else {
			invalid = append(invalid, l.spec.Name)
		}
	}
	const reason, message = "ListenersNotValid", "not served, see their conditions: "
	switch {
	case h.accepted.Status != "True" || len(invalid) == 0:
		return h.accepted
	case len(valid) == 0:
		return no(accepted, reason, message+strings.Join(invalid, ", "))
	}
	return yes(accepted, reason, message+strings.Join(invalid, ", ")+"; served: "+strings.Join(valid, ", "))
}

// verdict returns what is said of a listener, but for its routes.
func (l *listener) verdict(of *certified) ListenerVerdict {
	made := ListenerVerdict{Name: l.spec.Name, SupportedKinds: l.kinds, Conditions: slices.Clone(l.conditions)}
	invalid := func(message string) { made.Unprogrammed = new(no(programmed, "Invalid", message)) }
	switch {
	case made.conflicts():
	case !l.valid || l.refuses:
		invalid("see the other conditions")
	case len(l.sockets) == 0:
		made.Unprogrammed = new(no(programmed, "Pending", "the Gateway has no address"))
	}
	if of != nil {
		if of.lacking() {
			invalid("the listener has no certificate")
		}
		made.Expires = of.expires()
		for i, c := range made.Conditions {
			if of.refs != nil && c.Type == resolvedRefs {
				made.Conditions[i] = *of.refs
			}
		}
	}
	if made.Unprogrammed == nil {
		made.Sockets = l.sockets
	}
	return made
}

// conflicts reports whether the listener conflicts with another one. Then it is not accepted either, nor
// programmed, for the same reason (conformance, ListenerSetHostnameConflict).
func (v *ListenerVerdict) conflicts() bool {
	isConflict := func(c cluster.Condition) bool { return c.Type == conflicted && c.Status == "True" }
	i := slices.IndexFunc(v.Conditions, isConflict)
	if i < 0 {
		return false
	}
	by := &v.Conditions[i]
	v.Unprogrammed = new(no(programmed, by.Reason, by.Message))
	for k := range v.Conditions {
		if c := &v.Conditions[k]; c.Type == accepted {
			*c = no(accepted, by.Reason, by.Message)
		}
	}
	return true
}

// sorted returns objects, the older one first.
func sorted[T cluster.Object](all iter.Seq[T], meta func(T) *cluster.Meta) []T {
	return slices.SortedFunc(all, func(a, b T) int {
		return cmp.Or(meta(a).Compare(meta(b).Age), alphabetical(a.Ref().Key, b.Ref().Key))
	})
}

// alphabetical orders keys by their text, "{namespace}/{name}", which decides between objects of an age
// (HTTPRouteRule.matches). Namespace "a-b" comes before "a", as a hyphen does before a slash.
func alphabetical(a, b cluster.Key) int {
	if a.Namespace == b.Namespace {
		return cmp.Compare(a.Name, b.Name)
	}
	return cmp.Compare(a.Namespace+"/", b.Namespace+"/")
}
