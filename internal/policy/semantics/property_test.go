package semantics

import (
	"math/rand/v2"
	"net/netip"
	"strconv"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig/podrand"
)

func randomLabels(r *rand.Rand) map[string]string {
	labels := make(map[string]string)
	for range r.IntN(3) {
		labels[podrand.Pick(r, "app", "tier")] = podrand.Pick(r, "a", "b")
	}
	return labels
}

func randomSelector(r *rand.Rand) *cluster.Selector {
	if r.IntN(3) == 0 {
		return nil
	}
	s := &cluster.Selector{Labels: randomLabels(r)}
	if r.IntN(3) == 0 {
		s.Requirements = []cluster.Requirement{{Label: "app", Operator: podrand.Pick(r, cluster.In, cluster.NotIn, cluster.Exists, cluster.DoesNotExist), Values: []string{"a"}}}
	}
	return s
}

func randomPolicy(r *rand.Rand, name string) *cluster.NetworkPolicy {
	p := &cluster.NetworkPolicy{Key: cluster.Key{Namespace: podrand.Pick(r, "one", "two"), Name: name}, Pods: cluster.Selector{Labels: randomLabels(r)}, Egress: r.IntN(3) > 0, Ingress: r.IntN(3) > 0}
	for range r.IntN(3) {
		var rule cluster.PolicyRule
		for range r.IntN(3) {
			peer := cluster.PolicyPeer{Pods: randomSelector(r), Namespaces: randomSelector(r)}
			if r.IntN(4) == 0 {
				peer = block("10.0.0.0/8", "10.1.0.0/16")
			}
			rule.Peers = append(rule.Peers, peer)
		}
		for range r.IntN(3) {
			rule.Ports = append(rule.Ports, cluster.PolicyPort{Protocol: podrand.Pick(r, cluster.TCP, cluster.UDP), Number: 50, End: podrand.Pick[uint16](r, 50, 60)})
		}
		p.EgressRules, p.IngressRules = append(p.EgressRules, rule), append(p.IngressRules, rule)
	}
	return p
}

func randomEnd(r *rand.Rand) *End {
	e := &End{Namespace: podrand.Pick(r, "one", "two", "three"), Labels: randomLabels(r)}
	if r.IntN(3) > 0 {
		e.Addrs = []netip.Addr{netip.MustParseAddr(podrand.Pick(r, "10.0.0.1", "10.1.0.1", "192.0.2.1"))}
	}
	return e
}

// TestAdditive verifies that several policies allow a connection if one of those that
// apply allows it, and that everything is allowed if none applies (Network Policies, "The
// two sorts of Pod isolation").
func TestAdditive(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		var policies []*cluster.NetworkPolicy
		for i := range r.IntN(5) {
			policies = append(policies, randomPolicy(r, strconv.Itoa(i)))
		}
		from, to := randomEnd(r), randomEnd(r)
		port := cluster.Port{Protocol: podrand.Pick(r, cluster.TCP, cluster.UDP), Number: podrand.Pick[uint16](r, 50, 53, 61)}
		evaluate := func(policies ...*cluster.NetworkPolicy) (egress, ingress Verdict) {
			s := setOf(withPolicies(policies...))
			return s.Egress(from, to, port), s.Ingress(to, from, port)
		}
		egress, ingress := evaluate(policies...)
		for direction, all := range map[string]Verdict{"egress": egress, "ingress": ingress} {
			applied, allowed := 0, false
			for _, p := range policies {
				one, other := evaluate(p)
				if direction == "ingress" {
					one = other
				}
				if len(one.Policies) > 0 {
					applied++
					allowed = allowed || one.Allowed
				}
			}
			if want := applied == 0 || allowed; all.Allowed != want || len(all.Policies) != applied {
				t.Errorf("seed %d: %s of %d policies is %+v, want allowed %t by %d", seed, direction, len(policies), all, want, applied)
			}
			if all.Allowed && all.Nearest.Policy != nil {
				t.Errorf("seed %d: %s is allowed, and the nearest rule is %+v, want none", seed, direction, all.Nearest)
			}
		}
	}
}
