package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/apitest"
)

// gatewayWorld is a world that reads what gateways need.
func gatewayWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.cfg.Kinds, w.cfg.Detail = cluster.KindsOfGateway(), ForGateway
	return w
}

// frontendTLS has the certificates of clients validated with a ConfigMap.
func frontendTLS(configMap string) *gatewayv1.GatewayTLSConfig {
	return &gatewayv1.GatewayTLSConfig{Frontend: &gatewayv1.FrontendTLSConfig{Default: gatewayv1.TLSConfig{
		Validation: &gatewayv1.FrontendTLSValidation{CACertificateRefs: []gatewayv1.ObjectReference{
			{Kind: "ConfigMap", Name: gatewayv1.ObjectName(configMap)},
		}},
	}}}
}

func ingress(name string, secrets ...string) *networkingv1.Ingress {
	i := &networkingv1.Ingress{ObjectMeta: meta(name)}
	for _, s := range secrets {
		i.Spec.TLS = append(i.Spec.TLS, networkingv1.IngressTLS{SecretName: s})
	}
	return i
}

func secret(name, certificate string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: meta(name), Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": []byte(certificate), "other": []byte("x")},
	}
}

// secrets are the values of the Secrets and ConfigMaps of the model, such as "shop/web: tls.crt=7".
func (w *world) secrets() (all []string) {
	w.store.View(func(v *cluster.View) {
		for s := range cluster.Secrets.All(v) {
			for name, value := range s.Data {
				all = append(all, fmt.Sprintf("%s: %s=%s", s.Key, name, []byte(value)))
			}
		}
		for c := range cluster.ConfigMaps.All(v) {
			all = append(all, fmt.Sprintf("%s: %v", c.Key, c.Data))
		}
	})
	slices.Sort(all)
	return all
}

func (w *world) awaitSecrets(claim string, want ...string) {
	w.Helper()
	slices.Sort(want)
	w.await(claim+": "+strings.Join(want, ", "), func() bool { return slices.Equal(w.secrets(), want) })
}

// TestReferencedOnly checks that Secrets and ConfigMaps are read if something refers to them, each by its
// name, and that they are deleted when nothing does any more.
func TestReferencedOnly(t *testing.T) {
	t.Parallel()
	w := gatewayWorld(t)
	w.api.Put(secret("web", "one"), secret("api", "two"), secret("private", "no"))
	w.api.Put(&corev1.ConfigMap{ObjectMeta: meta("ca"), Data: map[string]string{"ca.crt": "three", "x": "y"}})
	w.api.Put(ingress("web", "web", "absent"))
	w.start()
	w.awaitFreshness(cluster.Live, w.cfg.Kinds...)
	w.awaitSecrets("one reference", "shop/web: tls.crt=one")

	w.api.Put(ingress("api", "api"))
	g := &gatewayv1.Gateway{ObjectMeta: meta("front")}
	g.Spec.TLS = frontendTLS("ca")
	w.api.Put(g)
	w.awaitSecrets("three references", "shop/web: tls.crt=one", "shop/api: tls.crt=two", "shop/ca: map[ca.crt:three]")

	w.api.Put(secret("api", "four"), secret("absent", "five"))
	w.awaitSecrets("changes", "shop/web: tls.crt=one", "shop/api: tls.crt=four", "shop/absent: tls.crt=five", "shop/ca: map[ca.crt:three]")

	w.api.Put(ingress("web", "api"))
	w.api.Delete(g)
	w.awaitSecrets("fewer references", "shop/api: tls.crt=four")
	w.api.Delete(ingress("api"))
	w.api.Put(secret("api", "six"), secret("web", "seven"))
	w.awaitSecrets("another reference to it", "shop/api: tls.crt=six")
	w.awaitFreshness(cluster.Live, w.cfg.Kinds...)

	for _, resource := range []string{"secrets", "configmaps"} {
		for _, r := range w.requests(resource, 0) {
			at, err := url.Parse(r.URL)
			if err != nil || !strings.HasPrefix(at.Path, "/api/v1/namespaces/shop/") ||
				!strings.HasPrefix(at.Query().Get("fieldSelector"), "metadata.name=") ||
				strings.Contains(r.URL, "private") {
				t.Errorf("request for %s, want one for a name that is referred to, in its namespace", r.URL)
			}
		}
	}
}

// TestReferenceFreshness checks that Secrets are not live while one that is referred to is not read: it
// must not look absent.
func TestReferenceFreshness(t *testing.T) {
	t.Parallel()
	w := gatewayWorld(t)
	forbidden := apitest.Fault{Refuse: func(_, path string) int {
		if strings.HasSuffix(path, "/secrets") {
			return http.StatusForbidden
		}
		return 0
	}}
	w.api.Misbehave(forbidden)
	w.api.Put(secret("web", "one"), ingress("web", "web"))
	w.start()
	w.await("the refusal is known", func() bool { return w.freshness(cluster.KindIngress) == cluster.Live && w.refused() })
	if got := w.freshness(cluster.KindSecret); got != cluster.Loading {
		t.Errorf("Secrets are %s while none can be read, want loading", got)
	}
	w.awaitFreshness(cluster.Live, cluster.KindConfigMap)
	w.api.Misbehave(apitest.Fault{})
	w.awaitFreshness(cluster.Live, cluster.KindSecret)

	w.api.Misbehave(forbidden)
	w.api.Put(secret("api", "two"), ingress("api", "api"))
	w.await("a second Ingress", func() bool {
		var there bool
		w.store.View(func(v *cluster.View) {
			there = cluster.Ingresses.Get(v, cluster.Key{Namespace: "shop", Name: "api"}) != nil
			if f := v.Freshness(cluster.KindSecret); there && f != cluster.Confirming {
				t.Errorf("with a new reference Secrets are %s, want confirming", f)
			}
		})
		return there
	})
	w.api.Misbehave(apitest.Fault{})
	w.awaitFreshness(cluster.Live, cluster.KindSecret)
	if d := cmp.Diff([]string{"shop/api: tls.crt=two", "shop/web: tls.crt=one"}, w.secrets()); d != "" {
		t.Errorf("Secrets when live: (-want +got)\n%s", d)
	}
}

// refused reports whether the API refuses Secrets.
func (w *world) refused() bool {
	return slices.ContainsFunc(w.source.Status(), func(st Status) bool {
		return st.Kind == cluster.KindSecret && Refused(st.Problem)
	})
}

// TestGatewayWithoutCRDs checks that a cluster without the Gateway API is read.
func TestGatewayWithoutCRDs(t *testing.T) {
	t.Parallel()
	w := gatewayWorld(t)
	w.api.Uninstall("gatewayclasses", "gateways", "listenersets", "httproutes", "referencegrants")
	w.api.Put(secret("web", "one"), ingress("web", "web"))
	w.start()
	w.awaitFreshness(cluster.Live, w.cfg.Kinds...)
	w.awaitSecrets("Ingress alone", "shop/web: tls.crt=one")
}

// TestReferencesElsewhere checks that a name that is no name does not select other Secrets, and that
// namespaces that are not read are left alone.
func TestReferencesElsewhere(t *testing.T) {
	t.Parallel()
	w := gatewayWorld(t)
	w.cfg.Namespaces = []string{"shop"}
	w.api.Put(secret("web", "one"), secret("data/web", "two"), ingress("odd", "x,metadata.name!=y"))
	g := &gatewayv1.Gateway{ObjectMeta: meta("front")}
	g.Spec.Listeners = []gatewayv1.Listener{{Name: "https", Port: 443, Protocol: "HTTPS", TLS: &gatewayv1.ListenerTLSConfig{
		CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "web"}, {Name: "web", Namespace: new(gatewayv1.Namespace("data"))}},
	}}}
	w.api.Put(g)
	w.start()
	w.awaitFreshness(cluster.Live, w.cfg.Kinds...)
	w.awaitSecrets("in its namespace", "shop/web: tls.crt=one")
	for _, r := range w.requests("secrets", 0) {
		if strings.Contains(r.URL, "/data/") {
			t.Errorf("request %s, want none for other namespaces", r.URL)
		}
	}
}

// TestForGatewayReads checks that gateways have what they need of Services, slices, Nodes and Namespaces.
func TestForGatewayReads(t *testing.T) {
	t.Parallel()
	w := gatewayWorld(t)
	labels := map[string]string{"team": "a"}
	s := service("web", "10.0.0.1")
	s.Labels = labels
	s.Spec.Selector, s.Spec.TrafficDistribution = labels, new("PreferSameZone")
	s.Spec.Type, s.Spec.LoadBalancerIP, s.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, "192.0.2.8", []string{"192.0.2.9"}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, AppProtocol: new("kubernetes.io/h2c")}}
	headless := service("peers", "None")
	headless.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}
	of := slice("web-1", "10.1.0.1")
	of.Endpoints[0].NodeName = new("node-1")
	n := node("node-1", "192.0.2.1")
	n.Labels = map[string]string{corev1.LabelTopologyZone: "a"}
	i := ingress("web")
	i.Generation, i.CreationTimestamp = 3, metav1.Unix(1700000000, 0)
	i.Spec.Rules = []networkingv1.IngressRule{{Host: "Shop.example"}}
	w.api.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: labels}}, s, headless, of, n, i)
	w.start()
	w.awaitFreshness(cluster.Live, w.cfg.Kinds...)
	w.store.View(func(v *cluster.View) {
		got := v.Service(cluster.Key{Namespace: "shop", Name: "web"})
		if got.Spec.TrafficDistribution != "PreferSameZone" || len(got.Spec.AppProtocols) != 1 || *got.Spec.AppProtocols[0] != "kubernetes.io/h2c" || got.Selector != nil || got.Spec.Labels != nil {
			t.Errorf("Service web = %+v with %+v", got, got.Spec)
		}
		if asked := got.Spec.LoadBalancer; asked == nil || asked.IP != "192.0.2.8" || len(got.Spec.ExternalIPs) != 1 {
			t.Errorf("Service web = %+v asks for %+v, want its addresses", got.Spec, asked)
		}
		if got := v.Service(cluster.Key{Namespace: "shop", Name: "peers"}); !got.Headless || len(got.Ports) != 1 {
			t.Errorf("headless Service = %+v, want its ports", got)
		}
		if got := v.SlicesOf(cluster.Key{Namespace: "shop", Name: "web"}); len(got) != 1 || got[0].Places()[0].Node != "node-1" {
			t.Errorf("slices of web = %+v, want one with an endpoint on node-1", got)
		}
		if got := v.Node("node-1"); got.Zone != "a" || v.Namespace("shop").Labels["team"] != "a" {
			t.Errorf("Node = %+v, Namespace = %+v", got, v.Namespace("shop"))
		}
		want := cluster.Meta{Age: cluster.Age{Created: 1700000000}, Generation: 3}
		if got := cluster.Ingresses.Get(v, cluster.Key{Namespace: "shop", Name: "web"}).Ingress; got.Meta != want || got.Rules[0].Host != "shop.example" {
			t.Errorf("Ingress = %+v, want %+v and a rule for shop.example", got, want)
		}
	})
}

// TestNamesHaveNoSpecs checks that DNS servers keep nothing for gateways.
func TestNamesHaveNoSpecs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Kinds = append(kindsRead(), cluster.KindIngress, cluster.KindGateway, cluster.KindHTTPRoute)
	i := ingress("web", "web")
	i.Spec.Rules = []networkingv1.IngressRule{{Host: "shop.example"}}
	r := &gatewayv1.HTTPRoute{ObjectMeta: meta("web")}
	w.api.Put(i, &gatewayv1.Gateway{ObjectMeta: meta("web")}, r)
	w.start()
	w.awaitFreshness(cluster.Live, w.cfg.Kinds...)
	at := cluster.Key{Namespace: "shop", Name: "web"}
	w.store.View(func(v *cluster.View) {
		if got := cluster.Ingresses.Get(v, at); got.Ingress != nil || got.Hosts[0] != "shop.example" {
			t.Errorf("Ingress = %+v, want its host alone", got)
		}
		if got := cluster.Gateways.Get(v, at); got.Gateway != nil {
			t.Errorf("Gateway = %+v, want no spec", got)
		}
		if got := cluster.HTTPRoutes.Get(v, at); got.Spec != nil {
			t.Errorf("HTTPRoute = %+v, want no spec", got)
		}
	})
}
