package apiobject

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/cluster"
)

// world is a model with declared and generated objects.
type world struct {
	store    *cluster.Store
	declared map[string]string // by kind and key
	slices   []*discoveryv1.EndpointSlice
}

func newWorld(t *testing.T, put func(*cluster.Tx)) *world {
	t.Helper()
	w := &world{store: cluster.NewStore(), declared: make(map[string]string)}
	w.store.Update(put)
	return w
}

// get returns the object of a kind and name as JSON.
func (w *world) get(t *testing.T, kind cluster.Kind, name string) string {
	t.Helper()
	c := Builder{Store: w.store, Declared: func(kind cluster.Kind, key cluster.Key) []byte {
		if text, ok := w.declared[kind.String()+" "+key.String()]; ok {
			return []byte(text)
		}
		return nil
	}}
	if w.slices != nil {
		c.Slices = func(cluster.Key) []*discoveryv1.EndpointSlice { return w.slices }
	}
	objects, err := c.Objects(Choice{Kind: kind, Namespace: "shop", Name: name})
	if err != nil || len(objects) != 1 {
		t.Fatalf("%s: %d objects, error %v", name, len(objects), err)
	}
	text, err := json.Marshal(objects[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// wantJSON checks that an object's JSON contains the pieces, except for those that begin
// with "!".
func wantJSON(t *testing.T, claim, got string, pieces ...string) {
	t.Helper()
	for _, piece := range pieces {
		text, excluded := strings.CutPrefix(piece, "!")
		if strings.Contains(got, text) == excluded {
			t.Errorf("%s: want %s in %s", claim, piece, got)
		}
	}
}

func key(name string) cluster.Key { return cluster.Key{Namespace: "shop", Name: name} }

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// TestService checks that Services have their allocations and the API server's defaults.
func TestService(t *testing.T) {
	for claim, test := range map[string]struct {
		declared string
		model    cluster.Service
		want     []string
	}{
		"allocated": {
			`{"metadata":{"name":"a","labels":{"x":"y"}},"spec":{"type":"NodePort","ports":[{"port":80},{"name":"b","port":81,"targetPort":"web","protocol":"UDP"}]}}`,
			cluster.Service{ClusterIPs: addrs("10.0.0.1", "fd00::1"), Spec: &cluster.ServiceSpec{
				Type: cluster.NodePort, Families: []cluster.AddressType{cluster.IPv4, cluster.IPv6}, FamilyPolicy: cluster.PreferDualStack, NodePorts: []uint16{30001, 0}, HealthCheckNodePort: 30002,
			}},
			[]string{`"apiVersion":"v1"`, `"kind":"Service"`, `"namespace":"shop"`, `"labels":{"x":"y"}`, `"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1","fd00::1"]`, `"ipFamilies":["IPv4","IPv6"]`, `"ipFamilyPolicy":"PreferDualStack"`,
				`{"protocol":"TCP","port":80,"targetPort":80,"nodePort":30001}`, `{"name":"b","protocol":"UDP","port":81,"targetPort":"web"}`,
				`"healthCheckNodePort":30002`, `"sessionAffinity":"None"`, `"internalTrafficPolicy":"Cluster"`, `"externalTrafficPolicy":"Cluster"`, `!allocateLoadBalancer`},
		},
		"headless": {
			`{"metadata":{"name":"a"},"spec":{"clusterIP":"None"}}`,
			cluster.Service{Headless: true, Spec: &cluster.ServiceSpec{FamilyPolicy: cluster.RequireDualStack}},
			[]string{`"clusterIP":"None","clusterIPs":["None"]`, `"ipFamilyPolicy":"RequireDualStack"`, `"type":"ClusterIP"`, `!externalTrafficPolicy`},
		},
		"external name": {
			`{"metadata":{"name":"a"},"spec":{"type":"ExternalName","externalName":"example.com"}}`,
			cluster.Service{ExternalName: "example.com", Spec: &cluster.ServiceSpec{Type: cluster.ExternalName}},
			[]string{`"externalName":"example.com"`, `"sessionAffinity":"None"`, `!clusterIP`, `!internalTrafficPolicy`, `!ipFamilies`},
		},
		"load balancer, client IP": {
			`{"metadata":{"name":"a"},"spec":{"type":"LoadBalancer","sessionAffinity":"ClientIP"}}`,
			cluster.Service{Spec: &cluster.ServiceSpec{Type: cluster.LoadBalancer}},
			[]string{`"allocateLoadBalancerNodePorts":true`, `"sessionAffinityConfig":{"clientIP":{"timeoutSeconds":10800}}`},
		},
		"declared values are retained": {
			`{"metadata":{"name":"a"},"spec":{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"internalTrafficPolicy":"Local","externalTrafficPolicy":"Local","sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":7}}}}`,
			cluster.Service{Spec: &cluster.ServiceSpec{Type: cluster.LoadBalancer}},
			[]string{`"allocateLoadBalancerNodePorts":false`, `"internalTrafficPolicy":"Local"`, `"externalTrafficPolicy":"Local"`, `"timeoutSeconds":7`},
		},
		"not declared": {
			"",
			cluster.Service{ClusterIPs: addrs("10.96.0.1"), Ports: []cluster.Port{{Name: "https", Protocol: cluster.TCP, Number: 443}}, Targets: []string{"6443"}, Spec: &cluster.ServiceSpec{Type: cluster.ClusterIP, Labels: map[string]string{"component": "apiserver"}}},
			[]string{`!loadBalancerClass`, `!annotations`, `"labels":{"component":"apiserver"}`, `"clusterIP":"10.96.0.1"`, `{"name":"https","protocol":"TCP","port":443,"targetPort":6443}`},
		},
		"not declared, of a load balancer": {
			"",
			cluster.Service{Spec: &cluster.ServiceSpec{Type: cluster.LoadBalancer, LoadBalancer: &cluster.LoadBalancerSpec{
				Class: "portolan.dev/lb", IP: "192.0.2.1", Addresses: "192.0.2.2", Pool: "p", SharingKey: "k",
			}}},
			[]string{`"loadBalancerClass":"portolan.dev/lb"`, `"loadBalancerIP":"192.0.2.1"`, `"annotations":{"portolan.dev/load-balancer-ips":"192.0.2.2","portolan.dev/pool":"p","portolan.dev/sharing-key":"k"}`},
		},
	} {
		test.model.Key = key("a")
		w := newWorld(t, func(tx *cluster.Tx) {
			tx.Put(&test.model)
			tx.Put(&cluster.Service{Key: key("other")})
		})
		if test.declared != "" {
			w.declared["Service shop/a"] = test.declared
		}
		wantJSON(t, claim, w.get(t, cluster.KindService, "a"), test.want...)
	}
}

// TestEndpointSlices checks a declared EndpointSlice, a generated one and a mirror.
func TestEndpointSlices(t *testing.T) {
	w := newWorld(t, func(tx *cluster.Tx) {
		for _, name := range []string{"declared", "made", "mirror"} {
			tx.Put(&cluster.EndpointSlice{
				Key: key(name), Service: "web", AddressType: cluster.IPv4, Ports: []cluster.Port{{Name: "p", Protocol: cluster.TCP, Number: 80}, {Protocol: cluster.UDP}},
				Endpoints: []cluster.Endpoint{{Addr: netip.MustParseAddr("10.1.0.1"), Ready: true, Serving: true, Hostname: "h", Pod: "q"}, {Addr: netip.MustParseAddr("10.1.0.2"), Terminating: true}},
			})
		}
	})
	w.declared["EndpointSlice shop/declared"] = `{"metadata":{"name":"declared","ownerReferences":[{"kind":"Service","name":"web","uid":"u"}]},"addressType":"IPv4","ports":[{"port":80}],"endpoints":[{"addresses":["10.1.0.9"]}]}`
	w.slices = []*discoveryv1.EndpointSlice{{AddressType: discoveryv1.AddressTypeIPv6}}
	w.slices[0].Name, w.slices[0].GenerateName = "made", "web-"
	w.slices[0].OwnerReferences = []metav1.OwnerReference{{Kind: "Service", Name: "web"}}
	wantJSON(t, "declared", w.get(t, cluster.KindEndpointSlice, "declared"), `"apiVersion":"discovery.k8s.io/v1"`, `"addresses":["10.1.0.9"]`, `"uid":"u"`, `{"name":"","protocol":"TCP","port":80}`, `"namespace":"shop"`)
	wantJSON(t, "made", w.get(t, cluster.KindEndpointSlice, "made"), `"generateName":"web-"`, `"addressType":"IPv6"`, `!ownerReferences`)
	wantJSON(t, "mirror", w.get(t, cluster.KindEndpointSlice, "mirror"), `"kubernetes.io/service-name":"web"`,
		`{"name":"p","protocol":"TCP","port":80}`, `{"name":"","protocol":"UDP"}`,
		`{"addresses":["10.1.0.1"],"conditions":{"ready":true},"hostname":"h","targetRef":{"kind":"Pod","namespace":"shop","name":"q"}}`,
		`{"addresses":["10.1.0.2"],"conditions":{"ready":false,"terminating":true}}`)
	if w.slices[0].Kind != "" || len(w.slices[0].OwnerReferences) != 1 {
		t.Error("the generated slice was modified")
	}
}

// TestPod checks that Pods have addresses, a Node and conditions, and those of a workload
// the spec of the template.
func TestPod(t *testing.T) {
	w := newWorld(t, func(tx *cluster.Tx) {
		tx.Put(&cluster.Node{Name: "n", Addresses: addrs("192.0.2.1")})
		tx.Put(&cluster.Pod{Key: key("plain"), IPs: addrs("10.1.0.1"), Node: "n"})
		tx.Put(&cluster.Pod{Key: key("given"), IPs: addrs("10.1.0.2", "fd00::2"), Node: "n", Ready: true, Simulated: true})
		of := func(name string) *cluster.Owner { return &cluster.Owner{Kind: cluster.KindDeployment, Name: name} }
		labels := map[string]string{"app": "web", "pod-template-hash": "x"}
		tx.Put(&cluster.Pod{Key: key("web-api-x-1"), Owner: of("web-api"), Labels: labels, IPs: addrs("10.1.0.3"), Ready: true, Simulated: true, Spec: &cluster.PodSpec{Hostname: "h"}})
		tx.Put(&cluster.Pod{Key: key("web-x-1"), Owner: of("web"), Labels: labels, IPs: addrs("10.1.0.4"), Ready: true, Simulated: true})
	})
	w.declared["Pod shop/plain"] = `{"metadata":{"name":"plain"},"spec":{"containers":[{"name":"c","ports":[{"containerPort":80}]}]}}`
	w.declared["Pod shop/given"] = w.declared["Pod shop/plain"]
	w.declared["Deployment shop/web"] = `{"spec":{"template":{"metadata":{"annotations":{"b":"c"}},"spec":{"containers":[{"name":"of-web"}]}}}}`
	w.declared["Deployment shop/web-api"] = strings.ReplaceAll(w.declared["Deployment shop/web"], "of-web", "of-api")
	w.declared["StatefulSet shop/web"] = strings.ReplaceAll(w.declared["Deployment shop/web"], "of-web", "of-set")
	wantJSON(t, "plain", w.get(t, cluster.KindPod, "plain"), `"phase":"Pending"`, `"podIP":"10.1.0.1"`, `"protocol":"TCP"`, `"nodeName":"n"`, `!simulated`, `!conditions`, `!hostIP`)
	wantJSON(t, "given", w.get(t, cluster.KindPod, "given"), `"annotations":{"portolan.dev/simulated":"true"}`, `"phase":"Running"`, `"podIPs":[{"ip":"10.1.0.2"},{"ip":"fd00::2"}]`, `"hostIP":"192.0.2.1"`, `"type":"Ready","status":"True"`)
	wantJSON(t, "of a template", w.get(t, cluster.KindPod, "web-api-x-1"), `"containers":[{"name":"of-api"`, `"b":"c"`, `"portolan.dev/simulated":"true"`, `"pod-template-hash":"x"`, `"hostname":"h"`)
	wantJSON(t, "of another", w.get(t, cluster.KindPod, "web-x-1"), `"containers":[{"name":"of-web"`)
}

// TestObjects checks that objects are chosen by namespace and name, and sorted.
func TestObjects(t *testing.T) {
	w := newWorld(t, func(tx *cluster.Tx) {
		for _, k := range []cluster.Key{{Namespace: "b", Name: "y"}, {Namespace: "a", Name: "z"}, {Namespace: "b", Name: "x"}} {
			tx.Put(&cluster.Service{Key: k})
		}
	})
	c := Builder{Store: w.store, Declared: func(cluster.Kind, cluster.Key) []byte { return nil }}
	for claim, test := range map[string]struct {
		choice Choice
		want   string
	}{
		"all":       {Choice{}, "a/z b/x b/y"},
		"namespace": {Choice{Namespace: "b"}, "b/x b/y"},
		"name":      {Choice{Namespace: "b", Name: "y"}, "b/y"},
		"none":      {Choice{Namespace: "c"}, ""},
	} {
		test.choice.Kind = cluster.KindService
		objects, err := c.Objects(test.choice)
		var got []string
		for _, o := range objects {
			got = append(got, o.GetNamespace()+"/"+o.GetName())
		}
		if text := strings.Join(got, " "); err != nil || text != test.want {
			t.Errorf("%s: got %s, error %v, want %s", claim, text, err, test.want)
		}
	}
	if objects, err := c.Objects(Choice{Kind: cluster.KindNode, Namespace: "a"}); err != nil || len(objects) > 0 {
		t.Errorf("Nodes: %v, %v, want none", objects, err)
	}
}
