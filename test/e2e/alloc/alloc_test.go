package alloc_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	networkingv1 "k8s.io/client-go/kubernetes/typed/networking/v1"
	"sigs.k8s.io/yaml"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/kube/simulate/alloc"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/controlplane/controlplanetest"
)

// allocStep applies a manifest of a Service: its spec, where a selector and a port
// stand for $.
type allocStep struct{ name, spec string }

// allocations are manifests that are applied one after another, for clusters with
// two families and with one; after each, what the API server made of it and what
// the Allocator did must be the same.
var allocations = map[string][]allocStep{
	"defaults":                           {{"web", `$`}},
	"every policy":                       {{"a", `$, ipFamilyPolicy: SingleStack`}, {"b", `$, ipFamilyPolicy: PreferDualStack`}, {"c", `$, ipFamilyPolicy: RequireDualStack`}},
	"families":                           {{"a", `$, ipFamilies: [IPv6]`}, {"b", `$, ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv6]`}, {"c", `$, ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4]`}, {"d", `$, ipFamilies: [IPv4, IPv6]`}},
	"addresses":                          {{"a", `$, clusterIP: 10.96.0.10`}, {"b", `$, clusterIP: "fd00:10:96::a"`}, {"c", `$, ipFamilyPolicy: PreferDualStack, clusterIP: 10.96.0.11`}, {"d", `$, ipFamilyPolicy: RequireDualStack, clusterIP: "fd00:10:96::b", clusterIPs: ["fd00:10:96::b", 10.96.0.12]`}},
	"two addresses, single":              {{"a", `$, clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd00:10:96::a"]`}},
	"bounds":                             {{"a", `$, clusterIP: 10.96.0.0`}, {"b", `$, clusterIP: 10.96.15.255`}, {"c", `$, clusterIP: 10.96.15.254`}, {"d", `$, clusterIP: 10.97.0.1`}, {"e", `$, clusterIP: "fd00:10:96::ffff"`}, {"f", `$, clusterIP: "fd00:10:96::"`}, {"g", `$, clusterIP: "fd00:10:97::1"`}},
	"out of range, dual":                 {{"a", `$, ipFamilyPolicy: PreferDualStack, clusterIP: 10.97.0.1`}},
	"a conflict":                         {{"a", `$, clusterIP: 10.96.0.10`}, {"b", `$, clusterIP: 10.96.0.10`}, {"c", `$, ipFamilyPolicy: PreferDualStack, clusterIP: 10.96.0.10`}},
	"headless":                           {{"a", `$, clusterIP: None`}, {"b", `clusterIP: None`}, {"c", `clusterIP: None, ipFamilyPolicy: SingleStack`}, {"d", `clusterIP: None, ipFamilies: [IPv6]`}, {"e", `$, clusterIP: None, ipFamilyPolicy: PreferDualStack`}, {"f", `$, clusterIP: None, ipFamilies: [IPv6]`}},
	"headless of other types":            {{"a", `$, type: NodePort, clusterIP: None`}, {"b", `$, type: LoadBalancer, clusterIP: None`}},
	"headless changes":                   {{"a", `$, clusterIP: None`}, {"a", `$`}, {"a", `$, clusterIP: 10.96.0.10`}, {"a", `$, clusterIP: None, ipFamilyPolicy: PreferDualStack`}, {"a", `$, clusterIP: None, ipFamilyPolicy: SingleStack`}, {"a", `$, clusterIP: None, ipFamilies: [IPv6]`}},
	"headless gets a selector":           {{"a", `clusterIP: None`}, {"a", `$, clusterIP: None`}},
	"nothing becomes headless":           {{"a", `$, clusterIP: 10.96.0.10`}, {"a", `$, clusterIP: None`}},
	"external names":                     {{"a", `type: ExternalName, externalName: example.com`}, {"b", `type: ExternalName, externalName: example.com, ipFamilyPolicy: SingleStack, ipFamilies: [IPv4]`}},
	"single to dual and back":            {{"a", `$`}, {"a", `$, ipFamilyPolicy: PreferDualStack`}, {"a", `$, ipFamilyPolicy: RequireDualStack`}, {"a", `$`}, {"a", `$, ipFamilyPolicy: SingleStack`}},
	"single to dual, address given":      {{"a", `$, clusterIP: 10.96.0.10`}, {"a", `$, clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd00:10:96::a"], ipFamilyPolicy: RequireDualStack`}, {"a", `$, clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd00:10:96::b"], ipFamilyPolicy: RequireDualStack`}, {"a", `$, clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ipFamilyPolicy: RequireDualStack`}, {"a", `$, clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ipFamilyPolicy: SingleStack`}},
	"dual to single, families given":     {{"a", `$, ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4]`}, {"a", `$, ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6]`}, {"a", `$, ipFamilyPolicy: RequireDualStack`}, {"a", `$, ipFamilyPolicy: SingleStack, ipFamilies: [IPv6]`}},
	"the first family turned":            {{"a", `$, clusterIP: 10.96.0.10`}, {"a", `$, clusterIP: 10.96.0.10, ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv4]`}},
	"the primary address":                {{"a", `$, clusterIP: 10.96.0.10`}, {"a", `$, clusterIP: 10.96.0.11`}, {"a", `$`}},
	"the primary family":                 {{"a", `$, clusterIP: 10.96.0.10, ipFamilies: [IPv4]`}, {"a", `$, clusterIP: "fd00:10:96::a", ipFamilies: [IPv6]`}},
	"the primary family, adding another": {{"a", `$, clusterIP: 10.96.0.10`}, {"a", `$, clusterIP: "fd00:10:96::a", ipFamilies: [IPv6], ipFamilyPolicy: RequireDualStack`}},
	"to an external name and back":       {{"a", `$, ipFamilyPolicy: PreferDualStack`}, {"a", `type: ExternalName, externalName: example.com`}, {"a", `$, ipFamilies: [IPv4]`}},
	"an address and an external name":    {{"a", `$, clusterIP: 10.96.0.10`}, {"a", `type: ExternalName, externalName: example.com`}, {"b", `$, clusterIP: 10.96.0.10`}, {"a", `$, clusterIP: 10.96.0.10`}, {"a", `$, clusterIP: 10.96.0.11`}},
	"types":                              {{"a", `$`}, {"a", `$, type: NodePort`}, {"a", `$, type: LoadBalancer`}, {"a", `$, type: NodePort`}, {"a", `$`}},
	"node ports":                         {{"a", `type: NodePort, ports: [{port: 80, nodePort: 30080}]`}, {"b", `type: NodePort, ports: [{port: 80, nodePort: 30080}]`}, {"c", `type: NodePort, ports: [{port: 80, nodePort: 80}]`}, {"d", `type: NodePort, ports: [{port: 80, nodePort: 32768}]`}, {"e", `type: NodePort, ports: [{port: 80, nodePort: 30080, protocol: UDP}]`}, {"f", `ports: [{port: 80, nodePort: 30081}]`}},
	"node ports of two protocols":        {{"a", `type: NodePort, ports: [{name: a, port: 53}, {name: b, port: 53, protocol: UDP}]`}, {"b", `type: NodePort, ports: [{name: a, port: 53}, {name: b, port: 53, protocol: UDP, nodePort: 30053}]`}, {"c", `type: NodePort, ports: [{name: a, port: 53, nodePort: 30054}, {name: b, port: 53, protocol: UDP, nodePort: 30054}]`}, {"d", `type: NodePort, ports: [{name: a, port: 53, nodePort: 30055}, {name: b, port: 54, protocol: UDP, nodePort: 30055}]`}},
	"node ports change":                  {{"a", `type: NodePort, ports: [{port: 80, nodePort: 30080}]`}, {"a", `type: NodePort, ports: [{port: 80, nodePort: 30081}]`}, {"b", `type: NodePort, ports: [{port: 80, nodePort: 30080}]`}, {"a", `type: NodePort, ports: [{port: 80}]`}, {"a", `type: NodePort, ports: [{port: 80, nodePort: 30080}]`}, {"a", `ports: [{port: 80}]`}, {"a", `ports: [{port: 80, nodePort: 30082}]`}},
	"node ports stay with ports":         {{"a", `type: NodePort, ports: [{name: a, port: 80}]`}, {"a", `type: NodePort, ports: [{name: b, port: 80}, {name: c, port: 81}]`}, {"a", `type: NodePort, ports: [{name: c, port: 8081}]`}},
	"a node port moves":                  {{"a", `type: NodePort, ports: [{name: a, port: 80, nodePort: 30080}]`}, {"a", `type: NodePort, ports: [{name: a, port: 80}, {name: b, port: 81, nodePort: 30080}]`}},
	"a node port twice":                  {{"a", `type: NodePort, ports: [{name: a, port: 80}]`}, {"a", `type: NodePort, ports: [{name: a, port: 80, nodePort: 30080}, {name: b, port: 81, nodePort: 30080}]`}, {"a", `type: NodePort, ports: [{name: a, port: 80, nodePort: 30080}, {name: b, port: 81, protocol: UDP, nodePort: 30080}]`}},
	"the other protocol is added":        {{"a", `type: NodePort, ports: [{name: a, port: 53, protocol: UDP, nodePort: 30053}]`}, {"a", `type: NodePort, ports: [{name: a, port: 53, protocol: UDP, nodePort: 30053}, {name: b, port: 53}]`}},
	"no node ports":                      {{"a", `$, type: LoadBalancer, allocateLoadBalancerNodePorts: false`}, {"b", `type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{name: a, port: 80, nodePort: 30080}, {name: b, port: 81}]`}, {"c", `$, type: LoadBalancer`}, {"c", `$, type: LoadBalancer, allocateLoadBalancerNodePorts: false`}, {"d", `$, type: NodePort, allocateLoadBalancerNodePorts: false`}},
	"health checks":                      {{"a", `$, type: LoadBalancer, externalTrafficPolicy: Local`}, {"b", `$, type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30001`}, {"c", `$, type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30001`}, {"d", `$, type: LoadBalancer, healthCheckNodePort: 30002`}, {"e", `$, type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 80`}, {"f", `$, type: NodePort, externalTrafficPolicy: Local`}},
	"health checks change":               {{"a", `$, type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30001`}, {"a", `$, type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30002`}, {"a", `$, type: LoadBalancer, externalTrafficPolicy: Local`}, {"a", `$, type: LoadBalancer`}, {"a", `$, type: NodePort`}},
}

// keptThoughRefused are manifests that the API server refuses when they are applied
// a second time, and that the Allocator leaves as they are.
var keptThoughRefused = map[string]allocStep{
	"a family that a second was added to": {"a", `$, ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv6]`},
}

// TestAlloc compares the Allocator with the API server.
func TestAlloc(t *testing.T) {
	for name, ranges := range map[string]string{
		"dual":   "10.96.0.0/20,fd00:10:96::/112",
		"single": "10.96.0.0/20",
	} {
		t.Run(name, func(t *testing.T) {
			p := startAlloc(t, ranges)
			for name, steps := range allocations {
				t.Run(name, func(t *testing.T) { p.compare(t, steps) })
			}
			for seed := range uint64(allocHistories) {
				t.Run(fmt.Sprint("history ", seed), func(t *testing.T) { p.compare(t, randomAllocations(seed)) })
			}
			if name == "single" {
				return
			}
			for name, step := range keptThoughRefused {
				t.Run(name, func(t *testing.T) { p.keeps(t, step) })
			}
		})
	}
}

// allocPlane is an API server, and the ranges it gives addresses out from.
type allocPlane struct {
	services  typedv1.ServiceInterface
	addresses networkingv1.IPAddressInterface
	ranges    []netip.Prefix
}

func startAlloc(t *testing.T, ranges string) *allocPlane {
	t.Helper()
	c := controlplanetest.Start(t, controlplane.Options{ServiceCIDRs: ranges})
	p := &allocPlane{
		services: c.Client().CoreV1().Services(metav1.NamespaceDefault), addresses: c.Client().NetworkingV1().IPAddresses(),
	}
	for text := range strings.SplitSeq(ranges, ",") {
		p.ranges = append(p.ranges, netip.MustParsePrefix(text))
	}
	// It takes a moment until there are ranges.
	await.NoError(t, func() error {
		for _, spec := range []string{`$`, `$, ipFamilies: [` + string(familyOfRange(p.ranges[len(p.ranges)-1])) + `]`} {
			if _, err := p.apply(t.Context(), allocStep{"probe", spec}); err != nil {
				return err
			}
			if err := p.services.Delete(t.Context(), "probe", metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	return p
}

func familyOfRange(r netip.Prefix) cluster.AddressType {
	if r.Addr().Is4() {
		return cluster.IPv4
	}
	return cluster.IPv6
}

// manifest is the step's Service, as YAML.
func (s allocStep) manifest() string {
	spec := strings.Replace(s.spec, "$", "selector: {app: web}", 1)
	if !strings.Contains(spec, "ports:") {
		spec += ", ports: [{port: 80}]"
	}
	return "{apiVersion: v1, kind: Service, metadata: {namespace: default, name: " + s.name + "}, spec: {" + spec + "}}"
}

// apply does what "kubectl apply --server-side" does.
func (p *allocPlane) apply(ctx context.Context, s allocStep) (*corev1.Service, error) {
	force := true
	return p.services.Patch(ctx, s.name, types.ApplyYAMLPatchType, []byte(s.manifest()), metav1.PatchOptions{FieldManager: "e2e", Force: &force})
}

// repair releases addresses that no Service has. The API server ignores errors when it releases one, as they come on a
// busy machine, and repairs that itself after minutes (k8s.io/kubernetes/pkg/registry/core/service/ipallocator).
func (p *allocPlane) repair(t *testing.T) {
	t.Helper()
	services, err := p.services.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held := make(map[string]bool)
	for i := range services.Items {
		for _, ip := range services.Items[i].Spec.ClusterIPs {
			held[ip] = true
		}
	}
	reserved, err := p.addresses.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range reserved.Items {
		ip := &reserved.Items[i]
		if ref := ip.Spec.ParentRef; held[ip.Name] || ref == nil || ref.Namespace != metav1.NamespaceDefault {
			continue
		}
		t.Logf("the API server keeps %s of Service %s", ip.Name, ip.Spec.ParentRef.Name)
		if err := p.addresses.Delete(t.Context(), ip.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

// allocWorld is a Store that an Allocator completes.
type allocWorld struct {
	store *cluster.Store
	alloc *alloc.Allocator
	last  *cluster.Service // as it was declared
}

func (p *allocPlane) world(t *testing.T) *allocWorld {
	t.Helper()
	a, err := alloc.New(alloc.Config{Ranges: p.ranges})
	if err != nil {
		t.Fatal(err)
	}
	return &allocWorld{store: cluster.NewStore(), alloc: a}
}

// apply declares the step's Service; what is refused is told as kubectl tells it. It
// is not ok when it is refused as it is read.
func (w *allocWorld) apply(t *testing.T, s allocStep) (now *cluster.Service, refused []string, ok bool) {
	t.Helper()
	var manifest corev1.Service
	if err := yaml.UnmarshalStrict([]byte(s.manifest()), &manifest); err != nil {
		t.Fatal(err)
	}
	service, errs := object.Service(&manifest)
	if len(errs) > 0 {
		return nil, nil, false
	}
	w.last = service
	w.store.Update(func(tx *cluster.Tx) {
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		tx.Put(service)
		for _, r := range w.alloc.Complete(tx) {
			if r.Key == service.Key {
				refused = append(refused, strings.TrimPrefix(r.Field+": "+r.Err.Error(), ": "))
			}
		}
		now = tx.Service(service.Key)
	})
	return now, refused, true
}

// restore declares a refused Service as it was before, if it was: the API server does
// not try again what it refused.
func (w *allocWorld) restore(s allocStep, before *cluster.Service) {
	w.store.Update(func(tx *cluster.Tx) {
		if before != nil {
			tx.Put(before)
		} else {
			tx.Delete(cluster.KindService, cluster.Key{Namespace: metav1.NamespaceDefault, Name: s.name})
		}
		w.alloc.Complete(tx)
	})
}

// compare applies the steps to both.
func (p *allocPlane) compare(t *testing.T, steps []allocStep) {
	t.Helper()
	w := p.world(t)
	theirs, ours, declared := make(map[string]*cluster.Service), make(map[string]*cluster.Service), make(map[string]*cluster.Service)
	t.Cleanup(func() { p.clear(t, steps) })
	for _, step := range steps {
		p.repair(t)
		applied, err := p.apply(t.Context(), step)
		now, refused, ok := w.apply(t, step)
		if !ok { // not to be read
			if err == nil {
				t.Errorf("%s: the API server takes it", step)
			}
			continue
		}
		if err != nil || len(refused) > 0 {
			if d := cmp.Diff(withoutChosen(refusalsOf(err), step), withoutChosen(refused, step)); d != "" {
				t.Errorf("%s: refused, -API server +Allocator:\n%s", step, d)
			}
			if err != nil && !reflect.DeepEqual(now, ours[step.name]) {
				t.Errorf("%s: is refused, and changed", step)
			}
			w.restore(step, declared[step.name])
			continue
		}
		made, errs := object.Service(applied)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if d := cmp.Diff(p.filled(made, theirs[step.name], step), p.filled(now, ours[step.name], step)); d != "" {
			t.Errorf("%s: filled in, -API server +Allocator:\n%s", step, d)
		}
		theirs[step.name], ours[step.name], declared[step.name] = made, now, w.last
		if t.Failed() {
			return
		}
	}
}

// allocHistories are how many random histories are compared on each cluster, of 20
// steps each.
const allocHistories = 20

// randomAllocations is a history of three Services. What the model does not tell is
// left out: clusterIP from clusterIPs, externalTrafficPolicy of types that have none.
// So is what the API server does wrong: it looks for a second address for some
// Services that are to become headless, and panics where there is no range of the
// family; and it takes the node port that an ExternalName Service was given, which it
// does not reserve, for its own when the type changes, so that two may have it. Each
// history has node ports of its own: on a busy machine the API server was seen to keep
// one reserved after its Service was gone. They are in the band from which it chooses none.
func randomAllocations(seed uint64) (steps []allocStep) {
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	last := make(map[string]string)
	ports := strings.NewReplacer("30080", strconv.Itoa(30020+int(seed)), "30001", strconv.Itoa(30060+int(seed)))
	for len(steps) < 20 {
		name := pick("a", "b", "c")
		kind := pick("", "", ", type: NodePort", ", type: LoadBalancer", ", type: LoadBalancer", ", type: ExternalName, externalName: example.com")
		spec := pick("selector: {app: web}", "selector: {app: web}", "sessionAffinity: None") + kind +
			pick("", "", ", ipFamilyPolicy: SingleStack", ", ipFamilyPolicy: PreferDualStack", ", ipFamilyPolicy: RequireDualStack") +
			pick("", "", "", ", ipFamilies: [IPv4]", ", ipFamilies: [IPv6]", ", ipFamilies: [IPv4, IPv6]", ", ipFamilies: [IPv6, IPv4]")
		if !strings.Contains(kind, "ExternalName") {
			spec += map[string]string{
				"a": pick("", "", "", ", clusterIP: 10.96.0.10", ", clusterIP: 10.96.0.11", `, clusterIP: "fd00:10:96::a"`),
				"b": pick("", "", "", ", clusterIP: 10.96.0.10", ", clusterIP: 10.96.0.12"),
				"c": ", clusterIP: None",
			}[name]
		}
		if strings.Contains(kind, "Balancer") {
			spec += pick("", ", externalTrafficPolicy: Local")
		}
		spec += pick("", "", "", "", ", allocateLoadBalancerNodePorts: false") + pick("", "", "", "", ", healthCheckNodePort: 30001") +
			pick("", ", ports: [{port: 80}]", ", ports: [{name: a, port: 80}, {name: b, port: 81}]", ", ports: [{name: a, port: 53}, {name: b, port: 53, protocol: UDP}]",
				", ports: [{port: 80, nodePort: 30080}]", ", ports: [{name: a, port: 80}, {name: b, port: 81, nodePort: 30080}]",
				", ports: [{name: b, port: 53, nodePort: 30001}, {name: a, port: 53, protocol: UDP, nodePort: 30001}]")
		if strings.Contains(kind, "ExternalName") && strings.Contains(spec, "nodePort:") {
			continue
		}
		spec = ports.Replace(spec)
		if last[name] != spec { // see keptThoughRefused
			steps = append(steps, allocStep{name, spec})
		}
		last[name] = spec
	}
	return steps
}

// keeps applies the step twice: the API server refuses it, and the Allocator changes
// nothing.
func (p *allocPlane) keeps(t *testing.T, step allocStep) {
	t.Helper()
	w := p.world(t)
	t.Cleanup(func() { p.clear(t, []allocStep{step}) })
	if _, err := p.apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	if _, err := p.apply(t.Context(), step); err == nil {
		t.Errorf("%s: the API server takes it twice", step)
	}
	first, _, _ := w.apply(t, step)
	again, refused, _ := w.apply(t, step)
	if d := cmp.Diff(first, again, cmp.Comparer(func(x, y netip.Addr) bool { return x == y })); d != "" || len(refused) > 0 {
		t.Errorf("%s: the second time: %v\n%s", step, refused, d)
	}
}

func (s allocStep) String() string { return s.name + ": " + s.spec }

func (p *allocPlane) clear(t *testing.T, steps []allocStep) {
	t.Helper()
	for _, step := range steps {
		if err := p.services.Delete(context.Background(), step.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}

// refusalsOf are the causes of an error, as kubectl prints them.
func refusalsOf(err error) (all []string) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Reason != metav1.StatusReasonInvalid {
		if err != nil {
			all = append(all, err.Error())
		}
		return all
	}
	for _, c := range status.Status().Details.Causes {
		if text := c.Field + ": " + c.Message; !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// withoutChosen leaves out the addresses and node ports in texts that the step does
// not give.
func withoutChosen(texts []string, step allocStep) (all []string) {
	for _, text := range texts {
		words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(` "{}[],`, r) })
		for _, word := range words {
			_, err := netip.ParseAddr(word)
			number, _ := strconv.Atoi(word)
			if (err == nil || number >= 30000) && !strings.Contains(step.spec, word) {
				text = strings.ReplaceAll(text, word, "")
			}
		}
		all = append(all, text)
	}
	return all
}

// filled is what was filled in of a Service. Addresses and ports are told by the
// part of the range that they are in, unless they are given, or held from before.
func (p *allocPlane) filled(s, before *cluster.Service, step allocStep) map[string]string {
	if before == nil {
		before = &cluster.Service{Spec: &cluster.ServiceSpec{}}
	}
	var ips, ports []string
	for _, ip := range s.ClusterIPs {
		text := "out of range"
		for _, r := range p.ranges {
			if b := alloc.SplitRange(r); r.Contains(ip) {
				text = "dynamic " + string(familyOfRange(r))
				if !b.StaticEnd.Less(ip) {
					text = "static " + string(familyOfRange(r))
				}
			}
		}
		if slices.Contains(before.ClusterIPs, ip) {
			text = "kept"
		}
		if strings.Contains(step.spec, ip.String()) {
			text = ip.String()
		}
		ips = append(ips, text)
	}
	port := func(number uint16, before ...uint16) string {
		text := strconv.Itoa(int(number))
		switch {
		case number == 0 || strings.Contains(step.spec, text):
			return text
		case slices.Contains(before, number):
			return "kept"
		case int(number) >= 30000+alloc.Ports{First: 30000, Last: 32767}.Offset() && number <= 32767:
			return "dynamic"
		}
		return "out of the dynamic part"
	}
	for _, number := range s.Spec.NodePorts {
		ports = append(ports, port(number, before.Spec.NodePorts...))
	}
	return map[string]string{
		"policy": string(s.Spec.FamilyPolicy), "families": fmt.Sprint(s.Spec.Families), "headless": strconv.FormatBool(s.Headless),
		"addresses": fmt.Sprint(ips), "node ports": fmt.Sprint(ports),
		"health check": port(s.Spec.HealthCheckNodePort, before.Spec.HealthCheckNodePort),
	}
}
