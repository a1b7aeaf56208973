package semantics

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

// describe returns a verdict with its exception and what audit would have denied.
func describe(v Verdict) string {
	text := verdicts(v)
	if v.Exception != NoException {
		text += fmt.Sprintf(", exception %d", v.Exception)
	}
	for _, d := range v.Audit {
		switch {
		case d.Decider.Policy != nil:
			text += fmt.Sprintf(", audit %s[%d]", d.Decider.Policy.Name, d.Decider.Rule)
		default:
			text += ", audit " + strings.Join(PolicyNames(d.Policies), " ")
		}
	}
	return text
}

// TestAudit checks what policies in audit mode change (cluster.AnnotationAudit), and that they deny nothing.
func TestAudit(t *testing.T) {
	t.Parallel()
	from, to := end("red", "app", "web", "10.244.1.2"), end("blue", "app", "db", "10.244.2.3")
	from.Name, from.Node = "web-1", "n1"
	audited := func(p *cluster.ClusterNetworkPolicy) cluster.Object {
		p.Audit = true
		return p
	}
	policy := func(name string, audit bool, rules ...cluster.PolicyRule) cluster.Object {
		return &cluster.NetworkPolicy{
			Key: cluster.Key{Namespace: "red", Name: name}, Egress: true, EgressRules: rules, Audit: audit,
		}
	}
	const enforce, audit = false, true
	everything := cluster.PolicyRule{}
	baseline := tier(cluster.BaselineTier, "baseline", 10, rule(cluster.Deny, ""))
	for claim, c := range map[string]struct {
		policies []cluster.Object
		want     string
	}{
		"a NetworkPolicy reports what it does not allow":     {[]cluster.Object{policy("a", audit)}, "allowed, audit red/a"},
		"it reports nothing that it allows":                  {[]cluster.Object{policy("a", audit, everything)}, "allowed by NetworkPolicies"},
		"what another allows is not reported":                {[]cluster.Object{policy("a", audit), policy("b", enforce, everything)}, "allowed by NetworkPolicies"},
		"what another denies is denied":                      {[]cluster.Object{policy("a", audit), policy("b", enforce)}, "denied by NetworkPolicies"},
		"what it allows is allowed though another isolates":  {[]cluster.Object{policy("a", audit, everything), policy("b", enforce)}, "allowed by NetworkPolicies"},
		"what two do not allow is reported with both":        {[]cluster.Object{policy("a", audit), policy("b", audit)}, "allowed, audit red/a red/b"},
		"it does not hide Baseline":                          {[]cluster.Object{policy("a", audit), baseline}, "denied by baseline[0], audit red/a"},
		"what it allows does":                                {[]cluster.Object{policy("a", audit, everything), baseline}, "allowed by NetworkPolicies"},
		"a rule that denies is reported, and others decide":  {[]cluster.Object{audited(tier(cluster.AdminTier, "a", 1, rule(cluster.Deny, ""), rule(cluster.Accept, ""))), policy("b", enforce)}, "allowed by a[1], audit a[0]"},
		"a rule that accepts is as without audit":            {[]cluster.Object{audited(tier(cluster.AdminTier, "a", 1, rule(cluster.Accept, ""))), policy("b", enforce)}, "allowed by a[0]"},
		"each tier reports":                                  {[]cluster.Object{audited(tier(cluster.AdminTier, "a", 1, rule(cluster.Deny, ""))), policy("b", audit), audited(tier(cluster.BaselineTier, "c", 1, rule(cluster.Deny, "")))}, "allowed, audit a[0], audit red/b, audit c[0]"},
		"a later policy of the tier denies":                  {[]cluster.Object{audited(tier(cluster.AdminTier, "a", 1, rule(cluster.Deny, ""))), tier(cluster.AdminTier, "b", 2, rule(cluster.Deny, ""))}, "denied by b[0], audit a[0]"},
		"a rule that is not understood is reported":          {[]cluster.Object{audited(tier(cluster.AdminTier, "a", 1, cluster.TierRule{Action: cluster.Pass, Unknown: true}))}, "allowed, audit a[0]"},
		"policies that do not select the Pod report nothing": {[]cluster.Object{&cluster.NetworkPolicy{Key: cluster.Key{Namespace: "red", Name: "a"}, Egress: true, Audit: true, Pods: selected("app=db")}}, "allowed"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			store := cluster.NewStore()
			store.Update(func(tx *cluster.Tx) {
				for _, p := range c.policies {
					tx.Put(p)
				}
			})
			s := setOf(store, &cluster.Namespace{Name: "red", Labels: map[string]string{"team": "red"}})
			if got := describe(s.Egress(from, to, tcp(80))); got != c.want {
				t.Errorf("egress is %s, want %s", got, c.want)
			}
		})
	}
}

// TestExceptions checks which connections pass though no rule allows them: ingress from the own node in
// all tiers, what the NetworkPolicy tier lets through, and that of Pods with hostNetwork.
func TestExceptions(t *testing.T) {
	t.Parallel()
	pod := func(name, node string, hostNetwork bool) *End {
		return &End{Namespace: "red", Name: name, Node: node, HostNetwork: hostNetwork, Addrs: []netip.Addr{netip.MustParseAddr("10.244.1.2")}}
	}
	node := func(name string) *End { return &End{Node: name, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}} }
	own := pod("web", "n1", false)
	policies := &cluster.NetworkPolicy{Key: cluster.Key{Namespace: "red", Name: "deny-all"}, Ingress: true, Egress: true}
	audited := &cluster.NetworkPolicy{Key: policies.Key, Ingress: true, Egress: true, Audit: true}
	denyPods := &cluster.ClusterNetworkPolicy{
		Name: "admin", Tier: cluster.AdminTier, IngressRules: []cluster.TierRule{{Action: cluster.Deny, Unknown: true}},
		EgressRules: []cluster.TierRule{{Action: cluster.Deny, Unknown: true}},
	}
	for claim, c := range map[string]struct {
		policy  cluster.Object
		e, peer *End
		egress  string
		ingress string
	}{
		"own node":                     {policies, own, node("n1"), "allowed by NetworkPolicies, exception 2", "allowed, exception 2"},
		"Pod at the own node":          {policies, own, pod("agent", "n1", true), "allowed by NetworkPolicies, exception 2", "allowed, exception 2"},
		"another node":                 {policies, own, node("n2"), "denied by NetworkPolicies", "denied by NetworkPolicies"},
		"a Pod at another node":        {policies, own, pod("agent", "n2", true), "denied by NetworkPolicies", "denied by NetworkPolicies"},
		"a Pod on the own node":        {policies, own, pod("db", "n1", false), "denied by NetworkPolicies", "denied by NetworkPolicies"},
		"Pods of unknown nodes":        {policies, pod("web", "", false), pod("db", "", true), "denied by NetworkPolicies", "denied by NetworkPolicies"},
		"itself":                       {policies, own, own, "allowed by NetworkPolicies, exception 3", "allowed by NetworkPolicies, exception 3"},
		"itself is not audited":        {audited, own, own, "allowed by NetworkPolicies, exception 3", "allowed by NetworkPolicies, exception 3"},
		"the Admin tier, own node":     {denyPods, own, node("n1"), "denied by admin[0]", "allowed, exception 2"},
		"the Admin tier, itself":       {denyPods, own, own, "denied by admin[0]", "denied by admin[0]"},
		"the Admin tier, another node": {denyPods, own, node("n2"), "denied by admin[0]", "denied by admin[0]"},
		"a Pod with hostNetwork":       {denyPods, pod("agent", "n1", true), own, "allowed, exception 1", "allowed, exception 1"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			store := cluster.NewStore()
			store.Update(func(tx *cluster.Tx) { tx.Put(c.policy) })
			s := setOf(store)
			if got := describe(s.Egress(c.e, c.peer, tcp(80))); got != c.egress {
				t.Errorf("egress is %s, want %s", got, c.egress)
			}
			if got := describe(s.Ingress(c.e, c.peer, tcp(80))); got != c.ingress {
				t.Errorf("ingress is %s, want %s", got, c.ingress)
			}
		})
	}
}

// TestDomainsOfNetworkPolicies checks that a rule with domain names allows the addresses that the client
// looked up under them, and that other rules stay (cluster.AnnotationEgressDomains).
func TestDomainsOfNetworkPolicies(t *testing.T) {
	t.Parallel()
	s := setOf(withPolicies(egressPolicy("names", cluster.PolicyRule{Peers: []cluster.PolicyPeer{{Domains: []string{"example.com", "*.example.net"}}}})))
	from := end("orders", "", "")
	for name, want := range map[string]bool{
		"example.com": true, "www.example.com": false, "example.net": false, "a.b.example.net": true, "": false,
	} {
		to := &End{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}
		if name != "" {
			to.Names = []string{"other.example", name}
		}
		if got := s.Egress(from, to, udp(9)); got.Allowed != want {
			t.Errorf("Egress to %q = %+v, want %t", name, got, want)
		}
	}
	if got := s.Egress(from, end("orders", "", "", "192.0.2.8"), tcp(80)); got.Allowed {
		t.Errorf("Egress to a Pod = %+v, want it denied", got)
	}
}
