package connection

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/semantics"
)

// Ruling is what policies decide on one direction of a connection to an endpoint.
type Ruling struct {
	Allowed bool `json:"allowed"`
	// Policy is the NetworkPolicy or ClusterNetworkPolicy that decides, and Rule the path of its rule.
	// Without a Policy nothing restricts the direction; without a Rule no rule of the NetworkPolicies
	// that apply allows it, and Policy is the first of them.
	Policy string `json:"policy,omitempty"`
	Rule   string `json:"rule,omitempty"`
	// Why is the reason in a clause.
	Why string `json:"why"`
	// Policies are the NetworkPolicies that apply, by name.
	Policies []string `json:"policies,omitempty"`
	// Nearest is the rule that comes nearest to allowing a denied connection.
	Nearest *Nearest `json:"nearest,omitempty"`
	// Cure is how to allow a denied connection.
	Cure string `json:"cure,omitempty"`
	// Audit is what policies in audit mode would deny, in a clause each.
	Audit []string `json:"audit,omitempty"`
	// Kernel is what the node's kernel does; nil if it was not to be asked, or judges no such packet.
	Kernel *KernelRuling `json:"kernel,omitempty"`
	// seen is the node that the endpoint sees instead of the client, as in "node n1 (198.51.100.11)"; empty if it sees the
	// client.
	seen string
	// node is the one that denies packets of an address that no Pod has; empty if it is no such address.
	node string
	// sentTo is what the client's node sees instead of the endpoint, as in "192.0.2.2:30080"; empty if it sees that.
	sentTo string
	// unsure is which rule has some of the addresses that an end may have, of which none is known, as a clause; empty if
	// the verdict is the same for all.
	unsure string
	// isolating are the NetworkPolicies of which no rule allows it, by name; none if it is allowed, or denied otherwise.
	isolating []string
}

// Nearest is a rule of a NetworkPolicy, and what of a connection it does not match.
type Nearest struct {
	Policy   string `json:"policy"`
	Rule     string `json:"rule"`
	Mismatch string `json:"mismatch"`
}

// The verdicts on a connection. Some: some of its endpoints may be reached.
const (
	Allowed = "allowed"
	Denied  = "denied"
	Some    = "partly denied"
)

// flow is a connection to one endpoint for which rulings are made.
type flow struct {
	from, to *semantics.End
	// source is from as to sees it, which is a node if that masquerades the connection.
	source *semantics.End
	port   cluster.Port
	// virtual are the addresses through which the client reaches to.
	virtual []netip.Addr
	// sent is what the client's node judges instead; nil if it judges this.
	sent *flow
}

// judge returns the rulings on a connection to an endpoint, nil for the ingress of what is no Pod.
func (x *explainer) judge(f *flow) (out, in *Ruling) {
	sent := cmp.Or(f.sent, f)
	// Clients of manifests need not be in them.
	if vacant, ok := x.vacancyOf(sent.from, sent.to); ok && x.Linter.Observed {
		out = x.vacancyRuling(sent, ruleset.Egress, &vacant)
	} else if sent.from.Namespace != "" {
		out = x.egress(sent)
	}
	if out != nil && f.sent != nil {
		out.sentTo = netip.AddrPortFrom(sent.to.Addrs[0], sent.port.Number).String()
	}
	if vacant, ok := x.vacancyOf(f.to, f.source); ok {
		in = x.vacancyRuling(f, ruleset.Ingress, &vacant)
	} else if f.to.Namespace != "" {
		in = x.ingress(f)
	}
	return out, in
}

// ingress returns the ruling on the ingress of a Pod.
func (x *explainer) ingress(f *flow) *Ruling {
	evaluate := func(source *semantics.End) semantics.Verdict { return x.set().Ingress(f.to, source, f.port) }
	v := evaluate(f.source)
	r := x.rulingOf(f, &v, ruleset.Ingress)
	r.Kernel = x.compare(x.askKernel(f, ruleset.Ingress, f.to), r.Allowed)
	if f.source != f.from && len(f.source.Addrs) > 0 {
		r.seen = fmt.Sprintf("node %s (%s)", f.source.Node, f.source.Addrs[0])
	}
	if f.source == f.from && len(f.source.Addrs) == 0 && !x.hasAddress() {
		r.doubt(f.source, ruleset.Ingress, evaluate)
	}
	return r
}

// set returns the policies of the cluster.
func (w *World) set() *semantics.Set {
	if w.policies == nil {
		w.policies = semantics.NewSet(w.View)
	}
	return w.policies
}

// addrTowards returns the address from which the client sends to another one: Pods and nodes may have addresses of both
// families. It is not valid if it is not known.
func (x *explainer) addrTowards(at netip.Addr) netip.Addr {
	c := &x.Client
	var own []netip.Addr
	switch {
	case c.Place == InPod && c.Subject.Pod != nil:
		own = c.Subject.Pod.IPs
	case c.Place == OnNode:
		if n := x.View.Node(c.Node); n != nil {
			own = n.InternalIPs
		}
	}
	if len(own) == 0 || !at.IsValid() {
		return c.Addr
	}
	i := slices.IndexFunc(own, func(a netip.Addr) bool { return cluster.FamilyOf(a) == cluster.FamilyOf(at) })
	if i < 0 {
		return netip.Addr{}
	}
	return own[i]
}

// client returns the client as policies see it at an address of a family: the family of none is any.
// It returns nil if it is not known.
func (x *explainer) client(at netip.Addr) *semantics.End {
	c := &x.Client
	switch {
	case c.Place == InPod:
		e := x.subject(&c.Subject)
		e.Addrs = slices.DeleteFunc(slices.Clone(e.Addrs), func(a netip.Addr) bool {
			return at.IsValid() && cluster.FamilyOf(a) != cluster.FamilyOf(at)
		})
		return e
	case c.Place == OnNode:
		e := &semantics.End{Node: c.Node}
		if addr := x.addrTowards(at); addr.IsValid() {
			e.Addrs = []netip.Addr{addr}
		}
		return e
	case c.Addr.IsValid():
		e := narrowed(x.endAt(c.Addr), c.Addr)
		if c.Place == AtPodAddress && e.Namespace == "" && !x.View.Loaded(cluster.KindPod) {
			return nil // Pods may not be listed
		}
		return e
	case c.Place == Outside:
		return &semantics.End{}
	}
	return nil
}

// narrowed returns an end with one of its addresses only, which is the one that packets have.
func narrowed(e *semantics.End, addr netip.Addr) *semantics.End {
	e.Addrs = []netip.Addr{addr}
	return e
}

// rulingOf words a verdict.
func (x *explainer) rulingOf(f *flow, v *semantics.Verdict, d ruleset.Direction) *Ruling {
	r := &Ruling{Allowed: v.Allowed}
	for _, p := range v.Policies {
		r.Policies = append(r.Policies, p.String())
	}
	for i := range v.Audit {
		r.Audit = append(r.Audit, auditText(&v.Audit[i], d))
	}
	switch p := v.Decider.Policy; {
	case p != nil:
		r.Policy, r.Rule = "ClusterNetworkPolicy "+p.Name, cluster.RulePath(d.String(), v.Decider.Rule)
		r.decided(v, d)
	case v.Exception != semantics.NoException:
		r.Why = exceptions[v.Exception]
	case v.Rule.Policy != nil:
		r.Policy, r.Rule = "NetworkPolicy "+v.Rule.Policy.String(), cluster.RulePath(d.String(), v.Rule.Rule)
		r.Why = fmt.Sprintf("%s of %s allows it", r.Rule, r.Policy)
	case v.Allowed && len(v.Audit) > 0:
		r.Why = "only policies in audit mode restrict it"
	case v.Allowed:
		r.Why = "no policy restricts it"
	default:
		by := semantics.PolicyNames(v.Isolating())
		r.isolating = by
		r.Policy = "NetworkPolicy " + by[0]
		r.Why = "no rule of " + r.Policy + " allows it"
		if len(by) > 1 {
			r.Why = "no rule of NetworkPolicies " + strings.Join(by, ", ") + " allows it"
		}
		r.near(f, v, d)
	}
	return r
}

// decided words the decision of a rule of a ClusterNetworkPolicy.
func (r *Ruling) decided(v *semantics.Verdict, d ruleset.Direction) {
	p, rules := v.Decider.Policy, v.Decider.Policy.IngressRules
	if d == ruleset.Egress {
		rules = p.EgressRules
	}
	place := fmt.Sprintf("tier %s, priority %d", p.Tier, p.Priority)
	switch {
	case v.Allowed:
		r.Why = fmt.Sprintf("%s of %s (%s) accepts it", r.Rule, r.Policy, place)
	case p.Priority < 0:
		r.Why = fmt.Sprintf("%s of %s denies it: the policy is invalid, and comes first and only denies", r.Rule, r.Policy)
		r.Cure = "correct spec.tier, spec.priority or what else is invalid in " + r.Policy
	case rules[v.Decider.Rule].Unknown:
		r.Why = fmt.Sprintf("%s of %s (%s) denies everything, as it has a value that is not known", r.Rule, r.Policy, place)
		r.Cure = fmt.Sprintf("correct %s of %s", r.Rule, r.Policy)
	default:
		r.Why = fmt.Sprintf("%s of %s (%s) denies it", r.Rule, r.Policy, place)
		r.Cure = fmt.Sprintf("change %s of %s, or have a rule before it that accepts", r.Rule, r.Policy)
	}
}

// exceptions are why policies do not apply.
var exceptions = map[semantics.Exception]string{
	semantics.HostNetwork: "policies do not apply to Pods in the network of their node",
	semantics.OwnNode:     "a Pod and its own node may always connect",
	semantics.Itself:      "a Pod may connect to itself",
}

// auditText says what a policy in audit mode would deny.
func auditText(d *semantics.Denial, direction ruleset.Direction) string {
	if p := d.Decider.Policy; p != nil {
		return fmt.Sprintf(
			"%s of ClusterNetworkPolicy %s would deny it, without audit mode",
			cluster.RulePath(direction.String(), d.Decider.Rule),
			p.Name,
		)
	}
	return fmt.Sprintf(
		"NetworkPolicy %s would deny it, without audit mode",
		strings.Join(semantics.PolicyNames(d.Policies), ", "),
	)
}

// near adds the nearest rule and the cure of a connection that no rule of NetworkPolicies allows.
func (r *Ruling) near(f *flow, v *semantics.Verdict, d ruleset.Direction) {
	n, extended := v.Nearest, toExtend(v.Isolating())
	peer, peers := f.to, "to"
	if d == ruleset.Ingress {
		peer, peers = f.source, "from"
	}
	port := portText(f.port)
	if n.Policy == nil || n.Mismatch == semantics.Both {
		r.Cure = fmt.Sprintf("add an %s rule for port %s to %s, with %s: %s", d, port, extended, peers, selecting(peer))
		return
	}
	r.Nearest = &Nearest{Policy: "NetworkPolicy " + n.Policy.String(), Rule: cluster.RulePath(d.String(), n.Rule)}
	of := " of " + r.Nearest.Policy
	peers = r.Nearest.Rule + "." + peers + of
	switch n.Mismatch {
	case semantics.Ports:
		r.Nearest.Mismatch = "it matches the peer, but not port " + port
		r.Cure = fmt.Sprintf("add port %s to %s", port, r.Nearest.Rule+".ports"+of)
	case semantics.VirtualIPs:
		r.Nearest.Mismatch = "its ipBlock has the address of the Service, which is translated before policies apply"
		r.Cure = fmt.Sprintf("add the Pods of the Service to %s: %s", peers, selecting(peer))
	case semantics.Excepted:
		r.Nearest.Mismatch = "its ipBlock excepts the address"
		r.Cure = fmt.Sprintf("take the address out of except, or add the peer to %s: %s", peers, selecting(peer))
	default:
		r.Nearest.Mismatch = "it matches port " + port + ", but not the peer"
		r.Cure = fmt.Sprintf("add the peer to %s: %s", peers, selecting(peer))
	}
}

// toExtend says which of the policies that apply gets a rule: the one with the narrowest podSelector, with which the
// rule is for the fewest other Pods, or any of them if there is no such one.
func toExtend(policies []*cluster.NetworkPolicy) string {
	narrowness := func(p *cluster.NetworkPolicy) int { return len(p.Pods.Labels) + len(p.Pods.Requirements) }
	most := slices.MaxFunc(
		policies,
		func(a, b *cluster.NetworkPolicy) int { return cmp.Compare(narrowness(a), narrowness(b)) },
	)
	alike := 0
	for _, p := range policies {
		if narrowness(p) == narrowness(most) {
			alike++
		}
	}
	switch {
	case len(policies) == 1:
		return "NetworkPolicy " + most.String()
	case alike == 1:
		return "NetworkPolicy " + most.String() + ", which has the narrowest podSelector"
	}
	return "one of NetworkPolicies " + strings.Join(semantics.PolicyNames(policies), ", ")
}

// portText returns a port as in "80/tcp".
func portText(p cluster.Port) string {
	return strconv.Itoa(int(p.Number)) + "/" + strings.ToLower(string(p.Protocol))
}

// mostLabels is the maximum number of labels in a cure.
const mostLabels = 4

// generated are labels that controllers add to Pods, for themselves.
var generated = []string{
	"pod-template-hash", "controller-revision-hash", "pod-template-generation", "controller-uid",
	"batch.kubernetes.io/controller-uid", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
}

// selecting says what selects a peer.
func selecting(e *semantics.End) string {
	if e.Namespace == "" || e.HostNetwork {
		if len(e.Addrs) == 0 {
			return "an ipBlock with its address"
		}
		return "an ipBlock with " + e.Addrs[0].String()
	}
	var labels []string
	for name, value := range e.Labels {
		if !slices.Contains(generated, name) {
			labels = append(labels, name+": "+strconv.Quote(value))
		}
	}
	slices.Sort(labels)
	labels = labels[:min(len(labels), mostLabels)]
	return fmt.Sprintf(
		"namespaceSelector {matchLabels: {kubernetes.io/metadata.name: %s}} and podSelector {matchLabels: {%s}}",
		e.Namespace,
		strings.Join(labels, ", "),
	)
}

// verdict returns the verdict on all endpoints that were judged; empty if none was.
func (e *Explanation) verdict() (verdict string) {
	for i := range e.Attempts {
		for j := range e.Attempts[i].Endpoints {
			of := e.Attempts[i].Endpoints[j].verdict()
			switch {
			case of == "" || of == verdict:
			case verdict == "":
				verdict = of
			default:
				return Some
			}
		}
	}
	return verdict
}

// TranslatedLater reports whether the client's node, which judges its egress, does not know the endpoint: another node
// translates the address.
func (u *Use) TranslatedLater() bool { return u.Egress != nil && u.Egress.sentTo != "" }

// Denied reports whether policies of the client or of the endpoint deny the connection.
func (u *Use) Denied() bool { return u.verdict() == Denied }

// Deciders returns what decides on the connection to the endpoint: policies with the path of their rule, or those of
// which no rule allows it. Of a connection that is denied, what allows the other direction decides nothing.
func (u *Use) Deciders() (all []string) {
	for _, r := range []*Ruling{u.Egress, u.Ingress} {
		switch {
		case r == nil || r.Policy == "" || r.Allowed && u.Denied():
		case len(r.isolating) > 0:
			for _, name := range r.isolating {
				all = append(all, "NetworkPolicy "+name)
			}
		default:
			all = append(all, strings.TrimSpace(r.Policy+" "+r.Rule))
		}
	}
	return all
}

// KernelDifferences returns how the kernels of the nodes of both ends differ from the policies of the model, if they
// were read.
func (u *Use) KernelDifferences() (all []string) {
	for _, r := range []*Ruling{u.Egress, u.Ingress} {
		if r.differs() {
			all = append(all, r.Kernel.Why)
		}
	}
	return all
}

// verdict returns the verdict on an endpoint; empty if it was not judged.
func (u *Use) verdict() string {
	switch {
	case u.Egress == nil && u.Ingress == nil:
		return ""
	case u.Egress != nil && !u.Egress.Allowed, u.Ingress != nil && !u.Ingress.Allowed:
		return Denied
	}
	return Allowed
}
