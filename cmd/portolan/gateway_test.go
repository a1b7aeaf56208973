package main

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/kube/apitest"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/support/testcert"
)

// loopbackAddress returns an address of the loopback interface that other tests do not have.
func loopbackAddress() string {
	return netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))}).String()
}

// gatewayAPI returns an API server with a Gateway, a route to a Service and its endpoint.
func gatewayAPI(t *testing.T) *apitest.Server {
	t.Helper()
	api := apitest.New(t)
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }
	class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "portolan"}}
	class.Spec.ControllerName = "portolan.dev/gateway"
	gw := &gatewayv1.Gateway{ObjectMeta: in("public")}
	gw.Spec.GatewayClassName = "portolan"
	gw.Spec.Listeners = []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}}
	route := &gatewayv1.HTTPRoute{ObjectMeta: in("web")}
	route.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "public"}}
	port := gatewayv1.PortNumber(80)
	route.Spec.Rules = []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
		BackendObjectReference: gatewayv1.BackendObjectReference{Name: "web", Port: &port},
	}}}}}
	name, number := "", int32(8080)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: in("web-1"), AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &number}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.7"}}},
	}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
	api.Put(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&corev1.Service{ObjectMeta: in("web"), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{{Port: 80}}}},
		slice, class, gw, route,
	)
	return api
}

// tlsGateway returns a Gateway with a certificate that does not exist.
func tlsGateway() *gatewayv1.Gateway {
	gw := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "tls"}}
	gw.Spec.GatewayClassName = "portolan"
	gw.Spec.Listeners = []gatewayv1.Listener{{
		Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType,
		TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "cert"}}},
	}}
	return gw
}

// TestGatewayOfCluster checks that explain and get read the Gateways of a cluster, that one without their
// CustomResourceDefinitions has none, and that what cannot be read is not said to be missing.
func TestGatewayOfCluster(t *testing.T) {
	t.Parallel()
	explain := []string{"explain", "http://shop.example/"}
	routes := []string{"get", "routes", "-A"}
	without := func(s *apitest.Server) {
		s.Uninstall("gatewayclasses", "gateways", "listenersets", "httproutes", "referencegrants")
	}
	for claim, test := range map[string]struct {
		prepare func(*apitest.Server)
		args    []string
		status  int
		output  string
	}{
		"a request":                  {func(*apitest.Server) {}, explain, 0, "served by Service shop/web, port 80\n"},
		"routes":                     {func(*apitest.Server) {}, routes, 0, "shop        web    *           shop/public   True       1       1/1"},
		"no Gateway API":             {without, explain, 14, "no Gateway or Ingress is of a class that the gateway serves"},
		"no rights for Gateways":     {refuse("gateways"), explain, 1, "not known: this command may not read Gateways"},
		"no rights for Secrets":      {refuse("secrets"), routes, 0, "shop/public   True"},
		"no Secrets without https":   {refuse("secrets"), explain, 0, "served by Service shop/web, port 80\n"},
		"no rights for HTTPRoutes":   {refuse("httproutes"), routes, 0, "httproutes"},
		"no rights for Deployments":  {refuse("deployments"), explain, 0, "GET http://shop.example/\n"},
		"listeners without Secrets":  {func(s *apitest.Server) { refuse("secrets")(s); s.Put(tlsGateway()) }, []string{"get", "gateways", "-A", "-o", "wide"}, 0, "https:443   True       <unknown>    0        <unknown>   <none>"},
		"no routes where none exist": {without, routes, 0, "No resources found"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			api := gatewayAPI(t)
			test.prepare(api)
			stdout, stderr, status := command(t, nil, append(test.args, "--kubeconfig", api.Kubeconfig(t))...)
			if status != test.status || !strings.Contains(stdout+stderr, test.output) {
				t.Errorf("%q: status %d, stdout %s, stderr %s; want %d and %q", test.args, status, stdout, stderr, test.status, test.output)
			}
			if test.status == 0 && strings.Contains(claim, "no Secrets") && stderr != "" {
				t.Errorf("%q: stderr %s, want none", test.args, stderr)
			}
		})
	}
}

// TestCheckPolicyOfCluster checks that check reads the RoutePolicies of a cluster, and works without them.
func TestCheckPolicyOfCluster(t *testing.T) {
	t.Parallel()
	const finding = "routepolicy shop/p: error: spec: Secret shop/users does not exist"
	policy := &object.APIRoutePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}}
	policy.Spec.BasicAuth = &object.APIPasswords{SecretRef: object.APISecretName{Name: "users"}}
	policy.Spec.TargetRefs = make([]gatewayv1.LocalPolicyTargetReferenceWithSectionName, 1)
	target := &policy.Spec.TargetRefs[0].LocalPolicyTargetReference
	target.Group, target.Kind, target.Name = gatewayv1.GroupName, "HTTPRoute", "web"
	for claim, test := range map[string]struct {
		prepare func(*apitest.Server)
		found   bool
		stderr  string
	}{
		"a policy without its Secret": {func(*apitest.Server) {}, true, ""},
		"no rights for Secrets":       {refuse("secrets"), false, "secrets"},
		"no rights for policies":      {refuse("routepolicies"), false, "routepolicies"},
		"no definition":               {func(s *apitest.Server) { s.Uninstall("routepolicies") }, false, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			api := gatewayAPI(t)
			api.Put(policy)
			test.prepare(api)
			stdout, stderr, _ := command(t, nil, "check", "--kubeconfig", api.Kubeconfig(t))
			if strings.Contains(stdout, finding) != test.found || !strings.Contains(stderr, test.stderr) {
				t.Errorf("stdout %s, stderr %s; want %s: %t, and %q", stdout, stderr, finding, test.found, test.stderr)
			}
		})
	}
}

// TestExplainPolicyOfCluster checks that explain knows the Secret of a RoutePolicy, also of a request without TLS.
func TestExplainPolicyOfCluster(t *testing.T) {
	t.Parallel()
	api := gatewayAPI(t)
	policy := &object.APIRoutePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}}
	policy.Spec.BasicAuth = &object.APIPasswords{SecretRef: object.APISecretName{Name: "users"}}
	policy.Spec.TargetRefs = make([]gatewayv1.LocalPolicyTargetReferenceWithSectionName, 1)
	target := &policy.Spec.TargetRefs[0].LocalPolicyTargetReference
	target.Group, target.Kind, target.Name = gatewayv1.GroupName, "HTTPRoute", "web"
	api.Put(policy, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "users"},
		Data:       map[string][]byte{"auth": []byte("ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=")},
	})
	stdout, stderr, status := command(t, nil, "explain", "http://shop.example/", "--kubeconfig", api.Kubeconfig(t))
	if status != 0 || !strings.Contains(stdout, "served by Service shop/web, port 80") {
		t.Errorf("status %d, stdout %s, stderr %s; want that the Service serves", status, stdout, stderr)
	}
}

// TestCheckGatewayOfCluster checks that Secrets that cannot be read are told once, and not said to be missing.
func TestCheckGatewayOfCluster(t *testing.T) {
	t.Parallel()
	const missing = "tls-secret-missing"
	for claim, test := range map[string]struct {
		prepare func(*apitest.Server)
		found   bool // the finding
		stderr  int  // lines about Secrets
	}{
		"a Secret that does not exist": {func(*apitest.Server) {}, true, 0},
		"no rights for Secrets":        {refuse("secrets"), false, 1},
		"a Secret":                     {func(s *apitest.Server) { s.Put(certificate(t)) }, false, 0},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			api := gatewayAPI(t)
			i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
			i.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"shop.example"}, SecretName: "cert"}}
			i.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
				Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80},
			}}
			api.Put(i)
			test.prepare(api)
			stdout, stderr, _ := command(t, nil, "check", "--kubeconfig", api.Kubeconfig(t))
			if strings.Contains(stdout, missing) != test.found || strings.Count(stderr, "secrets") != test.stderr {
				t.Errorf("stdout %s, stderr %s; want %s: %v, and %d lines about secrets", stdout, stderr, missing, test.found, test.stderr)
			}
			const class = "gateway shop/public: warning: spec.gatewayClassName: no controller has accepted GatewayClass portolan"
			if !strings.Contains(stdout, class) {
				t.Errorf("stdout %s, want %s", stdout, class)
			}
		})
	}
}

// certificate returns a Secret with a certificate for shop.example.
func certificate(t *testing.T) *corev1.Secret {
	t.Helper()
	c, err := testcert.New("shop.example", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cert"}, Type: corev1.SecretTypeTLS}
	text, key := c.PEM()
	s.Data = map[string][]byte{"tls.crt": text, "tls.key": key}
	return s
}
