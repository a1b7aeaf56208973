package connection

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/policy/semantics"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/plan"
)

// policies returns whether policies let the client connect to one of the endpoints, and adds why not.
func (t *try) policies() (outcome string) {
	from := t.client(t.at.Addr)
	var denied *Use
	unknown := false
	for _, e := range t.verdict.Endpoints {
		i := slices.IndexFunc(t.attempt.Endpoints, func(u Use) bool { return u.Address == e.String() })
		if i < 0 || t.verdict.Chosen.IsValid() && e != t.verdict.Chosen {
			continue
		}
		u := &t.attempt.Endpoints[i]
		to := narrowed(t.endAt(e.Addr()), e.Addr())
		to.Names = t.names()
		if t.isUnread(from, to) {
			unknown = true
			continue
		}
		f := &flow{from: from, to: to, source: t.source(from, to, e), port: portOf(t.at.Protocol, e.Port())}
		if e.Addr() != t.at.Addr {
			f.virtual = []netip.Addr{t.at.Addr}
		}
		f.sent = t.sent(f)
		u.Egress, u.Ingress = t.judge(f)
		switch {
		case t.dependsOnAddress(u):
			unknown = true
		case u.verdict() != Denied:
			outcome = Connected
		case denied == nil:
			denied = u
		}
	}
	switch {
	case unknown:
		for i := range t.attempt.Endpoints {
			t.attempt.Endpoints[i].Egress, t.attempt.Endpoints[i].Ingress = nil, nil
		}
		return NotKnown
	case denied == nil || outcome == Connected:
		return Connected
	}
	t.denied(denied)
	return TimedOut
}

// portOf returns a port as policies have it.
func portOf(p frontend.Protocol, number uint16) cluster.Port {
	return cluster.Port{Protocol: cluster.Protocol(strings.ToUpper(p.String())), Number: number}
}

// source returns the client as an endpoint sees it: an endpoint on another node than the one that
// handles the connection sees that node, if it masquerades the client.
func (t *try) source(from, to *semantics.End, e netip.AddrPort) *semantics.End {
	node := &t.proxy.node
	if t.verdict.MasqueradeTo(e) == frontend.NotMasqueraded || node.Name == "" || to.Node == node.Name {
		return from
	}
	seen := &semantics.End{Node: node.Name}
	for _, a := range node.Addresses {
		if cluster.FamilyOf(a) == cluster.FamilyOf(e.Addr()) && !a.IsLoopback() {
			seen.Addrs = append(seen.Addrs, a)
		}
	}
	return seen
}

// sent returns what the node of a client judges where another node translates the address, as it does with its own for
// node ports; nil if the client's node does.
func (t *try) sent(f *flow) *flow {
	if t.kind != plan.NodePort || f.from.Node == "" || t.proxy.node.Name == "" || f.from.Node == t.proxy.node.Name {
		return nil
	}
	sent := *f
	sent.to, sent.port, sent.virtual = narrowed(t.endAt(t.at.Addr), t.at.Addr), portOf(t.at.Protocol, t.at.Port), nil
	return &sent
}

// denied adds why policies deny the client to connect to an endpoint.
func (x *explainer) denied(u *Use) {
	for _, d := range u.denials(x.e.From) {
		x.add(d.Rule, d.Cure, "%s", d.Why)
	}
}

// denials returns why policies deny a client to connect to the endpoint: its egress, which is judged first, and the
// ingress of the endpoint, which would deny it next.
func (u *Use) denials(from string) (all []explain.Diagnosis) {
	for _, r := range []*Ruling{u.Egress, u.Ingress} {
		if r == nil || r.Allowed {
			continue
		}
		what := fmt.Sprintf("egress of %s to %s", from, cmp.Or(r.sentTo, u.name()))
		if r == u.Ingress {
			what = fmt.Sprintf("ingress to %s from %s", u.name(), from)
		}
		d := explain.Diagnosis{Rule: r.rule(), Cure: r.Cure, Why: strings.Replace(r.Why, "s it", "s "+what, 1)}
		if d.Rule == "no-pod" {
			d.Why = r.Why + ": the node drops packets to and from it"
		}
		if n := r.Nearest; n != nil {
			d.Why += fmt.Sprintf(" (the nearest rule, %s of %s: %s)", n.Rule, n.Policy, n.Mismatch)
		}
		if r.seen != "" {
			d.Why += fmt.Sprintf("; the Pod sees %s, which masquerades the client", r.seen)
			d.Cure += "; or set externalTrafficPolicy: Local, with which Pods see clients"
		}
		all = append(all, d)
	}
	return all
}

// rule returns the rule of the diagnosis of a Ruling that denies.
func (r *Ruling) rule() string {
	switch {
	case r.node != "":
		return "no-pod"
	case strings.HasPrefix(r.Policy, "Cluster"):
		return "cluster-network-policy"
	}
	return "network-policy"
}
