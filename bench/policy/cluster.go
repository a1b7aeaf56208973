package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/policy/plan"
)

// The cluster: each policy selects the Pods of one app in one namespace, ten or so, and has three peers
// by label that select some 170 Pods each.
const (
	nodeName   = "node-1"
	pods       = 10_000
	locals     = 1_000
	policies   = 1_000
	namespaces = 100
	apps       = 10
	teams      = 10 // labels of namespaces

	labels = 5 // of each Pod, each with one of values
	values = 16
	peers  = 3 // of each policy, each with some of the values of one label
	some   = 3

	firstPort = 8000 // of policies
)

// node is a node with so many of the cluster's Pods.
type node int

const (
	// large has a Pod of each app, so that all policies apply there.
	large node = 1000
	// usual has as many Pods as a kubelet starts by default (kubelet.config.k8s.io/v1beta1, maxPods).
	usual node = 110
)

// These are the first addresses, and the range of the node's Pods.
const (
	localIPs   = "10.1.0.1"
	localRange = "10.1.0.0/16"
	otherIPs   = "10.2.0.1"
)

// random returns the random numbers of the i-th object of a kind: the same ones each time.
func random(kind, i uint64) *rand.Rand { return rand.New(rand.NewPCG(kind, i)) }

// The kinds of objects for random.
const (
	ofPods uint64 = iota
	ofPolicies
	ofChanges
	ofQuestions
)

func namespaceName(i int) string      { return fmt.Sprintf("ns-%d", i) }
func appName(i int) string            { return fmt.Sprintf("app-%d", i) }
func teamName(i int) string           { return fmt.Sprintf("team-%d", i) }
func labelName(i int) string          { return fmt.Sprintf("label-%d", i) }
func valueName(i int) string          { return fmt.Sprintf("value-%d", i) }
func randomValue(r *rand.Rand) string { return valueName(r.IntN(values)) }

func newNamespace(i int) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespaceName(
			i,
		),
		Labels: map[string]string{"team": teamName(i % teams), corev1.LabelMetadataName: namespaceName(i)},
	}}
}

// newNode returns the Node.
func newNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Spec:       corev1.NodeSpec{PodCIDR: localRange, PodCIDRs: []string{localRange}},
	}
}

// podAddr returns the address of the i-th Pod; the first ones are on the node.
func (n node) podAddr(i int) netip.Addr {
	if i < int(n) {
		return synthetic.Nth(localIPs, i)
	}
	return synthetic.Nth(otherIPs, i-int(n))
}

// newPod returns the i-th Pod.
func (n node) newPod(i int) *corev1.Pod {
	r := random(ofPods, uint64(i))
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceName(i % namespaces), Name: fmt.Sprintf("pod-%d", i),
			UID:    types.UID(fmt.Sprintf("uid-%d", i)),
			Labels: map[string]string{"app": appName(i / namespaces % apps)},
		},
		Spec: corev1.PodSpec{
			NodeName: nodeName,
			Containers: []corev1.Container{
				{Name: "main", Image: "image", Ports: []corev1.ContainerPort{{ContainerPort: firstPort}}},
			},
		},
	}
	if i >= int(n) {
		p.Spec.NodeName = fmt.Sprintf("node-%d", 2+i/100)
	}
	for l := range labels {
		p.Labels[labelName(l)] = randomValue(r)
	}
	return running(p, n.podAddr(i))
}

// running gives a Pod the status of one that runs.
func running(p *corev1.Pod, addr netip.Addr) *corev1.Pod {
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: addr.String(), PodIPs: []corev1.PodIP{{IP: addr.String()}},
	}
	return p
}

// newPolicy returns the i-th policy.
func newPolicy(i int) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceName(i % namespaces), Name: fmt.Sprintf("policy-%d", i)},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": appName(i / namespaces % apps)}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	r := random(ofPolicies, uint64(i))
	for n := range peers {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{
			From:  []networkingv1.NetworkPolicyPeer{newPeer(r)},
			Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolTCP, firstPort+n)},
		})
	}
	return p
}

// newPeer returns a peer with some values of a label, in the namespaces of a team.
func newPeer(r *rand.Rand) networkingv1.NetworkPolicyPeer {
	in := metav1.LabelSelectorRequirement{Key: labelName(r.IntN(labels)), Operator: metav1.LabelSelectorOpIn}
	for _, v := range r.Perm(values)[:some] {
		in.Values = append(in.Values, valueName(v))
	}
	return networkingv1.NetworkPolicyPeer{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": teamName(r.IntN(teams))}},
		PodSelector:       &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in}},
	}
}

func port(protocol corev1.Protocol, number int) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt(number))}
}

// objects calls do with objects, and their resources as in URLs.
type objects func(do func(resource string, o fakeapi.Object) error) error

// eachPod is the cluster without its policies.
func (n node) eachPod(do func(resource string, o fakeapi.Object) error) error {
	if err := do("nodes", newNode()); err != nil {
		return err
	}
	for i := range namespaces {
		if err := do("namespaces", newNamespace(i)); err != nil {
			return err
		}
	}
	for i := range pods {
		if err := do("pods", n.newPod(i)); err != nil {
			return err
		}
	}
	return nil
}

// eachPolicy is the policies of the cluster.
func eachPolicy(do func(resource string, o fakeapi.Object) error) error {
	for i := range policies {
		if err := do("networkpolicies", newPolicy(i)); err != nil {
			return err
		}
	}
	return nil
}

// model returns a model with objects, as the source writes it.
func model(all ...objects) (*cluster.Store, error) {
	store := cluster.NewStore()
	var err error
	store.Update(func(tx *cluster.Tx) {
		for _, each := range all {
			if err = each(func(_ string, o fakeapi.Object) error { return put(tx, o) }); err != nil {
				return
			}
		}
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	return store, err
}

// put decodes an object into the model.
func put(tx *cluster.Tx, o fakeapi.Object) error {
	made, err := decode(o)
	if err == nil {
		tx.Put(made)
	}
	return err
}

// decode decodes an object as the source does.
func decode(o fakeapi.Object) (made cluster.Object, err error) {
	var errs field.ErrorList
	switch o := o.(type) {
	case *corev1.Node:
		made, errs = object.Node(o)
	case *corev1.Namespace:
		made, errs = object.Namespace(o)
	case *corev1.Pod:
		made, errs = object.Pod(o)
	case *networkingv1.NetworkPolicy:
		made, errs = object.NetworkPolicy(o)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%s: %w", o.GetName(), errs.ToAggregate())
	}
	return made, nil
}

// compile compiles the whole model for the node.
func compile(store *cluster.Store) *plan.Compiler {
	c := plan.New(
		plan.Config{Node: nodeName, DNS: plan.DNS{Service: cluster.Key{Namespace: "kube-system", Name: "kube-dns"}}},
	)
	store.View(func(v *cluster.View) { c.Apply(v, &cluster.Changes{Everything: true}) })
	return c
}

// relabeled returns a Pod of the cluster of which one label has another value: another Pod for each i.
func (n node) relabeled(i int) *corev1.Pod {
	const step = 7919 // a prime: no two of as many as there are Pods are equal
	p := n.newPod(i * step % pods)
	r := random(ofChanges, uint64(i))
	label := labelName(r.IntN(labels))
	for old := p.Labels[label]; p.Labels[label] == old; {
		p.Labels[label] = randomValue(r)
	}
	return p
}
