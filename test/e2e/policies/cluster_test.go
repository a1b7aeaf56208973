package policies

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// world is a cluster with policies.
type world struct {
	nodes      []*corev1.Node
	namespaces map[string]*corev1.Namespace
	pods       []*corev1.Pod
	policies   []*networkingv1.NetworkPolicy
	tiers      []*policyv1alpha2.ClusterNetworkPolicy
}

// question is a connection between two addresses.
type question struct {
	from, to end
	protocol corev1.Protocol
	port     int32
}

// end is an address, and the Pod that has it; nil for one of a node or outside the cluster.
type end struct {
	addr netip.Addr
	pod  *corev1.Pod
}

func (e end) String() string {
	if e.pod == nil {
		return e.addr.String()
	}
	return fmt.Sprintf("%s/%s (%s)", e.pod.Namespace, e.pod.Name, e.addr)
}

func (q *question) String() string {
	return fmt.Sprintf("from %s to %s:%d/%s", q.from, q.to, q.port, q.protocol)
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// chance reports true once in n calls.
func chance(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

// outside are addresses outside the cluster.
var outside = []string{"198.51.100.7", "203.0.113.9", "2001:db8:1::7"}

const (
	nodeCount = 3
	podCount  = 12
)

// newWorld returns a random cluster.
func newWorld(r *rand.Rand) *world {
	w := &world{namespaces: make(map[string]*corev1.Namespace)}
	for i := range nodeCount {
		w.nodes = append(w.nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n" + strconv.Itoa(i), Labels: randomLabels(r)},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "192.0.2." + strconv.Itoa(i+1)},
			}},
		})
	}
	for _, name := range []string{"one", "two", "three"} {
		labels := randomLabels(r)
		labels[corev1.LabelMetadataName] = name
		w.namespaces[name] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	for i := range podCount {
		w.pods = append(w.pods, randomPod(r, i))
	}
	for i := range r.IntN(12) {
		w.policies = append(w.policies, randomPolicy(r, "p"+strconv.Itoa(i)))
	}
	for i := range r.IntN(4) {
		w.tiers = append(w.tiers, randomTier(r, "c"+strconv.Itoa(i)))
	}
	return w
}

func randomLabels(r *rand.Rand) map[string]string {
	labels := make(map[string]string)
	for _, key := range []string{"app", "tier", "role"} {
		if chance(r, 2) {
			labels[key] = pick(r, "a", "b", "c")
		}
	}
	return labels
}

func randomPod(r *rand.Rand, i int) *corev1.Pod {
	node := r.IntN(nodeCount)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pick(r, "one", "two", "three"), Name: "pod" + strconv.Itoa(i), Labels: randomLabels(r)},
		Spec: corev1.PodSpec{
			NodeName: "n" + strconv.Itoa(node),
			Containers: []corev1.Container{{Name: "main", Ports: []corev1.ContainerPort{
				{Name: "http", ContainerPort: pick[int32](r, 80, 81), Protocol: corev1.ProtocolTCP},
				{Name: "dns", ContainerPort: pick[int32](r, 53, 80), Protocol: corev1.ProtocolUDP},
			}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	addr := fmt.Sprintf("10.244.%d.%d", node, i+1)
	switch {
	case chance(r, 6):
		pod.Spec.HostNetwork = true
		addr = "192.0.2." + strconv.Itoa(node+1)
	case chance(r, 4):
		addr = fmt.Sprintf("fd00:244:%d::%d", node, i+1)
	}
	addr = netip.MustParseAddr(addr).String()
	pod.Status.PodIP, pod.Status.PodIPs = addr, []corev1.PodIP{{IP: addr}}
	return pod
}

func randomSelector(r *rand.Rand) *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	if chance(r, 3) {
		return s
	}
	if chance(r, 2) {
		s.MatchLabels = map[string]string{pick(r, "app", "tier", "role"): pick(r, "a", "b", "c")}
	}
	if chance(r, 2) {
		e := metav1.LabelSelectorRequirement{
			Key:      pick(r, "app", "tier", "role"),
			Operator: pick(r, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist),
		}
		if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
			e.Values = pick(r, []string{"a"}, []string{"b", "c"})
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

func randomNamespaces(r *rand.Rand) *metav1.LabelSelector {
	if chance(r, 3) {
		return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: pick(r, "one", "two", "three")}}
	}
	return randomSelector(r)
}

// blocks are ranges, each with ranges inside it.
var blocks = map[string][]string{
	"10.244.0.0/16": {"10.244.1.0/24", "10.244.0.0/29", "10.244.2.5/32"},
	"0.0.0.0/0":     {"10.0.0.0/8", "192.0.2.0/24", "198.51.100.7/32"},
	"192.0.2.0/24":  {"192.0.2.1/32", "192.0.2.2/31"},
	"::/0":          {"fd00:244::/32", "2001:db8::/32"},
	"fd00:244::/32": {"fd00:244:1::/48"},
	"10.244.1.7/24": nil,
}

func randomBlock(r *rand.Rand) string {
	return pick(r, "10.244.0.0/16", "0.0.0.0/0", "192.0.2.0/24", "::/0", "fd00:244::/32", "10.244.1.7/24")
}

// randomPolicy returns a NetworkPolicy as an API server returns it: with its defaults, and without empty
// lists.
func randomPolicy(r *rand.Rand, name string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: pick(r, "one", "two", "three"), Name: name}}
	p.Spec.PodSelector = *randomSelector(r)
	p.Spec.PolicyTypes = pick(r,
		[]networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		[]networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress})
	for range r.IntN(4) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: randomPeers(r), Ports: randomPorts(r)})
	}
	for range r.IntN(4) {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: randomPeers(r), Ports: randomPorts(r)})
	}
	return p
}

func randomPeers(r *rand.Rand) (peers []networkingv1.NetworkPolicyPeer) {
	for range r.IntN(3) {
		var peer networkingv1.NetworkPolicyPeer
		switch r.IntN(4) {
		case 0:
			cidr := randomBlock(r)
			peer.IPBlock = &networkingv1.IPBlock{CIDR: cidr}
			for _, except := range blocks[cidr] {
				if chance(r, 3) {
					peer.IPBlock.Except = append(peer.IPBlock.Except, except)
				}
			}
		case 1:
			peer.PodSelector = randomSelector(r)
		case 2:
			peer.NamespaceSelector = randomNamespaces(r)
		default:
			peer.PodSelector, peer.NamespaceSelector = randomSelector(r), randomNamespaces(r)
		}
		peers = append(peers, peer)
	}
	return peers
}

func randomPorts(r *rand.Rand) (ports []networkingv1.NetworkPolicyPort) {
	for range r.IntN(3) {
		protocol := pick(r, protocols...)
		port := networkingv1.NetworkPolicyPort{Protocol: &protocol}
		switch r.IntN(4) {
		case 0:
		case 1:
			name := intstr.FromString(pick(r, "http", "dns"))
			port.Port = &name
		default:
			number := intstr.FromInt32(pick[int32](r, 53, 80, 81))
			port.Port = &number
			if chance(r, 2) {
				last := number.IntVal + pick[int32](r, 0, 1, 28)
				port.EndPort = &last
			}
		}
		ports = append(ports, port)
	}
	return ports
}

func randomTier(r *rand.Rand, name string) *policyv1alpha2.ClusterNetworkPolicy {
	c := &policyv1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Tier = pick(r, policyv1alpha2.AdminTier, policyv1alpha2.BaselineTier)
	c.Spec.Priority = pick[int32](r, 0, 1, 1000)
	if chance(r, 2) {
		c.Spec.Subject.Namespaces = randomNamespaces(r)
	} else {
		c.Spec.Subject.Pods = randomPods(r)
	}
	for range r.IntN(4) {
		rule := policyv1alpha2.ClusterNetworkPolicyIngressRule{Action: randomAction(r), Protocols: randomProtocols(r)}
		for range 1 + r.IntN(2) {
			var peer policyv1alpha2.ClusterNetworkPolicyIngressPeer
			if chance(r, 2) {
				peer.Namespaces = randomNamespaces(r)
			} else {
				peer.Pods = randomPods(r)
			}
			rule.From = append(rule.From, peer)
		}
		c.Spec.Ingress = append(c.Spec.Ingress, rule)
	}
	for range r.IntN(4) {
		rule := policyv1alpha2.ClusterNetworkPolicyEgressRule{Action: randomAction(r), Protocols: randomProtocols(r)}
		for range 1 + r.IntN(2) {
			var peer policyv1alpha2.ClusterNetworkPolicyEgressPeer
			switch r.IntN(4) {
			case 0:
				peer.Namespaces = randomNamespaces(r)
			case 1:
				peer.Pods = randomPods(r)
			case 2:
				peer.Nodes = randomSelector(r)
			default:
				for range 1 + r.IntN(2) {
					peer.Networks = append(peer.Networks, policyv1alpha2.CIDR(randomBlock(r)))
				}
			}
			rule.To = append(rule.To, peer)
		}
		c.Spec.Egress = append(c.Spec.Egress, rule)
	}
	return c
}

func randomPods(r *rand.Rand) *policyv1alpha2.NamespacedPod {
	return &policyv1alpha2.NamespacedPod{NamespaceSelector: *randomNamespaces(r), PodSelector: *randomSelector(r)}
}

func randomAction(r *rand.Rand) policyv1alpha2.ClusterNetworkPolicyRuleAction {
	return pick(r, policyv1alpha2.ClusterNetworkPolicyRuleActionAccept, policyv1alpha2.ClusterNetworkPolicyRuleActionDeny,
		policyv1alpha2.ClusterNetworkPolicyRuleActionPass)
}

func randomProtocols(r *rand.Rand) (all []policyv1alpha2.ClusterNetworkPolicyProtocol) {
	for range r.IntN(3) {
		port := &policyv1alpha2.Port{Number: pick[int32](r, 53, 80, 81)}
		if chance(r, 2) {
			port = &policyv1alpha2.Port{Range: &policyv1alpha2.PortRange{Start: port.Number, End: port.Number + pick[int32](r, 1, 28)}}
		}
		var p policyv1alpha2.ClusterNetworkPolicyProtocol
		switch r.IntN(4) {
		case 0:
			p.TCP = &policyv1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: port}
		case 1:
			p.UDP = &policyv1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: port}
		case 2:
			p.SCTP = &policyv1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: port}
		default:
			p.DestinationNamedPort = pick(r, "http", "dns")
		}
		all = append(all, p)
	}
	return all
}

// ask returns a random question: one of its ends is a Pod, and both have addresses of one family.
func (w *world) ask(r *rand.Rand) question {
	for {
		q := question{from: w.anyEnd(r), to: w.anyEnd(r), protocol: pick(r, protocols...), port: pick[int32](r, 53, 54, 80, 81, 108, 109)}
		if (q.from.pod != nil || q.to.pod != nil) && q.from.addr.Is4() == q.to.addr.Is4() {
			return q
		}
	}
}

func (w *world) podEnd(r *rand.Rand) end {
	pod := pick(r, w.pods...)
	return end{netip.MustParseAddr(pod.Status.PodIP), pod}
}

func (w *world) anyEnd(r *rand.Rand) end {
	switch {
	case chance(r, 8):
		return end{addr: netip.MustParseAddr(pick(r, outside...))}
	case chance(r, 8):
		return end{addr: netip.MustParseAddr(pick(r, w.nodes...).Status.Addresses[0].Address)}
	}
	return w.podEnd(r)
}
