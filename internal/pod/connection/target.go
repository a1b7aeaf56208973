package connection

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/semantics"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/plan"
)

// toSubject evaluates connections to a Pod, or to those that a workload will have.
func (x *explainer) toSubject() {
	to := x.subject(x.To)
	port, ok := x.containerPort(to)
	switch {
	case !ok:
		return
	case x.To.Finished():
		x.e.Outcome = TimedOut
		x.add("pod-finished", "connect to a Pod that runs", "Pod %s has finished", x.To.Key)
		return
	case len(to.Addrs) == 0:
		x.toEnd(to, netip.Addr{}, port)
		return
	}
	addrs := slices.Clone(to.Addrs)
	for _, addr := range addrs {
		if from := x.client(addr); from == nil || len(from.Addrs) > 0 || !x.hasAddress() {
			x.toEnd(narrowed(to, addr), addr, port)
		}
	}
}

// hasAddress reports whether an address of the client is known.
func (x *explainer) hasAddress() bool {
	from := x.client(netip.Addr{})
	return from != nil && len(from.Addrs) > 0
}

// containerPort returns the port of the target at a Pod: a number, or the name of a container's port.
func (x *explainer) containerPort(to *semantics.End) (p cluster.Port, ok bool) {
	if n, err := strconv.ParseUint(x.Target.Port, 10, 16); err == nil && n > 0 {
		return portOf(x.Target.Protocol, uint16(n)), true
	}
	for _, p := range to.Ports {
		if p.Name == x.Target.Port {
			x.Target.Protocol = plan.ProtocolOf(p.Protocol)
			return p, true
		}
	}
	var named []cluster.Port
	for _, p := range to.Ports {
		if p.Name != "" {
			named = append(named, p)
		}
	}
	x.e.Outcome = NotKnown
	x.add("port-name", "give the port as a number", "%s has no container port with the name %s (it names %s)",
		x.To, x.Target.Port, portsOf(named))
	return p, false
}

// toEnd evaluates the connection to an address of the Pod that is connected to; the address is not
// valid if it is not known.
func (x *explainer) toEnd(to *semantics.End, addr netip.Addr, port cluster.Port) {
	u := Use{
		Address: fmt.Sprintf("%s, port %d", x.To, port.Number), Node: to.Node, Used: true, Weight: plan.DefaultWeight,
	}
	a := Attempt{Address: x.To.String(), Node: x.Client.Node, Outcome: Connected}
	if addr.IsValid() {
		u.Address, u.Pod = netip.AddrPortFrom(addr, port.Number).String(), x.To.Key.String()
		a.Address = frontend.Address{Addr: addr, Protocol: x.Target.Protocol, Port: port.Number}.String()
	}
	from := x.client(addr)
	if x.isUnread(from, to) {
		a.Outcome = NotKnown
	} else {
		u.Egress, u.Ingress = x.judge(&flow{from: from, to: to, source: from, port: port})
		switch {
		case x.dependsOnAddress(&u):
			a.Outcome = NotKnown
		case u.verdict() == Denied:
			a.Outcome = TimedOut
			x.denied(&u)
		}
	}
	a.Endpoints = []Use{u}
	x.e.Attempts = append(x.e.Attempts, a)
}

// names returns the domain names of the target's addresses that the client looked up, with their
// aliases, in lower case without a dot at the end; nil for an address.
func (x *explainer) names() (names []string) {
	add := func(name string) {
		if name = strings.ToLower(strings.TrimSuffix(name, ".")); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if x.DNS == nil {
		return nil
	}
	if n := len(x.DNS.Candidates); n > 0 {
		add(x.DNS.Candidates[n-1].Name)
	}
	add(x.Target.Host)
	for _, r := range x.DNS.Records {
		if r.Type == "CNAME" {
			add(r.Data)
		}
	}
	return names
}

// unresolved judges a connection to a name outside the cluster of which no address is known: what
// policies deny whatever the address is.
func (x *explainer) unresolved() {
	n, err := strconv.ParseUint(x.Target.Port, 10, 16)
	from := x.client(netip.Addr{})
	to := &semantics.End{Names: x.names()}
	if err != nil || x.DNS == nil || x.e.Outcome != NotKnown || x.isUnread(from, to) {
		return
	}
	port := portOf(x.Target.Protocol, uint16(n))
	u := Use{Address: x.Target.Host + ":" + x.Target.Port, Used: true, Weight: plan.DefaultWeight}
	u.Egress, u.Ingress = x.judge(&flow{from: from, to: to, source: from, port: port})
	a := Attempt{Address: x.Target.Host, Outcome: NotKnown, Endpoints: []Use{u}}
	if u.verdict() == Denied {
		a.Outcome, x.e.Outcome = TimedOut, TimedOut
		x.e.Diagnoses = x.e.Diagnoses[:0]
		x.denied(&u)
	} else {
		x.e.Note = "no address of " + x.Target.Host + " is known, and rules about networks count in favor of the " +
			"connection; --live looks it up"
	}
	x.e.Attempts = append(x.e.Attempts, a)
	x.e.Verdict = x.e.verdict()
}

// isResolver reports whether the node agent answers DNS at the address.
func (t *try) isResolver() bool {
	return t.at.Port == dnsPort && slices.Contains(t.Settings.Resolvers, t.at.Addr)
}

// dnsPort is the port of DNS.
const dnsPort = 53

// toResolver returns the outcome at an address at which the node agent answers DNS: policies judge it
// as a connection to the Pods of the cluster DNS (semantics.FindDNS).
func (t *try) toResolver() (outcome string) {
	from := t.client(t.at.Addr)
	u := Use{Address: netip.AddrPortFrom(t.at.Addr, t.at.Port).String(), Used: true, Weight: plan.DefaultWeight}
	outcome = Connected
	switch to := (&semantics.End{Namespace: t.Linter.DNSService.Namespace}); {
	case from != nil && from.Namespace == "": // policies judge Pods
	case t.isUnread(from, to):
		outcome = NotKnown
	default:
		port := portOf(t.at.Protocol, t.at.Port)
		dns := semantics.FindDNS(t.View, t.Linter.DNSService, []netip.Addr{t.at.Addr})
		r := dns.Reach(t.set(), from, port.Protocol)
		if dns.Service != nil {
			to.Labels = dns.Service.Selector
		}
		f := &flow{from: from, to: to, source: from, port: port}
		if r.Allowed() {
			u.Egress = &Ruling{Allowed: true, Why: "the agent answers for the Pods of the cluster DNS, which policies allow"}
		} else {
			u.Egress, u.Ingress = t.rulingOf(f, &r.Egress, ruleset.Egress), t.rulingOf(f, &r.Ingress, ruleset.Ingress)
			outcome = TimedOut
			t.denied(&u)
		}
		// The client's node judges both.
		f.to = &semantics.End{Addrs: []netip.Addr{t.at.Addr}}
		u.Egress.Kernel = t.compare(t.askKernel(f, ruleset.Egress, from), r.Allowed())
	}
	t.attempt.Endpoints = []Use{u}
	return outcome
}
