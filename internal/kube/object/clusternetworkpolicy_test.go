package object

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"portolan.dev/portolan/internal/cluster"
)

func clusterNetworkPolicy() *policyv1alpha2.ClusterNetworkPolicy {
	app := metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	return &policyv1alpha2.ClusterNetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "guard.example"},
		Spec: policyv1alpha2.ClusterNetworkPolicySpec{
			Tier: policyv1alpha2.AdminTier, Priority: 7,
			Subject: policyv1alpha2.ClusterNetworkPolicySubject{Namespaces: &metav1.LabelSelector{}},
			Ingress: []policyv1alpha2.ClusterNetworkPolicyIngressRule{{
				Name: "web", Action: policyv1alpha2.ClusterNetworkPolicyRuleActionPass,
				From: []policyv1alpha2.ClusterNetworkPolicyIngressPeer{
					{Namespaces: &app}, {Pods: &policyv1alpha2.NamespacedPod{PodSelector: app}},
				},
				Protocols: []policyv1alpha2.ClusterNetworkPolicyProtocol{
					{TCP: &policyv1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: &policyv1alpha2.Port{Number: 80}}},
					{UDP: &policyv1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: &policyv1alpha2.Port{Range: &policyv1alpha2.PortRange{Start: 1, End: 9}}}},
					{SCTP: &policyv1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: &policyv1alpha2.Port{Number: 5}}},
					{DestinationNamedPort: "http"},
				},
			}},
			Egress: []policyv1alpha2.ClusterNetworkPolicyEgressRule{{
				Action: policyv1alpha2.ClusterNetworkPolicyRuleActionAccept,
				To: []policyv1alpha2.ClusterNetworkPolicyEgressPeer{
					{Nodes: &app}, {Networks: []policyv1alpha2.CIDR{"10.0.0.1/8", "fd00::/8"}},
					{DomainNames: []policyv1alpha2.DomainName{"WWW.Example.com.", "*.example.net"}},
				},
			}},
		},
	}
}

// TestClusterNetworkPolicy checks what is decoded, what is refused, and that fields of a later version
// of the API are noticed (ClusterNetworkPolicyEgressPeer).
func TestClusterNetworkPolicy(t *testing.T) {
	app := cluster.Selector{Labels: map[string]string{"app": "web"}}
	got, errs := ClusterNetworkPolicy(clusterNetworkPolicy())
	want := &cluster.ClusterNetworkPolicy{
		Name: "guard.example", Tier: cluster.AdminTier, Priority: 7,
		IngressRules: []cluster.TierRule{{
			Name: "web", Action: cluster.Pass,
			Peers: []cluster.TierPeer{{Pods: &cluster.PodPeer{Namespaces: app}}, {Pods: &cluster.PodPeer{Pods: app}}},
			Ports: []cluster.PolicyPort{
				{Protocol: cluster.TCP, Number: 80, End: 80}, {Protocol: cluster.UDP, Number: 1, End: 9},
				{Protocol: cluster.SCTP, Number: 5, End: 5}, {Name: "http"},
			},
		}},
		EgressRules: []cluster.TierRule{{
			Action: cluster.Accept,
			Peers: []cluster.TierPeer{
				{Nodes: &app}, {Networks: prefixes("10.0.0.0/8", "fd00::/8")}, {Domains: []string{"www.example.com", "*.example.net"}},
			},
		}},
	}
	if d := cmp.Diff(want, got, addrEqual); d != "" || len(errs) > 0 {
		t.Errorf("ClusterNetworkPolicy: %v (-want +got)\n%s", errs, d)
	}
	type API = policyv1alpha2.ClusterNetworkPolicy
	to := func(o *API) *policyv1alpha2.ClusterNetworkPolicyEgressPeer { return &o.Spec.Egress[0].To[2] }
	testRefusals(t, "ClusterNetworkPolicy", clusterNetworkPolicy, ClusterNetworkPolicy, map[string]refusal[API]{
		"no name":             {func(o *API) { o.Name = "" }, []string{"metadata.name: Required value"}},
		"no tier":             {func(o *API) { o.Spec.Tier = "" }, []string{"spec.tier: Unsupported value"}},
		"a priority too high": {func(o *API) { o.Spec.Priority = 1001 }, []string{"spec.priority: Invalid value"}},
		"a priority below 0":  {func(o *API) { o.Spec.Priority = -1 }, []string{"spec.priority: Invalid value"}},
		"no subject":          {func(o *API) { o.Spec.Subject.Namespaces = nil }, []string{"spec.subject: Required value"}},
		"another action":      {func(o *API) { o.Spec.Ingress[0].Action = "Log" }, []string{"spec.ingress[0].action: Unsupported value"}},
		"no peers":            {func(o *API) { o.Spec.Egress[0].To = nil }, []string{"spec.egress[0].to: Required value"}},
		"a network without a length": {
			func(o *API) { o.Spec.Egress[0].To[1].Networks[1] = "fd00::" }, []string{"spec.egress[0].to[1].networks[1]: Invalid value"},
		},
		"a port of 65536": {
			func(o *API) { o.Spec.Ingress[0].Protocols[0].TCP.DestinationPort.Number = 1 << 16 },
			[]string{"spec.ingress[0].protocols[0].tcp.destinationPort.number: Invalid value"},
		},
		"a range that ends before it starts": {
			func(o *API) { o.Spec.Ingress[0].Protocols[1].UDP.DestinationPort.Range.Start = 10 },
			[]string{"spec.ingress[0].protocols[1].udp.destinationPort.range.end: Invalid value"},
		},
		"names in a rule that denies": {
			func(o *API) { o.Spec.Egress[0].Action = "Deny" }, []string{"spec.egress[0].to[2].domainNames: Forbidden"},
		},
		"a name of one label": {
			func(o *API) { to(o).DomainNames[0] = "com" }, []string{"spec.egress[0].to[2].domainNames[0]: Invalid value"},
		},
		"a wildcard inside": {
			func(o *API) { to(o).DomainNames[1] = "www.*.com" }, []string{"spec.egress[0].to[2].domainNames[1]: Invalid value"},
		},
		"a label too long": {
			func(o *API) { to(o).DomainNames[1] = policyv1alpha2.DomainName(strings.Repeat("a", 64)) + ".com" },
			[]string{"spec.egress[0].to[2].domainNames[1]: Invalid value"},
		},
	})
	for claim, spoil := range map[string]func(*API){
		"a peer":            func(o *API) { o.Spec.Egress[0].To[0].Nodes = nil },
		"a protocol":        func(o *API) { o.Spec.Ingress[0].Protocols[3].DestinationNamedPort = "" },
		"a match of TCP":    func(o *API) { o.Spec.Ingress[0].Protocols[0].TCP.DestinationPort = nil },
		"a match of a port": func(o *API) { o.Spec.Ingress[0].Protocols[0].TCP.DestinationPort.Number = 0 },
	} {
		o := clusterNetworkPolicy()
		spoil(o)
		got, errs := ClusterNetworkPolicy(o)
		if len(errs) > 0 || !got.IngressRules[0].Unknown && !got.EgressRules[0].Unknown {
			t.Errorf("%s of a later version: %+v, %v, want a rule that is unknown", claim, got, errs)
		}
	}
}

// TestInvalidClusterNetworkPolicies checks that what is invalid lets nothing through.
func TestInvalidClusterNetworkPolicies(t *testing.T) {
	type API = policyv1alpha2.ClusterNetworkPolicy
	whole, _ := ClusterNetworkPolicy(clusterNetworkPolicy())
	rule := func(name string, action cluster.Action) []cluster.TierRule {
		return []cluster.TierRule{{Name: name, Action: action, Unknown: true}}
	}
	denied := []cluster.TierRule{{Name: "web", Action: cluster.Deny, Peers: whole.IngressRules[0].Peers, Ports: whole.IngressRules[0].Ports}}
	for claim, test := range map[string]struct {
		spoil func(*API)
		want  func(*cluster.ClusterNetworkPolicy)
	}{
		"no tier": {func(o *API) { o.Spec.Tier = "" }, func(p *cluster.ClusterNetworkPolicy) {
			p.Priority, p.IngressRules, p.EgressRules = -1, denied, rule("", cluster.Accept)
		}},
		"no priority": {func(o *API) { o.Spec.Tier, o.Spec.Priority = "Baseline", 1001 }, func(p *cluster.ClusterNetworkPolicy) {
			p.Tier, p.Priority, p.IngressRules, p.EgressRules = cluster.BaselineTier, -1, denied, rule("", cluster.Accept)
		}},
		"no subject": {func(o *API) { o.Spec.Subject.Namespaces = nil }, func(p *cluster.ClusterNetworkPolicy) { p.Subject = cluster.PodPeer{} }},
		"a selector of the subject": {func(o *API) {
			o.Spec.Subject.Namespaces.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}
		}, func(p *cluster.ClusterNetworkPolicy) { p.Subject = cluster.PodPeer{} }},
		"an action":           {func(o *API) { o.Spec.Egress[0].Action = "accept" }, func(p *cluster.ClusterNetworkPolicy) { p.EgressRules = rule("", cluster.Deny) }},
		"a peer that accepts": {func(o *API) { o.Spec.Egress[0].To[1].Networks[0] = "x" }, func(p *cluster.ClusterNetworkPolicy) { p.EgressRules = rule("", cluster.Accept) }},
		"a peer that passes":  {func(o *API) { o.Spec.Ingress[0].From[1].Namespaces = new(metav1.LabelSelector) }, func(p *cluster.ClusterNetworkPolicy) { p.IngressRules = rule("web", cluster.Pass) }},
		"a peer of two kinds": {func(o *API) { o.Spec.Egress[0].To[0].Networks = []policyv1alpha2.CIDR{"::/0"} }, func(p *cluster.ClusterNetworkPolicy) { p.EgressRules = rule("", cluster.Accept) }},
		"a port":              {func(o *API) { o.Spec.Ingress[0].Protocols[2].SCTP.DestinationPort.Number = -1 }, func(p *cluster.ClusterNetworkPolicy) { p.IngressRules = rule("web", cluster.Pass) }},
		"a selector of a peer": {func(o *API) {
			o.Spec.Egress[0].To[0].Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"/": ""}}
		}, func(p *cluster.ClusterNetworkPolicy) { p.EgressRules = rule("", cluster.Accept) }},
	} {
		o := clusterNetworkPolicy()
		test.spoil(o)
		got, errs := ClusterNetworkPolicy(o)
		want, _ := ClusterNetworkPolicy(clusterNetworkPolicy())
		test.want(want)
		if d := cmp.Diff(want, got, addrEqual); d != "" || len(errs) == 0 {
			t.Errorf("%s: errors %v (-want +got)\n%s", claim, errs, d)
		}
	}
}
