package semantics

import (
	"net/netip"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

// tierCase is a connection among a few Pods, and what policies decide on it.
type tierCase struct {
	policies []cluster.Object
	from, to *End
	port     cluster.Port
	want     string // see verdicts
}

// selected returns a Selector of one label; of all for "".
func selected(label string) cluster.Selector {
	name, value, found := strings.Cut(label, "=")
	if !found {
		return cluster.Selector{}
	}
	return cluster.Selector{Labels: map[string]string{name: value}}
}

func tier(t cluster.Tier, name string, priority int32, rules ...cluster.TierRule) *cluster.ClusterNetworkPolicy {
	return &cluster.ClusterNetworkPolicy{
		Name: name, Tier: t, Priority: priority, Subject: cluster.PodPeer{Namespaces: selected("team=red")}, EgressRules: rules,
	}
}

// rule returns a rule about Pods with a label in all Namespaces.
func rule(action cluster.Action, label string, ports ...cluster.PolicyPort) cluster.TierRule {
	return cluster.TierRule{Action: action, Peers: []cluster.TierPeer{{Pods: &cluster.PodPeer{Pods: selected(label)}}}, Ports: ports}
}

// network returns a rule about networks.
func network(action cluster.Action, prefixes ...string) cluster.TierRule {
	var peer cluster.TierPeer
	for _, text := range prefixes {
		peer.Networks = append(peer.Networks, netip.MustParsePrefix(text))
	}
	return cluster.TierRule{Action: action, Peers: []cluster.TierPeer{peer}}
}

// verdicts returns what is decided on egress, and by what.
func verdicts(v Verdict) string {
	text := "denied"
	if v.Allowed {
		text = "allowed"
	}
	switch {
	case v.Decider.Policy != nil:
		return text + " by " + v.Decider.Policy.Name + "[" + string(rune('0'+v.Decider.Rule)) + "]"
	case len(v.Policies) > 0:
		return text + " by NetworkPolicies"
	}
	return text
}

// TestTiers checks the order of tiers, policies and rules, and what rules match
// (network-policy-api, ClusterNetworkPolicySpec and its parts).
func TestTiers(t *testing.T) {
	t.Parallel()
	red := func() *End {
		e := end("red", "app", "web", "10.244.1.2")
		e.Name, e.Node = "web-1", "n1"
		return e
	}
	db := func() *End {
		e := end("blue", "app", "db", "10.244.2.3")
		e.Name, e.Node = "db-1", "n2"
		e.Ports = []cluster.Port{{Name: "sql", Protocol: cluster.TCP, Number: 5432}}
		return e
	}
	outside := &End{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}, Names: []string{"www.example.com"}}
	node := func(name, addr string) *End { return &End{Node: name, Addrs: []netip.Addr{netip.MustParseAddr(addr)}} }
	denyAll := &cluster.NetworkPolicy{Key: cluster.Key{Namespace: "red", Name: "deny-all"}, Egress: true}
	allowAll := &cluster.NetworkPolicy{Key: cluster.Key{Namespace: "red", Name: "allow-all"}, Egress: true, EgressRules: []cluster.PolicyRule{{}}}
	ingressOnly := &cluster.NetworkPolicy{Key: cluster.Key{Namespace: "red", Name: "ingress"}, Ingress: true}
	admin := func(rules ...cluster.TierRule) cluster.Object { return tier(cluster.AdminTier, "admin", 10, rules...) }
	baseline := func(rules ...cluster.TierRule) cluster.Object {
		return tier(cluster.BaselineTier, "baseline", 10, rules...)
	}
	domains := func(names ...string) cluster.TierRule {
		return cluster.TierRule{Action: cluster.Accept, Peers: []cluster.TierPeer{{Domains: names}}}
	}
	nodes := func(action cluster.Action, label string) cluster.TierRule {
		s := selected(label)
		return cluster.TierRule{Action: action, Peers: []cluster.TierPeer{{Nodes: &s}}}
	}
	unknown := func(action cluster.Action) cluster.TierRule { return cluster.TierRule{Action: action, Unknown: true} }
	web := tcp(80)
	for claim, c := range map[string]tierCase{
		"without a policy all is allowed":              {nil, red(), db(), web, "allowed"},
		"the Admin tier comes before NetworkPolicies":  {[]cluster.Object{admin(rule(cluster.Accept, "app=db")), denyAll}, red(), db(), web, "allowed by admin[0]"},
		"a denial of the Admin tier is final":          {[]cluster.Object{admin(rule(cluster.Deny, "app=db")), allowAll}, red(), db(), web, "denied by admin[0]"},
		"what no rule of the tier matches goes on":     {[]cluster.Object{admin(rule(cluster.Accept, "app=other")), denyAll}, red(), db(), web, "denied by NetworkPolicies"},
		"Pass skips the rest of the tier":              {[]cluster.Object{admin(rule(cluster.Pass, ""), rule(cluster.Deny, "")), tier(cluster.AdminTier, "later", 20, rule(cluster.Deny, "")), allowAll}, red(), db(), web, "allowed by NetworkPolicies"},
		"Pass in the Admin tier goes on to Baseline":   {[]cluster.Object{admin(rule(cluster.Pass, "")), baseline(rule(cluster.Deny, ""))}, red(), db(), web, "denied by baseline[0]"},
		"Pass in the Baseline tier allows":             {[]cluster.Object{baseline(rule(cluster.Pass, ""), rule(cluster.Deny, ""))}, red(), db(), web, "allowed"},
		"Baseline counts without a NetworkPolicy":      {[]cluster.Object{baseline(rule(cluster.Deny, ""))}, red(), db(), web, "denied by baseline[0]"},
		"a NetworkPolicy hides Baseline":               {[]cluster.Object{baseline(rule(cluster.Deny, "")), allowAll}, red(), db(), web, "allowed by NetworkPolicies"},
		"one of the other direction does not":          {[]cluster.Object{baseline(rule(cluster.Deny, "")), ingressOnly}, red(), db(), web, "denied by baseline[0]"},
		"the first rule that matches decides":          {[]cluster.Object{admin(rule(cluster.Accept, "app=other"), rule(cluster.Deny, "app=db"), rule(cluster.Accept, ""))}, red(), db(), web, "denied by admin[1]"},
		"a lower priority comes first":                 {[]cluster.Object{tier(cluster.AdminTier, "a", 20, rule(cluster.Deny, "")), tier(cluster.AdminTier, "b", 10, rule(cluster.Accept, ""))}, red(), db(), web, "allowed by b[0]"},
		"of the same priority the first by name":       {[]cluster.Object{tier(cluster.AdminTier, "b", 10, rule(cluster.Accept, "")), tier(cluster.AdminTier, "a", 10, rule(cluster.Deny, ""))}, red(), db(), web, "denied by a[0]"},
		"the subject is of selected Namespaces":        {[]cluster.Object{admin(rule(cluster.Deny, ""))}, db(), red(), web, "allowed"},
		"a port limits a rule":                         {[]cluster.Object{admin(rule(cluster.Deny, "", cluster.PolicyPort{Protocol: cluster.TCP, Number: 81, End: 90}))}, red(), db(), web, "allowed"},
		"one of a range of ports":                      {[]cluster.Object{admin(rule(cluster.Deny, "", cluster.PolicyPort{Protocol: cluster.TCP, Number: 70, End: 80}))}, red(), db(), web, "denied by admin[0]"},
		"a port of another protocol does not match":    {[]cluster.Object{admin(rule(cluster.Deny, "", cluster.PolicyPort{Protocol: cluster.UDP, Number: 80, End: 80}))}, red(), db(), web, "allowed"},
		"a named port is one of the destination":       {[]cluster.Object{admin(rule(cluster.Deny, "", cluster.PolicyPort{Name: "sql"}))}, red(), db(), tcp(5432), "denied by admin[0]"},
		"a named port that another port has":           {[]cluster.Object{admin(rule(cluster.Deny, "", cluster.PolicyPort{Name: "sql"}))}, red(), db(), web, "allowed"},
		"networks match addresses outside":             {[]cluster.Object{admin(network(cluster.Deny, "198.51.100.0/24", "192.0.2.0/24"))}, red(), outside, web, "denied by admin[0]"},
		"networks match Pods, too":                     {[]cluster.Object{admin(network(cluster.Deny, "0.0.0.0/0"))}, red(), db(), web, "denied by admin[0]"},
		"networks do not match another family":         {[]cluster.Object{admin(network(cluster.Deny, "::/0"))}, red(), db(), web, "allowed"},
		"Pods are no addresses outside":                {[]cluster.Object{admin(rule(cluster.Deny, ""))}, red(), outside, web, "allowed"},
		"a domain name matches exactly":                {[]cluster.Object{admin(domains("example.com", "www.example.com")), denyAll}, red(), outside, web, "allowed by admin[0]"},
		"a name does not match names under it":         {[]cluster.Object{admin(domains("example.com")), denyAll}, red(), outside, web, "denied by NetworkPolicies"},
		"a wildcard matches names under it":            {[]cluster.Object{admin(domains("*.example.com")), denyAll}, red(), outside, web, "allowed by admin[0]"},
		"a wildcard matches several labels":            {[]cluster.Object{admin(domains("*.com")), denyAll}, red(), outside, web, "allowed by admin[0]"},
		"a wildcard does not match its apex":           {[]cluster.Object{admin(domains("*.www.example.com")), denyAll}, red(), outside, web, "denied by NetworkPolicies"},
		"a wildcard does not match a part of a label":  {[]cluster.Object{admin(domains("*.ample.com")), denyAll}, red(), outside, web, "denied by NetworkPolicies"},
		"nodes match their addresses":                  {[]cluster.Object{admin(nodes(cluster.Deny, "role=edge"))}, red(), node("n2", "10.0.0.2"), web, "denied by admin[0]"},
		"nodes with other labels do not match":         {[]cluster.Object{admin(nodes(cluster.Deny, "role=edge"))}, red(), node("n3", "10.0.0.3"), web, "allowed"},
		"no selector is all nodes":                     {[]cluster.Object{admin(nodes(cluster.Deny, ""))}, red(), node("n3", "10.0.0.3"), web, "denied by admin[0]"},
		"nodes are not Pods":                           {[]cluster.Object{admin(nodes(cluster.Deny, ""))}, red(), db(), web, "allowed"},
		"an unknown peer that accepts matches nothing": {[]cluster.Object{admin(unknown(cluster.Accept)), denyAll}, red(), db(), web, "denied by NetworkPolicies"},
		"an unknown peer that denies, denies all":      {[]cluster.Object{admin(unknown(cluster.Deny)), allowAll}, red(), db(), web, "denied by admin[0]"},
		"an unknown peer that passes, denies all":      {[]cluster.Object{admin(unknown(cluster.Pass)), allowAll}, red(), db(), web, "denied by admin[0]"},
		"the own node is allowed":                      {[]cluster.Object{denyAll}, red(), node("n1", "10.0.0.1"), web, "allowed by NetworkPolicies"},
		"another node is not":                          {[]cluster.Object{denyAll}, red(), node("n2", "10.0.0.2"), web, "denied by NetworkPolicies"},
		"the Admin tier counts for the own node":       {[]cluster.Object{admin(nodes(cluster.Deny, ""))}, red(), node("n1", "10.0.0.1"), web, "denied by admin[0]"},
		"a Pod reaches itself":                         {[]cluster.Object{denyAll}, red(), red(), web, "allowed by NetworkPolicies"},
		"the Admin tier counts for the Pod itself":     {[]cluster.Object{admin(rule(cluster.Deny, ""))}, red(), red(), web, "denied by admin[0]"},
		"without rules it does not apply to egress":    {[]cluster.Object{tier(cluster.AdminTier, "none", 0), denyAll}, red(), db(), web, "denied by NetworkPolicies"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			store := cluster.NewStore()
			store.Update(func(tx *cluster.Tx) {
				tx.Put(&cluster.Node{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})
				tx.Put(&cluster.Node{Name: "n2", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, Labels: map[string]string{"role": "edge"}})
				tx.Put(&cluster.Node{Name: "n3", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.3")}})
				for _, p := range c.policies {
					tx.Put(p)
				}
			})
			s := setOf(store, &cluster.Namespace{Name: "red", Labels: map[string]string{"team": "red"}}, &cluster.Namespace{Name: "blue"})
			if got := verdicts(s.Egress(c.from, c.to, c.port)); got != c.want {
				t.Errorf("egress is %s, want %s", got, c.want)
			}
		})
	}
}
