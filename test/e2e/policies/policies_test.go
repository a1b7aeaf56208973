package policies

import (
	"cmp"
	"context"
	"flag"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/mattfenwick/cyclonus/pkg/matcher"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
	npa "sigs.k8s.io/kube-network-policies/plugins/npa-v1alpha2"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	fakepolicy "sigs.k8s.io/network-policy-api/pkg/client/clientset/versioned/fake"
	policyinformers "sigs.k8s.io/network-policy-api/pkg/client/informers/externalversions"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/policy/semantics"
)

var questions = flag.Int("questions", 20000, "how many random questions are asked")

// perWorld is how many questions are asked about one cluster.
const perWorld = 200

// verdicts are whether the egress of the source and the ingress of the destination allow a connection.
type verdicts struct{ egress, ingress bool }

// evaluator is one of policies.
type evaluator interface {
	load(t *testing.T, w *world)
	judge(t *testing.T, q *question) verdicts
}

// portolan is policy/semantics.
type portolan struct {
	set    *semantics.Set
	view   *cluster.View
	detail [2]semantics.Verdict // of the last question
}

func put[API any, Obj cluster.Object](t *testing.T, tx *cluster.Tx, decode func(API) (Obj, field.ErrorList), o API) {
	t.Helper()
	made, errs := decode(o)
	if len(errs) > 0 {
		t.Fatalf("decoding %+v: %v", o, errs)
	}
	tx.Put(made)
}

func (p *portolan) load(t *testing.T, w *world) {
	t.Helper()
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for _, n := range w.nodes {
			put(t, tx, object.Node, n)
		}
		for _, n := range w.namespaces {
			put(t, tx, object.Namespace, n)
		}
		for _, o := range w.pods {
			put(t, tx, object.Pod, o)
		}
		for _, o := range w.policies {
			put(t, tx, object.NetworkPolicy, o)
		}
		for _, o := range w.tiers {
			put(t, tx, object.ClusterNetworkPolicy, o)
		}
	})
	store.View(func(v *cluster.View) { p.set = semantics.NewSet(v) })
	p.view = nil
	store.View(func(v *cluster.View) { p.view = v })
}

func (p *portolan) judge(t *testing.T, q *question) verdicts {
	t.Helper()
	from, to := p.end(t, q.from), p.end(t, q.to)
	port := cluster.Port{Protocol: cluster.Protocol(q.protocol), Number: uint16(q.port)}
	p.detail = [2]semantics.Verdict{{Allowed: true}, {Allowed: true}}
	if q.from.pod != nil {
		p.detail[0] = p.set.Egress(from, to, port)
	}
	if q.to.pod != nil {
		p.detail[1] = p.set.Ingress(to, from, port)
	}
	return verdicts{p.detail[0].Allowed, p.detail[1].Allowed}
}

func (p *portolan) end(t *testing.T, e end) *semantics.End {
	t.Helper()
	if e.pod == nil {
		return semantics.NewEnds(p.view).At(e.addr)
	}
	made, errs := object.Pod(e.pod)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return semantics.EndOf(made)
}

// cyclonus is the matcher of cyclonus. It has no notion of ClusterNetworkPolicies, nodes and hostNetwork.
type cyclonus struct {
	policy     *matcher.Policy
	namespaces map[string]*corev1.Namespace
}

func (c *cyclonus) load(_ *testing.T, w *world) {
	c.policy, c.namespaces = matcher.BuildNetworkPolicies(false, w.policies), w.namespaces
}

func (c *cyclonus) judge(_ *testing.T, q *question) verdicts {
	traffic := &matcher.Traffic{
		Source: c.peer(q.from), Destination: c.peer(q.to), ResolvedPort: int(q.port), Protocol: q.protocol,
		ResolvedPortName: portName(q.to.pod, q.protocol, q.port),
	}
	result := c.policy.IsTrafficAllowed(traffic)
	return verdicts{result.Egress.IsAllowed(), result.Ingress.IsAllowed()}
}

func (c *cyclonus) peer(e end) *matcher.TrafficPeer {
	peer := &matcher.TrafficPeer{IP: e.addr.String()}
	if e.pod != nil {
		peer.Internal = &matcher.InternalPeer{
			PodLabels: e.pod.Labels, Namespace: e.pod.Namespace, NamespaceLabels: c.namespaces[e.pod.Namespace].Labels,
		}
	}
	return peer
}

func portName(pod *corev1.Pod, protocol corev1.Protocol, number int32) string {
	if pod == nil {
		return ""
	}
	for _, p := range pod.Spec.Containers[0].Ports {
		if p.Protocol == protocol && p.ContainerPort == number {
			return p.Name
		}
	}
	return ""
}

// engine is that of kube-network-policies. It has no notion of the own node.
type engine struct {
	namespaces, pods, policies, tiers, nodes cache.Indexer
	evaluators                               []api.PolicyEvaluator
	whole                                    *networkpolicy.PolicyEngine
	byAddr                                   map[string]*api.PodInfo
}

func newEngine() *engine {
	core := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	policy := policyinformers.NewSharedInformerFactory(fakepolicy.NewClientset(), 0)
	namespaces, pods, nodes := core.Core().V1().Namespaces(), core.Core().V1().Pods(), core.Core().V1().Nodes()
	policies, tiers := core.Networking().V1().NetworkPolicies(), policy.Policy().V1alpha2().ClusterNetworkPolicies()
	e := &engine{
		namespaces: namespaces.Informer().GetIndexer(),
		pods:       pods.Informer().GetIndexer(),
		nodes:      nodes.Informer().GetIndexer(),
		policies:   policies.Informer().GetIndexer(),
		tiers:      tiers.Informer().GetIndexer(),
	}
	e.evaluators = []api.PolicyEvaluator{
		npa.NewClusterNetworkPolicy(policyv1alpha2.AdminTier, tiers, nil, nodes.Lister()),
		networkpolicy.NewStandardNetworkPolicy("n0", namespaces, pods, policies),
		npa.NewClusterNetworkPolicy(policyv1alpha2.BaselineTier, tiers, nil, nodes.Lister()),
	}
	e.whole = networkpolicy.NewPolicyEngine(e, e.evaluators)
	return e
}

func fill[T any](t *testing.T, index cache.Indexer, objects []T) {
	t.Helper()
	all := make([]any, 0, len(objects))
	for _, o := range objects {
		all = append(all, o)
	}
	if err := index.Replace(all, ""); err != nil {
		t.Fatal(err)
	}
}

func (e *engine) load(t *testing.T, w *world) {
	t.Helper()
	fill(t, e.nodes, w.nodes)
	fill(t, e.policies, w.policies)
	fill(t, e.tiers, w.tiers)
	e.byAddr = make(map[string]*api.PodInfo)
	for _, p := range w.pods {
		if !p.Spec.HostNetwork { // as in its podinfo
			e.byAddr[p.Status.PodIP] = api.NewPodInfo(p, w.namespaces[p.Namespace].Labels, nil, "")
		}
	}
}

// GetPodInfoByIP implements api.PodInfoProvider.
func (e *engine) GetPodInfoByIP(ip string) (*api.PodInfo, bool) {
	info, ok := e.byAddr[ip]
	return info, ok
}

func (e *engine) judge(t *testing.T, q *question) verdicts {
	t.Helper()
	ctx := context.Background()
	packet := &network.Packet{
		SrcIP:   bytesOf(q.from.addr),
		DstIP:   bytesOf(q.to.addr),
		Proto:   q.protocol,
		SrcPort: 40000,
		DstPort: int(q.port),
	}
	from, to := e.byAddr[q.from.addr.String()], e.byAddr[q.to.addr.String()]
	v := verdicts{
		egress: e.direction(
			t,
			func(p api.PolicyEvaluator) (api.Verdict, error) { return p.EvaluateEgress(ctx, packet, from, to) },
		),
		ingress: e.direction(
			t,
			func(p api.PolicyEvaluator) (api.Verdict, error) { return p.EvaluateIngress(ctx, packet, from, to) },
		),
	}
	whole, err := e.whole.EvaluatePacket(ctx, packet)
	if err != nil || whole != (v.egress && v.ingress) {
		t.Fatalf("%s: the engine's verdict is %t, %v; its evaluators' are %+v", q, whole, err, v)
	}
	return v
}

// direction returns whether the first evaluator that decides accepts.
func (e *engine) direction(t *testing.T, evaluate func(api.PolicyEvaluator) (api.Verdict, error)) bool {
	t.Helper()
	for _, p := range e.evaluators {
		switch v, err := evaluate(p); {
		case err != nil:
			t.Fatal(err)
		case v != api.VerdictNext:
			return v == api.VerdictAccept
		}
	}
	return true
}

func bytesOf(a netip.Addr) net.IP { return a.AsSlice() }

// difference is a reason for which two evaluators may decide differently on one direction.
type difference struct {
	name string
	// source is why this evaluator decides as it does.
	source string
	// holds reports whether it explains that policy/semantics allows, or denies, what the other does not.
	// It is nil if as is not.
	holds func(w *world, d *direction) bool
	// as returns the NetworkPolicies that have the meaning that the other evaluator gives to those of the
	// cluster: it explains a verdict that policy/semantics has with these.
	as func([]*networkingv1.NetworkPolicy) []*networkingv1.NetworkPolicy
}

// direction is one end's view of a question.
type direction struct {
	policyType networkingv1.PolicyType
	own, peer  end
	ours       semantics.Verdict
}

var (
	hostNetworkSubject = difference{
		"a Pod with hostNetwork is not subject to policies",
		`Network Policies, "NetworkPolicy and hostNetwork pods": ignored when matching podSelector and namespaceSelector`,
		func(_ *world, d *direction) bool { return d.own.pod.Spec.HostNetwork && d.ours.Allowed }, nil,
	}
	hostNetworkPeer = difference{
		"a Pod with hostNetwork is no peer of selectors",
		`Network Policies, "NetworkPolicy and hostNetwork pods": treated the same as all other traffic to or from the node's address`,
		func(_ *world, d *direction) bool {
			return d.peer.pod != nil && d.peer.pod.Spec.HostNetwork && !d.ours.Allowed
		},
		nil,
	}
	ownNode = difference{
		"what is between a Pod and its own node is allowed",
		`networking.k8s.io/v1, NetworkPolicySpec.ingress: "OR if the traffic source is the pod's local node"; for egress a decision`,
		func(w *world, d *direction) bool {
			return d.ours.Allowed && d.peer.addr == w.addrOf(d.own.pod.Spec.NodeName)
		},
		nil,
	}
	itself = difference{
		"a Pod reaches itself",
		"a decision: Kubernetes leaves it open, and the traffic only leaves the Pod if it goes through a Service",
		func(_ *world, d *direction) bool { return d.ours.Allowed && d.own.pod == d.peer.pod }, nil,
	}
	otherDirection = difference{
		"a NetworkPolicy for one direction does not hide the Baseline tier for the other",
		"policy.networking.k8s.io/v1alpha2, ClusterNetworkPolicySpec.tier: NetworkPolicies decide for selected Pods; isolation is per direction (Network Policies)",
		func(w *world, d *direction) bool {
			decided := d.ours.Decider.Policy
			return decided != nil && decided.Tier == cluster.BaselineTier && !d.ours.Allowed && w.selectedOnlyFor(d)
		},
		nil,
	}
	notIn = difference{
		"NotIn selects what has no such label",
		`Labels and Selectors, "Set-based requirement", on notin: "and all resources with no labels with the tier key"`,
		nil, withPresence,
	}
)

// withPresence returns policies whose selectors require the label of each NotIn.
func withPresence(policies []*networkingv1.NetworkPolicy) (changed []*networkingv1.NetworkPolicy) {
	require := func(s *metav1.LabelSelector) {
		if s == nil {
			return
		}
		for _, e := range s.MatchExpressions {
			if e.Operator == metav1.LabelSelectorOpNotIn {
				s.MatchExpressions = append(
					s.MatchExpressions,
					metav1.LabelSelectorRequirement{Key: e.Key, Operator: metav1.LabelSelectorOpExists},
				)
			}
		}
	}
	for _, p := range policies {
		p = p.DeepCopy()
		require(&p.Spec.PodSelector)
		for _, rule := range p.Spec.Ingress {
			for _, peer := range rule.From {
				require(peer.PodSelector)
				require(peer.NamespaceSelector)
			}
		}
		for _, rule := range p.Spec.Egress {
			for _, peer := range rule.To {
				require(peer.PodSelector)
				require(peer.NamespaceSelector)
			}
		}
		changed = append(changed, p)
	}
	return changed
}

func (w *world) addrOf(node string) netip.Addr {
	for _, n := range w.nodes {
		if n.Name == node {
			return netip.MustParseAddr(n.Status.Addresses[0].Address)
		}
	}
	return netip.Addr{}
}

// selectedOnlyFor reports whether NetworkPolicies select the Pod, and none of them for the direction.
func (w *world) selectedOnlyFor(d *direction) bool {
	selected := false
	for _, p := range w.policies {
		s, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil || p.Namespace != d.own.pod.Namespace || !s.Matches(labels.Set(d.own.pod.Labels)) {
			continue
		}
		selected = true
		if slices.Contains(p.Spec.PolicyTypes, d.policyType) {
			return false
		}
	}
	return selected
}

// TestCyclonus compares verdicts on NetworkPolicies with those of cyclonus' matcher.
func TestCyclonus(t *testing.T) {
	t.Parallel()
	compare(t, new(cyclonus), withoutTiers, hostNetworkSubject, hostNetworkPeer, ownNode, itself, notIn)
}

// TestEngineOnNetworkPolicies compares verdicts on NetworkPolicies with those of the engine of
// kube-network-policies.
func TestEngineOnNetworkPolicies(t *testing.T) {
	t.Parallel()
	compare(t, newEngine(), withoutTiers, ownNode, itself)
}

// TestEngine compares verdicts on NetworkPolicies and ClusterNetworkPolicies with those of the engine of
// kube-network-policies.
func TestEngine(t *testing.T) {
	t.Parallel()
	compare(t, newEngine(), withTiers, ownNode, itself, otherDirection)
}

// scope is which policies are compared.
type scope uint8

const (
	withoutTiers scope = iota
	withTiers
)

// compare asks both evaluators the questions. Each verdict that differs must have one of the reasons, and
// each reason must occur.
func compare(t *testing.T, other evaluator, s scope, reasons ...difference) {
	t.Helper()
	const most = 10 // differences that are printed
	ours, counts := new(portolan), make(map[string]int)
	asked, allowed, failures := 0, 0, 0
	for seed := uint64(0); asked < *questions; seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(r)
		if s == withoutTiers {
			w.tiers = nil
		}
		ours.load(t, w)
		other.load(t, w)
		others := readings(t, w, reasons)
		for range perWorld {
			q := w.ask(r)
			asked++
			mine, theirs := ours.judge(t, &q), other.judge(t, &q)
			if mine.egress && mine.ingress {
				allowed++
			}
			for _, d := range []struct {
				differs bool
				direction
			}{
				{mine.egress != theirs.egress, direction{networkingv1.PolicyTypeEgress, q.from, q.to, ours.detail[0]}},
				{mine.ingress != theirs.ingress, direction{networkingv1.PolicyTypeIngress, q.to, q.from, ours.detail[1]}},
			} {
				if !d.differs {
					continue
				}
				if reason := cmp.Or(explain(w, &d.direction, reasons), reread(t, &q, &d.direction, others)); reason != "" {
					counts[reason]++
					continue
				}
				failures++
				t.Errorf(
					"seed %d: %s: %s is %t, the other evaluator's is %t",
					seed,
					&q,
					d.policyType,
					d.ours.Allowed,
					!d.ours.Allowed,
				)
			}
			if failures >= most {
				t.Fatal("too many differences")
			}
		}
	}
	t.Logf("%d questions, %d of them allowed", asked, allowed)
	for _, reason := range reasons {
		t.Logf("%6d verdicts differ: %s (%s)", counts[reason.name], reason.name, reason.source)
		if counts[reason.name] == 0 {
			t.Errorf("no verdict differs because %s", reason.name)
		}
	}
}

// reading is policy/semantics with the policies that another evaluator takes the cluster's for.
type reading struct {
	difference
	portolan
}

// readings returns those of the reasons that are differences in what policies mean.
func readings(t *testing.T, w *world, reasons []difference) (all []*reading) {
	t.Helper()
	for _, reason := range reasons {
		if reason.as == nil {
			continue
		}
		other := *w
		other.policies = reason.as(w.policies)
		r := &reading{difference: reason}
		r.load(t, &other)
		all = append(all, r)
	}
	return all
}

// explain returns the name of the first reason that holds, "" if none does.
func explain(w *world, d *direction, reasons []difference) string {
	for _, reason := range reasons {
		if reason.holds != nil && reason.holds(w, d) {
			return reason.name
		}
	}
	return ""
}

// reread returns the name of the first reading with the other evaluator's verdict on a direction, "" if
// there is none.
func reread(t *testing.T, q *question, d *direction, all []*reading) string {
	t.Helper()
	for _, r := range all {
		again := r.judge(t, q)
		if allowed := map[networkingv1.PolicyType]bool{
			networkingv1.PolicyTypeEgress: again.egress, networkingv1.PolicyTypeIngress: again.ingress,
		}[d.policyType]; allowed != d.ours.Allowed {
			return r.name
		}
	}
	return ""
}
