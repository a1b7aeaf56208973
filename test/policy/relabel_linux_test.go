package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// teamRule is a rule for some ports.
type teamRule struct {
	first, last uint16
	values      []string // of the label team of Namespaces, each a peer of its own; nil if any
}

// The rules of TestNamespaceRelabelled. The ports from 5000 on are allowed for the label before, the one
// after, any label, both by the peers of one rule, and both by two rules whose ports differ, so that the
// kernel has a set for each.
var (
	teamRules = []teamRule{
		{5000, 5000, []string{"red"}}, {5001, 5001, []string{"blue"}}, {5002, 5002, nil}, {5003, 5003, []string{"red", "blue"}},
		{5004, 5005, []string{"red"}}, {5004, 5006, []string{"blue"}},
	}
	teamPorts = []uint16{5000, 5001, 5002, 5003, 5004}
)

// allowed returns for how many labels the rules allow a port.
func allowed(port uint16, labels ...string) (n int) {
	for _, l := range labels {
		if slices.ContainsFunc(teamRules, func(r teamRule) bool {
			return r.first <= port && port <= r.last && (r.values == nil || slices.Contains(r.values, l))
		}) {
			n++
		}
	}
	return n
}

// peers returns the peers of the rule; without values all that have the label.
func (r teamRule) peers() (all []networkingv1.NetworkPolicyPeer) {
	if r.values == nil {
		exists := metav1.LabelSelectorRequirement{Key: "team", Operator: metav1.LabelSelectorOpExists}
		return []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{exists}},
		}}
	}
	for _, v := range r.values {
		all = append(all, networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": v}},
		})
	}
	return all
}

// byTeam is a policy with these rules for both directions.
func byTeam() *networkingv1.NetworkPolicy {
	spec := networkingv1.NetworkPolicySpec{
		PodSelector: ofApp("db"),
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
	}
	for _, r := range teamRules {
		ports := []networkingv1.NetworkPolicyPort{{
			Protocol: new(corev1.ProtocolUDP), Port: new(intstr.FromInt32(int32(r.first))), EndPort: new(int32(r.last)),
		}}
		spec.Ingress = append(spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: r.peers(), Ports: ports})
		spec.Egress = append(spec.Egress, networkingv1.NetworkPolicyEgressRule{To: r.peers(), Ports: ports})
	}
	return policy("by-team", spec)
}

// crowd is a Namespace with Pods of another node.
type crowd struct {
	label string
	addrs []netip.Addr
}

func (c *crowd) namespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "crowd", Labels: map[string]string{"team": c.label}}}
}

// add has the API server have the Pods, of both families.
func (c *crowd) add(w *world, pods int) {
	var all []metav1.Object
	for i := range pods {
		addrs := []netip.Addr{
			netip.AddrFrom4([4]byte{10, 245, byte(i >> 8), byte(i)}),
			netip.MustParseAddr(fmt.Sprintf("fd00:245::%x", i)),
		}
		p := object(fmt.Sprintf("pod-%d", i), app(fmt.Sprintf("app-%d", i%50)))
		p.Namespace, p.Spec.NodeName = "crowd", "node-2"
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addrs[0].String()}
		for _, a := range addrs {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
		}
		c.addrs = append(c.addrs, addrs[i%2])
		all = append(all, p)
	}
	w.API.Put(all...)
}

// probes are one between each of the Pods and db: families, directions and ports take turns.
func (c *crowd) probes(db []netip.Addr) (all []probe) {
	for i, a := range c.addrs {
		p := probe{from: a, to: db[i%2], port: teamPorts[i/4%len(teamPorts)]}
		if i/2%2 == 0 {
			p.from, p.to = p.to, p.from
		}
		all = append(all, p)
	}
	return all
}

// TestNamespaceRelabelled gives a Namespace of 5,000 Pods another label, there and back, while each of them
// sends or gets. What both labels allow always passes, and when the agent says that the kernel has the
// change, what the new one denies does not.
func TestNamespaceRelabelled(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	const pods = 5000
	w.API.Put(theNode(podRanges...), byTeam())
	c := &crowd{label: "red"}
	w.API.Put(c.namespace())
	lab := w.newProber(t, podRanges, []string{"10.245.0.0/16", "fd00:245::/64"}, teamPorts...)
	db := w.launch(t, "db", app("db"), "10.244.1.11", netip.MustParseAddr("fd00:244::1:11"))
	lab.join(t, db, teamPorts...)
	c.add(w, pods)
	all := c.probes(db.Addrs)
	// check sends some of the probes and verifies what all or none of the labels allow.
	check := func(when string, first, n int, labels ...string) {
		t.Helper()
		some := all[first : first+n]
		must := func(i int) bool { return allowed(some[i].port, labels...) == len(labels) }
		for i, passed := range lab.pass(t, some, must) {
			if passed && allowed(some[i].port, labels...) == 0 || !passed && must(i) {
				t.Errorf("%s, labels %v: %s passed: %t", when, labels, some[i], passed)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	until(t, "the kernel has all Pods", func() bool {
		some := 4 * len(teamPorts)
		for i, passed := range lab.pass(t, all[pods-some:], func(int) bool { return false }) {
			if !passed && allowed(all[pods-some+i].port, c.label) == 1 {
				return false
			}
		}
		before := synchronized(t)
		time.Sleep(500 * time.Millisecond) // in which the agent says so, too
		return synchronized(t) == before
	})
	during := 0
	for _, next := range []string{"blue", "red", "blue", "red"} {
		lab.renew(t)
		check("before", 0, pods, c.label)
		before, syncs := c.label, synchronized(t)
		c.label = next
		w.API.Put(c.namespace())
		for begin := time.Now(); synchronized(t) == syncs; {
			if time.Since(begin) > patience {
				t.Fatal("the agent does not say that the kernel has the change")
			}
			const some = 200
			check("meanwhile", during%pods, some, before, next)
			during += some
		}
		lab.renew(t)
		check("after", 0, pods, next)
	}
	t.Logf("%d probes with each label, and %d during changes", pods, during)
}

// synchronized returns how many changes the agent says that it brought into the kernel.
func synchronized(t *testing.T) int {
	t.Helper()
	return metric(t, `portolan_policy_sync_duration_seconds_count{kind="partial"}`)
}
