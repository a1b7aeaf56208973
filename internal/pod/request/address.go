package request

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// addresses returns the addresses that the request may be sent to; none if they are not known. ok is false
// if it is sent to none, or not to a gateway.
func (x *explainer) addresses() (addrs []netip.Addr, ok bool) {
	if addr, is := x.Message.addr(); is {
		addrs = append(addrs, addr)
	}
	if x.DNS != nil {
		for _, r := range x.DNS.Records {
			if addr, err := netip.ParseAddr(r.Data); err == nil && (r.Type == "A" || r.Type == "AAAA") {
				addrs = append(addrs, addr.Unmap())
			}
		}
		switch {
		case len(addrs) > 0:
		case x.DNS.NotKnown():
			x.e.Note = x.Message.Name + " is outside the cluster and was not looked up (--live does that): " +
				"its address is taken for that of a Gateway"
		default:
			x.e.Outcome = "no request: " + x.Message.Name + " does not resolve in the Pod: " + x.DNS.Outcome
			x.e.Diagnoses = append(x.e.Diagnoses, x.DNS.Diagnoses...)
			return nil, false
		}
	}
	return addrs, !slices.ContainsFunc(addrs, x.elsewhere)
}

// elsewhere reports whether an address is not one of the gateway's, as far as these are known, and says
// whose it is.
func (x *explainer) elsewhere(addr netip.Addr) bool {
	ours := x.known
	if slices.Contains(slices.Concat(slices.Collect(maps.Values(ours))...), addr) {
		return false
	}
	at := fmt.Sprintf("%s resolves to %s", x.Message.Name, addr)
	if _, is := x.Message.addr(); is {
		at = "the host is " + addr.String()
	}
	cure := "let the name lead to an address of the gateway" + listed(ours)
	for f := range cluster.Gateways.All(x.view) {
		if slices.Contains(f.Addresses, addr) {
			x.e.Outcome = "not this gateway's: the address is that of Gateway " + f.String()
			x.add("other-gateway", x.cureOfGateway(f, seeGateway),
				"%s, the address of Gateway %s, which %s", at, f.Key, x.whoseGateway(f))
			return true
		}
	}
	for f := range cluster.Ingresses.All(x.view) {
		if slices.Contains(f.Addresses, addr) {
			x.e.Outcome = "not this gateway's: the address is that of Ingress " + f.String()
			x.add("other-gateway", x.cureOfIngressClass(f, "see that controller's log, and the events of the Ingress"),
				"%s, the address of Ingress %s, which %s", at, f.Key, x.whoseIngress(f))
			return true
		}
	}
	return x.atService(addr, at, cure) || len(ours) > 0 && x.atNobody(addr, at, cure)
}

// atService reports whether an address is that of a Service, to which requests go without a gateway.
func (x *explainer) atService(addr netip.Addr, at, cure string) bool {
	for s := range x.view.Services() {
		if !slices.Contains(s.ClusterIPs, addr) && (s.External == nil || !slices.Contains(s.External.Addresses, addr)) {
			continue
		}
		if s.External != nil && slices.Contains(s.External.Addresses, addr) && len(x.known) == 0 {
			return false // it may be the gateway's own
		}
		x.e.Outcome = "no gateway: the connection is to Service " + s.String()
		x.add("not-a-gateway", fmt.Sprintf("see portolan explain %s:%d; or %s", x.Message.Name, x.Message.Port, cure),
			"%s, an address of Service %s: the request does not pass a gateway", at, s.Key)
		return true
	}
	return false
}

// atNobody says that an address is no gateway's.
func (x *explainer) atNobody(addr netip.Addr, at, cure string) bool {
	if n := x.nodeWith(addr); n != "" {
		at += ", an address of node " + n
	}
	x.e.Outcome = "not this gateway's: no Gateway has the address " + addr.String()
	x.add("address-differs", cure, "%s, which no Gateway and no Ingress has", at)
	return true
}

// nodeWith returns the node that has an address, empty if none has.
func (x *explainer) nodeWith(addr netip.Addr) string {
	for n := range x.view.Nodes() {
		if slices.Contains(n.Addresses, addr) {
			return n.Name
		}
	}
	return ""
}

// knownAddresses returns the addresses of our Gateways and Ingresses, those of their own and those that their statuses
// have.
func (w *World) knownAddresses() map[string][]netip.Addr {
	all := make(map[string][]netip.Addr)
	for key, v := range w.verdicts.Gateways {
		var addrs []netip.Addr
		for _, a := range slices.Concat(v.Addresses, v.Named) {
			if a.IsValid() { // not all that are shared
				addrs = append(addrs, a)
			}
		}
		if f := cluster.Gateways.Get(w.view, key); f != nil {
			addrs = append(addrs, f.Addresses...)
		}
		if len(addrs) > 0 {
			all["Gateway "+key.String()] = addrs
		}
	}
	for key := range w.verdicts.Ingresses {
		if f := cluster.Ingresses.Get(w.view, key); f != nil && len(f.Addresses) > 0 {
			all["Ingress "+key.String()] = f.Addresses
		}
	}
	return all
}

// Has reports whether an address is known as one of our Gateways and Ingresses.
func (w *World) Has(addr netip.Addr) bool {
	for _, addrs := range w.known {
		if slices.Contains(addrs, addr) {
			return true
		}
	}
	return false
}

// mostNamed is the maximum number of objects that a sentence names.
const mostNamed = 3

// listed returns some objects with their addresses, in parentheses.
func listed(all map[string][]netip.Addr) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		words = append(words, name+" has "+all[name][0].String())
	}
	if len(words) == 0 {
		return ""
	}
	return " (" + few(words) + ")"
}

// few joins the first words, and says how many more there are.
func few(words []string) string {
	text := strings.Join(words[:min(len(words), mostNamed)], ", ")
	if more := len(words) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// socketsOf returns the sockets with a port, by address.
func (w *World) socketsOf(port uint16) (all []table.Socket) {
	for at := range w.table.Sockets() {
		if at.Port == port {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b table.Socket) int { return a.Addr.Compare(b.Addr) })
	return all
}

// place is where a request may come to.
type place struct {
	addr netip.Addr // not valid for what Gateways share
	port *table.Port
}

// places returns where the request comes to at some addresses or, if none is known, where it may come to; one
// for each place with other listeners.
func (x *explainer) places(addrs []netip.Addr) (all []place) {
	add := func(at table.Socket) {
		p := x.table.Port(at)
		if p != nil && !slices.ContainsFunc(all, func(o place) bool { return o.port == p }) {
			all = append(all, place{at.Addr, p})
		}
	}
	for _, addr := range addrs {
		at := table.Socket{Addr: addr, Port: x.Message.Port}
		if x.table.Port(at) == nil {
			at.Addr = netip.Addr{}
		}
		add(at)
	}
	if len(addrs) > 0 {
		if len(all) == 0 {
			x.noPort()
		}
		return all
	}
	for _, at := range x.socketsOf(x.Message.Port) {
		add(at)
	}
	if len(all) == 0 {
		x.noPort()
		return nil
	}
	most := unserved
	for _, p := range all {
		most = max(most, narrowness(p.port, x.Message.Host))
	}
	if most == unserved {
		return all[:1]
	}
	return slices.DeleteFunc(all, func(p place) bool { return narrowness(p.port, x.Message.Host) < most })
}
