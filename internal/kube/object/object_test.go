package object

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
)

func addrs(texts ...string) (parsed []netip.Addr) {
	for _, text := range texts {
		parsed = append(parsed, netip.MustParseAddr(text))
	}
	return parsed
}

var addrEqual = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// brief is each error as path and type, such as "spec.type: Unsupported value".
func brief(errs field.ErrorList) (texts []string) {
	for _, err := range errs {
		texts = append(texts, err.Field+": "+err.Type.String())
	}
	return texts
}

// refusal is an object that is good but for what spoil does to it, and the
// errors that this must give, as brief writes them.
type refusal[API any] struct {
	spoil func(*API)
	want  []string
}

// testRefusals converts a good object, then each spoiled one.
func testRefusals[API, Model any](t *testing.T, name string, good func() *API, convert func(*API) (Model, field.ErrorList), refusals map[string]refusal[API]) {
	t.Helper()
	if _, errs := convert(good()); len(errs) > 0 {
		t.Fatalf("%s of the good object: %v, want no error", name, errs)
	}
	for claim, test := range refusals {
		object := good()
		test.spoil(object)
		_, errs := convert(object)
		if d := cmp.Diff(test.want, brief(errs)); d != "" {
			t.Errorf("%s: %s: errors %v: (-want +got)\n%s", claim, name, errs, d)
		}
		for _, err := range errs {
			if text := err.ErrorBody(); text == "" || strings.Contains(text, "\n") {
				t.Errorf("%s: %s: error %q, want one line of text", claim, name, text)
			}
		}
	}
}

// names are what every kind with a namespace refuses, given how it names its
// own; label reports whether the name must be one label, not several with dots.
func nameRefusals[API any](meta func(*API) *metav1.ObjectMeta) map[string]refusal[API] {
	name := func(name string) func(*API) { return func(o *API) { meta(o).Name = name } }
	namespace := func(name string) func(*API) { return func(o *API) { meta(o).Namespace = name } }
	badName, badNamespace := []string{"metadata.name: Invalid value"}, []string{"metadata.namespace: Invalid value"}
	return map[string]refusal[API]{
		"no name":                          {name(""), []string{"metadata.name: Required value"}},
		"a name with upper case":           {name("Web"), badName},
		"a name with an underscore":        {name("web_1"), badName},
		"a name that ends in a hyphen":     {name("web-"), badName},
		"a name of several lines":          {name("web\nx"), badName},
		"a name longer than 253 octets":    {name(strings.Repeat("a", 254)), badName},
		"a namespace with a dot":           {namespace("a.b"), badNamespace},
		"a namespace with upper case":      {namespace("Shop"), badNamespace},
		"a namespace longer than 63":       {namespace(strings.Repeat("a", 64)), badNamespace},
		"a name and a namespace, both bad": {func(o *API) { meta(o).Name, meta(o).Namespace = "X", "Y" }, append(badName[:1:1], badNamespace...)},
	}
}

func labelRefusals[API any](meta func(*API) *metav1.ObjectMeta) map[string]refusal[API] {
	return map[string]refusal[API]{
		"a name with a dot":       {func(o *API) { meta(o).Name = "a.b" }, []string{"metadata.name: Invalid value"}},
		"a name of 64 characters": {func(o *API) { meta(o).Name = strings.Repeat("a", 64) }, []string{"metadata.name: Invalid value"}},
	}
}

func TestNamespace(t *testing.T) {
	labels := map[string]string{"team": "a"}
	got, errs := Namespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: labels}})
	if d := cmp.Diff(&cluster.Namespace{Name: "shop", Labels: labels}, got); d != "" || len(errs) > 0 {
		t.Errorf("Namespace: %v (-want +got)\n%s", errs, d)
	}
	testRefusals(t, "Namespace",
		func() *corev1.Namespace { return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}} }, Namespace,
		labelRefusals(func(o *corev1.Namespace) *metav1.ObjectMeta { return &o.ObjectMeta }))
	testRefusals(t, "Namespace",
		func() *corev1.Namespace { return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}} }, Namespace,
		map[string]refusal[corev1.Namespace]{
			"no name": {func(o *corev1.Namespace) { o.Name = "" }, []string{"metadata.name: Required value"}},
		})
}

func node(addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1.example"}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Address: a})
	}
	return n
}

func TestNode(t *testing.T) {
	tests := map[string]struct {
		addresses []string
		want      []netip.Addr
	}{
		"addresses in order":                        {[]string{"192.0.2.1", "2001:db8::1"}, addrs("192.0.2.1", "2001:db8::1")},
		"names are no addresses":                    {[]string{"node-1", "192.0.2.1", "node-1.example."}, addrs("192.0.2.1")},
		"an IPv4 address in IPv6's clothes is none": {[]string{"::ffff:192.0.2.1"}, nil},
		"an address with a zone is none":            {[]string{"fe80::1%eth0"}, nil},
		"none":                                      {nil, nil},
	}
	for claim, test := range tests {
		got, errs := Node(node(test.addresses...))
		want := &cluster.Node{Name: "node-1.example", Addresses: test.want}
		if d := cmp.Diff(want, got, addrEqual); d != "" || len(errs) > 0 {
			t.Errorf("%s: Node with addresses %q: %v (-want +got)\n%s", claim, test.addresses, errs, d)
		}
	}
	told := node()
	told.Labels = map[string]string{corev1.LabelTopologyZone: "a", "node-role.kubernetes.io/control-plane": ""}
	told.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	told.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}
	got, _ := Node(told)
	want := &cluster.Node{Name: "node-1.example", Zone: "a", ControlPlane: true, Ready: true, MilliCPU: 1500, Labels: told.Labels}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Node with a zone and a status (-want +got)\n%s", d)
	}
	testRefusals(t, "Node", func() *corev1.Node { return node("192.0.2.1") }, Node, map[string]refusal[corev1.Node]{
		"no name":                {func(o *corev1.Node) { o.Name = "" }, []string{"metadata.name: Required value"}},
		"a name with upper case": {func(o *corev1.Node) { o.Name = "Node" }, []string{"metadata.name: Invalid value"}},
	})
}

// TestNodeForProxies checks the fields of which service proxies depend.
func TestNodeForProxies(t *testing.T) {
	for claim, test := range map[string]struct {
		change func(*corev1.Node)
		want   cluster.Node
	}{
		"internal addresses are also kept apart": {func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{
				{Type: corev1.NodeExternalIP, Address: "203.0.113.1"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
				{Type: corev1.NodeHostName, Address: "192.0.2.9"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::1"},
				{Type: corev1.NodeInternalIP, Address: "node-1"},
			}
		}, cluster.Node{
			Addresses:   addrs("203.0.113.1", "192.0.2.1", "192.0.2.9", "2001:db8::1"),
			InternalIPs: addrs("192.0.2.1", "2001:db8::1"),
		}},
		"ranges of Pods": {
			func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.1.5/24", "fd01::/64"} },
			cluster.Node{PodCIDRs: ranges("10.244.1.0/24", "fd01::/64")},
		},
		"a range that is none is left out": {
			func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.1.0", "fd01::/64"} }, cluster.Node{PodCIDRs: ranges("fd01::/64")},
		},
		"it leaves when it is deleted": {
			func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} }, cluster.Node{Leaving: true},
		},
		"it leaves when the autoscaler says so": {
			func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "a"}, {Key: "ToBeDeletedByClusterAutoscaler"}}
			},
			cluster.Node{Leaving: true},
		},
		"it is cordoned": {func(n *corev1.Node) { n.Spec.Unschedulable = true }, cluster.Node{Cordoned: true}},
		"the time of creation says whose claims are older": {
			func(n *corev1.Node) { n.CreationTimestamp = metav1.Unix(1700000000, 0) }, cluster.Node{Created: 1700000000},
		},
		"the key of encrypted tunnels": {
			func(n *corev1.Node) {
				n.Annotations = map[string]string{WireGuardKey: "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="}
			},
			cluster.Node{WireGuardKey: [32]byte{
				1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
			}},
		},
		"a key of another length is none": {
			func(n *corev1.Node) { n.Annotations = map[string]string{WireGuardKey: "AQIDBA=="} }, cluster.Node{},
		},
		"a key that is not base64 is none": {
			func(n *corev1.Node) { n.Annotations = map[string]string{WireGuardKey: "?"} }, cluster.Node{},
		},
		"other taints do not have it leave": {
			func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "DeletionCandidateOfClusterAutoscaler"}} }, cluster.Node{},
		},
	} {
		in := node()
		test.change(in)
		test.want.Name = in.Name
		got, errs := Node(in)
		if d := cmp.Diff(&test.want, got, addrEqual); d != "" || len(errs) > 0 {
			t.Errorf("%s: Node: %v (-want +got)\n%s", claim, errs, d)
		}
	}
}

func TestServiceCIDR(t *testing.T) {
	cidr := func() *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes.example"},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/12", "fd96::/112"}},
		}
	}
	got, errs := ServiceCIDR(cidr())
	want := &cluster.ServiceCIDR{Name: "kubernetes.example", CIDRs: ranges("10.96.0.0/12", "fd96::/112")}
	if d := cmp.Diff(want, got, addrEqual); d != "" || len(errs) > 0 {
		t.Errorf("ServiceCIDR: %v (-want +got)\n%s", errs, d)
	}
	testRefusals(t, "ServiceCIDR", cidr, ServiceCIDR, map[string]refusal[networkingv1.ServiceCIDR]{
		"no name":                     {func(o *networkingv1.ServiceCIDR) { o.Name = "" }, []string{"metadata.name: Required value"}},
		"a range without a length":    {func(o *networkingv1.ServiceCIDR) { o.Spec.CIDRs[1] = "fd96::" }, []string{"spec.cidrs[1]: Invalid value"}},
		"a range that is no range":    {func(o *networkingv1.ServiceCIDR) { o.Spec.CIDRs[0] = "10.96/12" }, []string{"spec.cidrs[0]: Invalid value"}},
		"an IPv4 range in IPv6 guise": {func(o *networkingv1.ServiceCIDR) { o.Spec.CIDRs[0] = "::ffff:10.96.0.0/108" }, []string{"spec.cidrs[0]: Invalid value"}},
	})
}

func ranges(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1.a", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Hostname: "dock-1", Subdomain: "docks", NodeName: "node-1"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.244.0.1",
			PodIPs: []corev1.PodIP{{IP: "10.244.0.1"}, {IP: "fd00::1"}},
		},
	}
}

func TestPod(t *testing.T) {
	full := func(change func(*cluster.Pod)) *cluster.Pod {
		p := &cluster.Pod{
			Key: cluster.Key{Namespace: "shop", Name: "web-1.a"}, IPs: addrs("10.244.0.1", "fd00::1"),
			Labels: map[string]string{"app": "web"}, Node: "node-1", Spec: &cluster.PodSpec{Hostname: "dock-1", Subdomain: "docks"},
		}
		change(p)
		return p
	}
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   *cluster.Pod
	}{
		"all fields":                      {func(*corev1.Pod) {}, full(func(*cluster.Pod) {})},
		"without namespace it is default": {func(p *corev1.Pod) { p.Namespace = "" }, full(func(p *cluster.Pod) { p.Namespace = "default" })},
		"podIP counts when podIPs is empty": {func(p *corev1.Pod) { p.Status.PodIPs = nil },
			full(func(p *cluster.Pod) { p.IPs = addrs("10.244.0.1") })},
		"podIPs counts, not podIP": {func(p *corev1.Pod) { p.Status.PodIP = "10.244.0.9" }, full(func(*cluster.Pod) {})},
		"no address yet":           {func(p *corev1.Pod) { p.Status = corev1.PodStatus{} }, full(func(p *cluster.Pod) { p.IPs = nil })},
		"succeeded is finished":    {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, full(func(p *cluster.Pod) { p.Finished = true })},
		"failed is finished":       {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, full(func(p *cluster.Pod) { p.Finished = true })},
		"pending is not finished":  {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, full(func(p *cluster.Pod) { p.Pending = true })},
		"only a name": {func(p *corev1.Pod) { *p = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}} },
			&cluster.Pod{Key: cluster.Key{Namespace: "default", Name: "x"}, Spec: &cluster.PodSpec{}}},
		"ready": {func(p *corev1.Pod) {
			p.UID, p.Status.Conditions = "1-2", []corev1.PodCondition{{Type: "Ready", Status: "True"}}
		}, full(func(p *cluster.Pod) { p.UID, p.Ready = "1-2", true })},
		"told to end": {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, full(func(p *cluster.Pod) { p.Deleting = true })},
		"conditions that are not met": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: "Initialized", Status: "True"}, {Type: "Ready", Status: "False", Reason: "R", Message: "m"}}
		}, full(func(p *cluster.Pod) {
			p.Unmet = []cluster.Condition{{Type: "Ready", Status: "False", Reason: "R", Message: "m"}}
		})},
	}
	for claim, test := range tests {
		in := pod()
		test.change(in)
		got, errs := Pod(in)
		if d := cmp.Diff(test.want, got, addrEqual); d != "" || len(errs) > 0 {
			t.Errorf("%s: Pod: %v (-want +got)\n%s", claim, errs, d)
		}
	}
}

func TestPodRefusals(t *testing.T) {
	ip := func(i int, text string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.PodIPs[i].IP = text }
	}
	testRefusals(t, "Pod", pod, Pod, nameRefusals(func(o *corev1.Pod) *metav1.ObjectMeta { return &o.ObjectMeta }))
	testRefusals(t, "Pod", pod, Pod, map[string]refusal[corev1.Pod]{
		"a hostname with a dot":      {func(p *corev1.Pod) { p.Spec.Hostname = "a.b" }, []string{"spec.hostname: Invalid value"}},
		"a subdomain with a dot":     {func(p *corev1.Pod) { p.Spec.Subdomain = "a.b" }, []string{"spec.subdomain: Invalid value"}},
		"an address that is none":    {ip(0, "10.244.0"), []string{"status.podIPs[0].ip: Invalid value"}},
		"the second address is none": {ip(1, "fd00::g"), []string{"status.podIPs[1].ip: Invalid value"}},
		"an address with zeros":      {ip(0, "010.244.0.1"), []string{"status.podIPs[0].ip: Invalid value"}},
		"an address with a zone":     {ip(1, "fe80::1%eth0"), []string{"status.podIPs[1].ip: Invalid value"}},
		"IPv4 in IPv6's clothes":     {ip(1, "::ffff:10.0.0.1"), []string{"status.podIPs[1].ip: Invalid value"}},
		"an address with a mask":     {ip(0, "10.244.0.1/24"), []string{"status.podIPs[0].ip: Invalid value"}},
		"an empty address":           {ip(0, ""), []string{"status.podIPs[0].ip: Invalid value"}},
		"podIP alone is none":        {func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = "x", nil }, []string{"status.podIP: Invalid value"}},
		"everything at once": {func(p *corev1.Pod) {
			p.Name, p.Spec.Hostname, p.Status.PodIPs[0].IP = "", "A", "x"
		}, []string{"metadata.name: Required value", "spec.hostname: Invalid value", "status.podIPs[0].ip: Invalid value"}},
	})
}

func TestErrorsNameTheField(t *testing.T) {
	p := pod()
	p.Status.PodIPs[1].IP = "fd00::g"
	_, errs := Pod(p)
	want := `status.podIPs[1].ip: Invalid value: "fd00::g": must be an IPv4 or IPv6 address, such as 10.9.8.7 or 2001:db8::ffff`
	if got := fmt.Sprint(errs); got != "["+want+"]" {
		t.Errorf("Pod with podIPs[1] fd00::g: errors %s, want [%s]", got, want)
	}
}

// TestIsLabel checks that a name is accepted only if the library accepts it.
func TestIsLabel(t *testing.T) {
	const most = validation.DNS1123LabelMaxLength
	for _, name := range []string{"a", "0", "a-b", "a--b", "-a", "a-", "-", "A", "a.b", "a_b", "ä", "a b", strings.Repeat("a", most), strings.Repeat("a", most+1)} {
		if got, want := isLabel(name), len(validation.IsDNS1123Label(name)) == 0; got != want {
			t.Errorf("isLabel(%q) = %v, want %v", name, got, want)
		}
	}
}
