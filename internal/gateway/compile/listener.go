package compile

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// gatewayGroup is the API group of Gateway API.
const gatewayGroup = "gateway.networking.k8s.io"

var httpRoute = cluster.GroupKind{Group: gatewayGroup, Kind: "HTTPRoute"}

// listener is a listener of a Gateway or ListenerSet.
type listener struct {
	owner   cluster.Ref
	gateway cluster.Key
	spec    *cluster.Listener
	sockets []table.Socket
	// kinds are those of routes that it takes.
	kinds []cluster.GroupKind
	// conditions are Accepted, Conflicted and ResolvedRefs.
	conditions []cluster.Condition
	valid      bool // serves
}

// name returns the listener's name, for people.
func (l *listener) name() string { return l.owner.String() + " " + l.spec.Name }

// holder is a Gateway or ListenerSet with listeners.
type holder struct {
	ref       cluster.Ref
	meta      *cluster.Meta
	accepted  cluster.Condition
	at        *assignment // of the Gateway
	listeners []*listener
}

// gateways is all that Gateways of our classes are compiled into.
type gateways struct {
	classes map[cluster.Key]ClassVerdict
	holders map[cluster.Ref]*holder
	serving []*listener // those that are valid
}

// compileGateways compiles the Gateways of our classes.
func (c *Config) compileGateways(v *cluster.View) gateways {
	g := gateways{classes: make(map[cluster.Key]ClassVerdict), holders: make(map[cluster.Ref]*holder)}
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
	assigned := c.assign(all)
	var order []*holder
	for _, gw := range all {
		order = append(order, c.compileGateway(v, gw, assigned[gw.Key])...)
	}
	resolveConflicts(order)
	findOverlaps(order)
	for _, h := range order {
		g.holders[h.ref] = h
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

// compileGateway compiles a Gateway and the ListenerSets that add to it, older ones first.
func (c *Config) compileGateway(v *cluster.View, gw *cluster.Frontend, at *assignment) []*holder {
	h := &holder{ref: gw.Ref(), meta: &gw.Gateway.Meta, accepted: c.acceptance(gw.Gateway), at: at}
	h.add(gw.Key, gw.Gateway.Listeners)
	all := []*holder{h}
	ref := cluster.ObjectRef{Group: gatewayGroup, Kind: "Gateway", Namespace: gw.Namespace, Name: gw.Name}
	sets := slices.Values(cluster.ListenerSetsByGateway.Get(v, ref))
	for _, set := range sorted(sets, func(s *cluster.ListenerSet) *cluster.Meta { return &s.Meta }) {
		s := &holder{ref: set.Ref(), meta: &set.Meta, accepted: yes(accepted, "Accepted", ""), at: at}
		of := v.Namespace(set.Namespace)
		if of == nil || !gw.Gateway.ListenerSets.Selects(of, gw.Namespace) {
			s.accepted = no(accepted, "NotAllowed", "the Gateway's spec.allowedListeners does not select the namespace")
		} else if h.accepted.Status != "True" {
			s.accepted = no(accepted, "ParentNotAccepted", "the Gateway is not accepted")
		}
		s.add(gw.Key, set.Listeners)
		all = append(all, s)
	}
	return all
}

// add adds listeners.
func (h *holder) add(gateway cluster.Key, specs []cluster.Listener) {
	for i := range specs {
		l := &listener{owner: h.ref, gateway: gateway, spec: &specs[i], valid: h.accepted.Status == "True"}
		for _, a := range h.at.addrs {
			l.sockets = append(l.sockets, table.Socket{Addr: a, Port: l.spec.Port})
		}
		l.judge()
		h.listeners = append(h.listeners, l)
	}
}

// judge sets the listener's kinds, and its conditions but for Conflicted and what is known of certificates.
func (l *listener) judge() {
	acceptance, refs := yes(accepted, "Accepted", ""), yes(resolvedRefs, "ResolvedRefs", "")
	l.kinds = []cluster.GroupKind{httpRoute}
	switch {
	case l.spec.Protocol != cluster.HTTPProtocol && l.spec.Protocol != cluster.HTTPSProtocol:
		acceptance = no(accepted, "UnsupportedProtocol", fmt.Sprintf("protocol %s is not supported", l.spec.Protocol))
		l.kinds = nil
	case l.terminates() && l.spec.TLS != nil && l.spec.TLS.Mode == cluster.TLSPassthrough:
		acceptance = no(accepted, "UnsupportedValue", "tls.mode is Passthrough, which protocol HTTPS cannot have")
	}
	l.valid = l.valid && acceptance.Status == "True"
	if len(l.spec.Kinds) > 0 {
		known := l.kinds
		l.kinds = nil
		for _, k := range l.spec.Kinds {
			if slices.Contains(known, k) {
				l.kinds = append(l.kinds, k)
			} else {
				refs = no(resolvedRefs, "InvalidRouteKinds", fmt.Sprintf("routes of kind %s are not supported", k.Kind))
			}
		}
	}
	l.conditions = []cluster.Condition{acceptance, refs}
}

// resolveConflicts decides which listeners of equal sockets serve. Holders come in the order of their
// right; of those of one holder that conflict none serves (Gateway API, GatewaySpec.listeners).
func resolveConflicts(order []*holder) {
	type place struct {
		socket   table.Socket
		hostname string
	}
	taken := make(map[place]*listener)
	protocols := make(map[table.Socket]*listener)
	for _, h := range order {
		lost := h.mixedProtocols()
		for _, l := range h.listeners {
			for _, s := range l.sockets {
				switch by := taken[place{s, l.spec.Hostname}]; {
				case by == nil:
				case by.owner == h.ref:
					lost[by] = yes(conflicted, "HostnameConflict", "another listener has the port and the hostname")
					fallthrough
				default:
					lost[l] = yes(conflicted, "HostnameConflict", by.name()+" has the port and the hostname")
				}
				if by := protocols[s]; by != nil && by.spec.Protocol != l.spec.Protocol {
					lost[l] = yes(conflicted, "ProtocolConflict", by.name()+" has the port, with another protocol")
				}
			}
			if _, ok := lost[l]; ok || !l.valid {
				continue
			}
			for _, s := range l.sockets {
				taken[place{s, l.spec.Hostname}] = l
				protocols[s] = cmp.Or(protocols[s], l)
			}
		}
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

// mixedProtocols returns the listeners whose port another one of the holder has with another protocol.
func (h *holder) mixedProtocols() map[*listener]cluster.Condition {
	first := make(map[uint16]*listener)
	mixed := make(map[uint16]bool)
	for _, l := range h.listeners {
		if !l.valid {
			continue
		}
		by := cmp.Or(first[l.spec.Port], l)
		first[l.spec.Port] = by
		mixed[l.spec.Port] = mixed[l.spec.Port] || by.spec.Protocol != l.spec.Protocol
	}
	lost := make(map[*listener]cluster.Condition)
	for _, l := range h.listeners {
		if mixed[l.spec.Port] {
			lost[l] = yes(conflicted, "ProtocolConflict", "listeners with other protocols have the port")
		}
	}
	return lost
}

// verdict returns what is said of a Gateway or ListenerSet, with the number of routes at each listener and
// its certificates.
func (h *holder) verdict(attached map[string]int32, of map[string]*certified) *GatewayVerdict {
	made := &GatewayVerdict{
		Conditions: []cluster.Condition{h.accepted}, Addresses: h.at.addrs, Unprogrammed: h.at.problem,
	}
	some := false // is programmed
	for _, l := range h.listeners {
		verdict := l.verdict(of[l.name()])
		verdict.AttachedRoutes = attached[l.name()]
		some = some || verdict.Unprogrammed == nil
		made.Listeners = append(made.Listeners, verdict)
		if !l.valid && h.accepted.Status == "True" {
			// The Gateway is accepted as long as one of its listeners is (GatewayReasonListenersNotValid).
			some := slices.ContainsFunc(h.listeners, func(l *listener) bool { return l.valid })
			made.Conditions[0] = cluster.Condition{
				Type: accepted, Status: map[bool]string{true: "True", false: "False"}[some],
				Reason: "ListenersNotValid", Message: "see the conditions of the listeners",
			}
		}
	}
	if made.Unprogrammed == nil && !some {
		made.Unprogrammed = new(no(programmed, "Invalid", "no listener is programmed"))
	}
	return made
}

// verdict returns what is said of a listener, but for its routes.
func (l *listener) verdict(of *certified) ListenerVerdict {
	made := ListenerVerdict{Name: l.spec.Name, SupportedKinds: l.kinds, Conditions: slices.Clone(l.conditions)}
	invalid := func(message string) { made.Unprogrammed = new(no(programmed, "Invalid", message)) }
	switch {
	case !l.valid:
		invalid("see the other conditions")
	case len(l.sockets) == 0:
		made.Unprogrammed = new(no(programmed, "Pending", "the Gateway has no address"))
	}
	if of == nil {
		return made
	}
	if len(of.certificates) == 0 {
		invalid("the listener has no certificate")
	}
	for i, c := range made.Conditions {
		if of.refs != nil && c.Type == resolvedRefs {
			made.Conditions[i] = *of.refs
		}
	}
	return made
}

// sorted returns objects, the older one first.
func sorted[T cluster.Object](all iter.Seq[T], meta func(T) *cluster.Meta) []T {
	return slices.SortedFunc(all, func(a, b T) int {
		return cmp.Or(meta(a).Compare(meta(b).Age), a.Ref().Key.Compare(b.Ref().Key))
	})
}
