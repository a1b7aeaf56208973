package plan

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/semantics"
)

// DNS is the DNS that the node itself serves. What Pods send to it is judged as if they sent it to the
// Pods of the cluster DNS: policies know nothing of its addresses.
type DNS struct {
	// Service is that of the cluster DNS.
	Service cluster.Key
	// Addrs are those where the node serves it, on port 53; none if it does not.
	Addrs []netip.Addr
}

// dnsPort is the port of DNS for clients.
const dnsPort = 53

// dns judges whether Pods may reach the cluster DNS.
type dns struct {
	DNS
	service *cluster.Service
	// pods are those that the Service selects.
	pods map[cluster.Key]bool
	// changed: the verdicts of all classes are to be determined again.
	changed bool
	// found and set are nil until they are needed after a change.
	found *semantics.DNS
	set   *semantics.Set
}

// dnsVerdicts are about DNS over UDP and TCP.
type dnsVerdicts [2]dnsVerdict

// dnsVerdict is whether the cluster DNS may be reached.
type dnsVerdict struct {
	judged, allowed bool
	reason          string // why it is not allowed
}

// dnsProtocols are those of dnsVerdicts.
func dnsProtocols() [2]cluster.Protocol { return [2]cluster.Protocol{cluster.UDP, cluster.TCP} }

// reviewPod takes note of a change of a Pod.
func (d *dns) reviewPod(v *cluster.View, key cluster.Key) {
	if key.Namespace != d.Service.Namespace || len(d.Addrs) == 0 {
		return
	}
	was, is := d.pods[key], d.selects(v.Pod(key))
	if is {
		d.pods[key] = true
	} else {
		delete(d.pods, key)
	}
	if was || is {
		d.podsChanged()
	}
}

// selects reports whether a Pod may be one of the cluster DNS.
func (d *dns) selects(p *cluster.Pod) bool {
	return p != nil && (d.service == nil || d.service.Selects(p))
}

func (d *dns) podsChanged() { d.found, d.changed = nil, true }

// reviewService takes note of a change of a Service.
func (d *dns) reviewService(v *cluster.View, key cluster.Key) {
	if key != d.Service || len(d.Addrs) == 0 || d.service == v.Service(key) {
		return
	}
	d.service = v.Service(key)
	d.podsChanged()
	clear(d.pods)
	for p := range v.Pods() {
		if p.Namespace == key.Namespace && d.selects(p) {
			d.pods[p.Key] = true
		}
	}
}

// judge returns the verdicts for a Pod, and so for all to which the same policies apply.
func (d *dns) judge(v *cluster.View, p *pod, a *applying) (verdicts dnsVerdicts) {
	if len(d.Addrs) == 0 || a.unknown {
		return verdicts
	}
	if d.set == nil {
		d.set = semantics.NewSet(v)
	}
	if d.found == nil {
		d.found = semantics.FindDNS(v, d.Service, d.Addrs)
	}
	// Without name, address and node, it is as any other Pod to which the same policies apply.
	from := &semantics.End{Namespace: p.key.Namespace, Labels: p.labels()}
	for i, protocol := range dnsProtocols() {
		verdict := d.found.Egress(d.set, from, protocol)
		verdicts[i] = dnsVerdict{judged: true, allowed: verdict.Allowed}
		switch {
		case verdict.Allowed:
		case verdict.Decider.Policy != nil:
			verdicts[i].reason = tierReason(verdict.Decider.Policy, ruleset.Egress, verdict.Decider.Rule)
		default:
			verdicts[i].reason = isolationReason(a.policies)
		}
	}
	return verdicts
}

// rules are the rules for packets to the node's DNS.
func (d *dns) rules(verdicts *dnsVerdicts) (rules []ruleSpec) {
	for i, v := range verdicts {
		if !v.judged {
			continue
		}
		r := ruleSpec{peers: &setSpec{kind: ruleset.Hosts, addrs: d.Addrs}}
		if !v.allowed {
			r = deny(printable(reasonDNS+v.reason, maxReason))
			r.peers = &setSpec{kind: ruleset.Hosts, addrs: d.Addrs}
		}
		r.Ports = []ruleset.Ports{{Protocol: protocolOf(dnsProtocols()[i]), First: dnsPort, Last: dnsPort}}
		if i > 0 && *verdicts == (dnsVerdicts{v, v}) {
			rules[0].Ports = merged(slices.Concat(rules[0].Ports, r.Ports))
			continue
		}
		rules = append(rules, r)
	}
	return rules
}

// reviewDNS gives classes other chains whose Pods may reach the cluster DNS now, or no more.
func (c *Compiler) reviewDNS(v *cluster.View) {
	if !c.dns.changed {
		return
	}
	c.dns.changed = false
	now := make(map[*class]dnsVerdicts)
	for p := range c.locals {
		k := p.local.classes[ruleset.Egress]
		if k == nil {
			continue
		}
		verdicts, known := now[k]
		if !known {
			verdicts = c.dns.judge(v, p, &k.applying)
			now[k] = verdicts
		}
		if verdicts != k.dns {
			c.touchPod(p)
		}
	}
	for k, verdicts := range now {
		if verdicts == k.dns {
			continue
		}
		old := k.chain
		k.dns = verdicts
		k.chain = c.build(k)
		c.releaseChain(old)
	}
}
