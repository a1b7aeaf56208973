package object_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
)

// TestGatewayAddresses checks that the value of an address is what its type says.
func TestGatewayAddresses(t *testing.T) {
	t.Parallel()
	addr := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for claim, tt := range map[string]struct {
		address string
		want    cluster.External
	}{
		"an address":              {`{"type":"IPAddress","value":"192.0.2.1"}`, cluster.External{Addresses: addr}},
		"an address by default":   {`{"value":"192.0.2.1"}`, cluster.External{Addresses: addr}},
		"a name":                  {`{"type":"Hostname","value":"lb.example"}`, cluster.External{Targets: []string{"lb.example"}}},
		"a name without type":     {`{"value":"lb.example"}`, cluster.External{}},
		"a name for an address":   {`{"type":"IPAddress","value":"lb.example"}`, cluster.External{}},
		"of an implementation":    {`{"type":"example.com/pool","value":"blue"}`, cluster.External{}},
		"named, as its type says": {`{"type":"NamedAddress","value":"blue"}`, cluster.External{}},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			g := new(gatewayv1.Gateway)
			text := `{"metadata":{"name":"web","namespace":"shop"},"status":{"addresses":[` + tt.address + `]}}`
			if err := json.Unmarshal([]byte(text), g); err != nil {
				t.Fatal(err)
			}
			f, errs := object.Gateway(g)
			if diff := cmp.Diff(tt.want, f.External, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || len(errs) > 0 {
				t.Errorf("Gateway(%s): errors %v, External (-want +got):\n%s", text, errs, diff)
			}
		})
	}
}

// TestGatewaySpec checks what gateways need of a Gateway, with the defaults of the API.
func TestGatewaySpec(t *testing.T) {
	t.Parallel()
	g := new(gatewayv1.Gateway)
	text := `{"metadata":{"name":"web","namespace":"shop","generation":4,"creationTimestamp":"2023-11-14T22:13:20Z"},"spec":{
		"gatewayClassName":"portolan",
		"addresses":[{"value":"192.0.2.1"},{"type":"Hostname"}],
		"infrastructure":{"labels":{"a":"b"},"parametersRef":{"group":"example.com","kind":"P","name":"p"}},
		"allowedListeners":{"namespaces":{"from":"Selector","selector":{"matchLabels":{"a":"b"}}}},
		"tls":{"backend":{"clientCertificateRef":{"name":"client"}},"frontend":{
			"default":{"validation":{"caCertificateRefs":[{"group":"","kind":"ConfigMap","name":"ca","namespace":"data"}]}},
			"perPort":[{"port":443,"tls":{"validation":{"mode":"AllowInsecureFallback","caCertificateRefs":[]}}},{"port":444,"tls":{}}]}},
		"listeners":[{"name":"http","port":80,"protocol":"HTTP"},
			{"name":"https","port":443,"protocol":"HTTPS","hostname":"*.Shop.example","tls":{"certificateRefs":[{"name":"cert"},{"name":"cert","namespace":"data"}]},
			 "allowedRoutes":{"namespaces":{"from":"All"},"kinds":[{"kind":"HTTPRoute"}]}}]}}`
	if err := json.Unmarshal([]byte(text), g); err != nil {
		t.Fatal(err)
	}
	secret := func(namespace, name string) cluster.ObjectRef {
		return cluster.ObjectRef{Kind: "Secret", Namespace: namespace, Name: name}
	}
	client := secret("shop", "client")
	want := &cluster.GatewaySpec{
		Meta: cluster.Meta{Age: cluster.Age{Created: 1700000000}, Generation: 4}, Class: "portolan",
		Addresses:  []cluster.GatewayAddress{{Type: cluster.AddressIP, Value: "192.0.2.1"}, {Type: cluster.AddressHostname}},
		Labels:     map[string]string{"a": "b"},
		Parameters: &cluster.ObjectRef{Group: "example.com", Kind: "P", Namespace: "shop", Name: "p"},
		ListenerSets: cluster.AllowedNamespaces{
			From: cluster.FromSelector, Selector: &cluster.Selector{Labels: map[string]string{"a": "b"}},
		},
		ClientCertificate: &client,
		ClientValidation:  &cluster.ClientValidation{Authorities: []cluster.ObjectRef{{Kind: "ConfigMap", Namespace: "data", Name: "ca"}}},
		ClientValidationOf: []cluster.PortClientValidation{
			{Port: 443, Validation: &cluster.ClientValidation{Optional: true}}, {Port: 444},
		},
		Listeners: []cluster.Listener{
			{Name: "http", Port: 80, Protocol: cluster.HTTPProtocol, Namespaces: cluster.AllowedNamespaces{From: cluster.FromSame}},
			{
				Name: "https", Port: 443, Protocol: cluster.HTTPSProtocol, Hostname: "*.shop.example",
				TLS:        &cluster.ListenerTLS{Mode: cluster.TLSTerminate, Certificates: []cluster.ObjectRef{secret("shop", "cert"), secret("data", "cert")}},
				Namespaces: cluster.AllowedNamespaces{From: cluster.FromAll},
				Kinds:      []cluster.GroupKind{{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}},
			},
		},
	}
	f, errs := object.Gateway(g)
	if d := cmp.Diff(want, f.Gateway); d != "" || len(errs) > 0 {
		t.Errorf("Gateway: errors %v (-want +got)\n%s", errs, d)
	}
}

// TestIngressSpec checks what gateways need of an Ingress, and its refusals.
func TestIngressSpec(t *testing.T) {
	t.Parallel()
	decode := func(spec string) (*cluster.Frontend, []string) {
		i := new(networkingv1.Ingress)
		text := `{"metadata":{"name":"web","namespace":"shop","annotations":{"kubernetes.io/ingress.class":"old","nginx.ingress.kubernetes.io/use-regex":"true","x":"y"}},"spec":{` + spec + `}}`
		if err := json.Unmarshal([]byte(text), i); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		f, errs := object.Ingress(i)
		var brief []string
		for _, err := range errs {
			brief = append(brief, err.Field+": "+err.Type.String())
		}
		return f, brief
	}
	f, errs := decode(`"ingressClassName":"portolan","defaultBackend":{"resource":{"apiGroup":"example.com","kind":"Bucket","name":"b"}},
		"tls":[{"hosts":["Shop.example"],"secretName":"cert"}],
		"rules":[{"host":"*.Shop.example","http":{"paths":[{"path":"/a","pathType":"Exact","backend":{"service":{"name":"web","port":{"name":"http"}}}}]}},{}]`)
	backend := cluster.Backend{Field: "spec.rules[0].http.paths[0].backend.service", Service: "web", Port: "http"}
	want := &cluster.IngressSpec{
		Class: "portolan", OldClass: "old", Annotations: map[string]string{"nginx.ingress.kubernetes.io/use-regex": "true"},
		Default: &cluster.IngressBackend{
			Backend:  cluster.Backend{Field: "spec.defaultBackend.resource"},
			Resource: &cluster.ObjectRef{Group: "example.com", Kind: "Bucket", Namespace: "shop", Name: "b"},
		},
		TLS: []cluster.IngressTLS{{Hosts: []string{"shop.example"}, Secret: "cert"}},
		Rules: []cluster.IngressRule{
			{Host: "*.shop.example", Paths: []cluster.IngressPath{{Path: "/a", Type: cluster.PathExact, Backend: cluster.IngressBackend{Backend: backend}}}},
			{},
		},
	}
	if d := cmp.Diff(want, f.Ingress); d != "" || len(errs) > 0 {
		t.Errorf("Ingress: errors %v (-want +got)\n%s", errs, d)
	}
	if d := cmp.Diff([]cluster.Backend{backend}, f.Backends); d != "" {
		t.Errorf("Backends: (-want +got)\n%s", d)
	}
	path := func(fields string) string { return `"rules":[{"http":{"paths":[{` + fields + `}]}}]` }
	const to = `"backend":{"service":{"name":"web","port":{"number":80}}}`
	for spec, want := range map[string]string{
		path(`"path":"/",` + to):                                  "spec.rules[0].http.paths[0].pathType: Required value",
		path(`"path":"/","pathType":"Glob",` + to):                "spec.rules[0].http.paths[0].pathType: Unsupported value",
		path(`"path":"a","pathType":"Prefix",` + to):              "spec.rules[0].http.paths[0].path: Invalid value",
		path(`"path":"/a/..","pathType":"Exact",` + to):           "spec.rules[0].http.paths[0].path: Invalid value",
		path(`"path":"/","pathType":"Exact","backend":{}`):        "spec.rules[0].http.paths[0].backend: Required value",
		`"defaultBackend":{"service":{"name":"web","port":{}}}`:   "spec.defaultBackend.service.port.number: Invalid value",
		`"defaultBackend":{"service":{"port":{"number":80}}}`:     "spec.defaultBackend.service.name: Required value",
		`"defaultBackend":{"service":{"name":"a"},"resource":{}}`: "spec.defaultBackend: Invalid value",
	} {
		if _, errs := decode(spec); len(errs) != 1 || errs[0] != want {
			t.Errorf("%s: errors %q, want %q", spec, errs, want)
		}
	}
}

// TestSecrets checks which values of Secrets and ConfigMaps the model has.
func TestSecrets(t *testing.T) {
	t.Parallel()
	at := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	s, errs := object.Secret(&corev1.Secret{
		ObjectMeta: at, Data: map[string][]byte{"tls.crt": []byte("a"), "x": []byte("b")}, StringData: map[string]string{"tls.key": "c"},
	})
	want := &cluster.Secret{
		Key: cluster.Key{Namespace: "shop", Name: "web"}, Type: "Opaque",
		Data: map[string]cluster.Confidential{"tls.crt": []byte("a"), "tls.key": []byte("c")},
	}
	if d := cmp.Diff(want, s); d != "" || len(errs) > 0 {
		t.Errorf("Secret: errors %v (-want +got)\n%s", errs, d)
	}
	c, errs := object.ConfigMap(&corev1.ConfigMap{ObjectMeta: at, Data: map[string]string{"ca.crt": "a", "x": "b"}})
	if d := cmp.Diff(map[string]string{"ca.crt": "a"}, c.Data); d != "" || len(errs) > 0 {
		t.Errorf("ConfigMap: errors %v (-want +got)\n%s", errs, d)
	}
}
