package prometheus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"portolan.dev/portolan/internal/kube/apitest"
	"portolan.dev/portolan/internal/kube/object"
)

// apiAddress is where hosts reach the API server.
const apiAddress = "127.0.0.1:6443"

// newAPI returns an API server with the objects of testdata/world.yaml, a certificate that lives for a month, and
// endpoints.
func newAPI(t *testing.T) *apitest.Server {
	t.Helper()
	const month = 30 * 24 * time.Hour
	api := apitest.New(t)
	api.Put(objectsOf(t, readFile(t, "testdata/world.yaml"))...)
	api.Put(certificate(t, month), endpoints("web", "10.244.1.1", 8080), endpoints("peers", "10.244.1.1", 8080))
	return api
}

// objectsOf decodes documents of YAML.
func objectsOf(t *testing.T, text string) (all []metav1.Object) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		var of metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &of); err != nil {
			t.Fatal(err)
		}
		o := newObject(of.Kind)
		if o == nil {
			t.Fatalf("no kind %s", of.Kind)
		}
		if err := yaml.Unmarshal([]byte(document), o); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

func newObject(kind string) metav1.Object {
	switch kind {
	case "MutatingWebhookConfiguration":
		return new(admissionregistrationv1.MutatingWebhookConfiguration)
	case "ValidatingWebhookConfiguration":
		return new(admissionregistrationv1.ValidatingWebhookConfiguration)
	}
	for _, k := range object.Kinds {
		if k.Model.String() == kind {
			return k.New()
		}
	}
	return nil
}

// certificate returns the Secret shop with a certificate for shop.example.
func certificate(t *testing.T, life time.Duration) *corev1.Secret {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shop.example"}, DNSNames: []string{"shop.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "shop"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}),
		},
	}
}

// endpoints returns an EndpointSlice of a Service that a controller has just changed.
func endpoints(service, address string, port int32) *discoveryv1.EndpointSlice {
	return endpointsSince(service, address, port, time.Now())
}

// endpointsSince is the same with the time of the change.
func endpointsSince(service, address string, port int32, at time.Time) *discoveryv1.EndpointSlice {
	name, node := "", "n1"
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: service + "-1"},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}, NodeName: &node}},
	}
	s.Labels = map[string]string{
		discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
	}
	s.Annotations = map[string]string{
		corev1.EndpointsLastChangeTriggerTime: at.UTC().Format(time.RFC3339Nano),
	}
	return s
}

// connect has processes of the host reach the API server, and returns the path of their kubeconfig.
func (h *host) connect(api *apitest.Server) (kubeconfig string) {
	h.t.Helper()
	at, err := url.Parse(api.URL())
	if err != nil {
		h.t.Fatal(err)
	}
	h.forward(apiAddress, at.Host)
	kubeconfig = h.path("kubeconfig")
	apitest.WriteKubeconfig(h.t, kubeconfig, "http://"+apiAddress)
	return kubeconfig
}

// forward passes connections to an address of the host on to one of this process.
func (h *host) forward(from, to string) {
	h.t.Helper()
	var l net.Listener
	h.do(func() (err error) {
		l, err = net.Listen("tcp", from)
		return err
	})
	h.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go pass(c, to)
		}
	}()
}

// pass connects a client with a server until both have ended.
func pass(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	if _, err := io.Copy(client, server); err != nil && !errors.Is(err, net.ErrClosed) {
		_ = client.Close()
	}
	_ = client.Close()
	<-done
}
