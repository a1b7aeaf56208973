//go:build unix

package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portolan.dev/portolan/internal/kube/apitest"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"webhook.listen": func(t *testing.T) {
			l, err := net.Listen("tcp", anyPort)
			if err != nil {
				t.Fatal(err)
			}
			addr := l.Addr().String()
			l.Close()
			h := startHook(t, newHookAPI(t, "kube-system/portolan-webhook"), "listen: '"+addr+"'")
			if h.addr != addr {
				t.Errorf("it listens on %s, want %s", h.addr, addr)
			}
			h.wantPatch(`"10.96.0.10"`)
		},
		"webhook.service": func(t *testing.T) {
			h := startHook(t, newHookAPI(t, "dns/hook"), "service: dns/hook")
			h.wantPatch(`"10.96.0.10"`)
			var s corev1.Secret
			if !h.api.Get("dns", "hook", &s) || len(s.Data) == 0 {
				t.Error("the Secret dns/hook has no certificate")
			}
		},
		"webhook.clusterDNS": func(t *testing.T) {
			startHook(t, newHookAPI(t, "kube-system/portolan-webhook"), "clusterDNS: [10.0.0.10, 'fd00::a']").wantPatch(`"10.0.0.10","fd00::a"`)
		},
		"webhook.nodeDNS": func(t *testing.T) {
			startHook(t, newHookAPI(t, "kube-system/portolan-webhook"), "nodeDNS: [169.254.20.10]").wantPatch(`"169.254.20.10","10.96.0.10"`)
		},
		"webhook.timeout":         effectOfWebhookTimeout,
		"webhook.maxInFlight":     effectOfWebhookMaxInFlight,
		"webhook.certificateLife": effectOfCertificateLife,
		"webhook.deny": func(t *testing.T) {
			wantAddressReview(t, "", true, 1)
			wantAddressReview(t, "deny: [externalname-address]", false, 0)
		},
		"webhook.ignore": func(t *testing.T) { wantAddressReview(t, "ignore: [externalname-address]", true, 0) },
	})
}

// hook is a running webhook and its API server.
type hook struct {
	*process
	api     *apitest.Server
	service string
}

// hookNamespaces have the webhook's label. Each is read once in a few seconds.
var hookNamespaces = []string{"shop", "shop-0", "shop-1", "shop-2"}

// newHookAPI returns an API server with the chart's webhook configurations, and
// Namespaces with the label.
func newHookAPI(t *testing.T, service string) *apitest.Server {
	t.Helper()
	namespace, name, _ := strings.Cut(service, "/")
	api := apitest.New(t)
	for _, name := range hookNamespaces {
		api.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"portolan.dev/dns-policy": "ClusterFirstWithAutopath"},
		}})
	}
	api.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	api.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	meta := metav1.ObjectMeta{Name: name}
	client := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: name}}
	api.Put(&admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "a", ClientConfig: client}},
	})
	api.Put(&admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "b", ClientConfig: client}},
	})
	return api
}

// startHook starts a webhook with settings of the key webhook, and waits until it is
// ready.
func startHook(t *testing.T, api *apitest.Server, webhook string) *hook {
	t.Helper()
	h := &hook{api: api, service: "kube-system/portolan-webhook"}
	for _, setting := range []string{"listen: '" + anyPort + "'", "clusterDNS: [10.96.0.10]"} {
		if key, _, _ := strings.Cut(setting, ":"); !strings.Contains(webhook, key) {
			webhook += ", " + setting
		}
	}
	webhook = strings.TrimPrefix(webhook, ", ")
	if _, of, given := strings.Cut(webhook, "service: "); given {
		h.service, _, _ = strings.Cut(of, ",")
	}
	file := settings(t, fmt.Sprintf("kubernetes: {kubeconfig: %q}\nwebhook: {%s}", api.Kubeconfig(t), webhook))
	h.process = follow(t, exec.Command("portolan", "webhook", "--config", file))
	h.addr = h.waitLog(`msg=serving\W+listen=(127\.0\.0\.1:\d+)`)[1]
	h.awaitAdmin("/readyz", http.StatusOK, "ok")
	return h
}

// client returns a client that trusts the CA bundle of the webhook configuration, as API
// servers do.
func (h *hook) client() *http.Client {
	h.t.Helper()
	namespace, name, _ := strings.Cut(h.service, "/")
	var registered admissionregistrationv1.ValidatingWebhookConfiguration
	if !h.api.Get("", name, &registered) {
		h.t.Fatal("there is no webhook configuration")
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(registered.Webhooks[0].ClientConfig.CABundle) {
		h.t.Fatal("no certificate in the CA bundle")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name + "." + namespace + ".svc"}, ForceAttemptHTTP2: true}
	h.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// review sends a review of an object to be created in the Namespace shop.
func (h *hook) review(client *http.Client, path, resource, object string) (*admissionv1.AdmissionResponse, error) {
	return h.reviewIn("shop", client, path, resource, object)
}

// reviewIn is review in a given Namespace.
func (h *hook) reviewIn(namespace string, client *http.Client, path, resource, object string) (*admissionv1.AdmissionResponse, error) {
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Namespace: namespace, Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(object)},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: resource},
		},
	})
	if err != nil {
		return nil, err
	}
	answer, err := client.Post("https://"+h.addr+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %w", answer.Status, text, err)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &review); err != nil {
		return nil, err
	}
	return review.Response, nil
}

const newPod = `{"metadata": {"name": "p"}, "spec": {"dnsPolicy": "ClusterFirst"}}`

// wantPatch checks that the patch of a Pod contains words.
func (h *hook) wantPatch(words string) {
	h.t.Helper()
	response, err := h.review(h.client(), "/mutate", "pods", newPod)
	if err != nil {
		h.t.Fatal(err)
	}
	if !response.Allowed || !strings.Contains(string(response.Patch), words) {
		h.t.Errorf("patch %s, warnings %q, want %s", response.Patch, response.Warnings, words)
	}
}

// effectOfWebhookTimeout checks that the webhook does not wait longer for a Namespace.
func effectOfWebhookTimeout(t *testing.T) {
	for setting, want := range map[string]time.Duration{"timeout: 100ms": 100 * time.Millisecond, "": time.Second} {
		api := newHookAPI(t, "kube-system/portolan-webhook")
		h := startHook(t, api, setting)
		hang := make(chan struct{})
		api.Misbehave(apitest.Fault{Refuse: func(_, path string) int {
			if strings.HasSuffix(path, "/namespaces/shop") {
				<-hang
			}
			return 0
		}})
		client, began := h.client(), time.Now()
		response, err := h.review(client, "/mutate", "pods", newPod)
		took := time.Since(began)
		close(hang)
		if err != nil {
			t.Fatal(err)
		}
		if !response.Allowed || response.Patch != nil || len(response.Warnings) != 1 {
			t.Errorf("%q: %+v, want it let through with a warning", setting, response)
		}
		if took < want || want < time.Second && took > 900*time.Millisecond {
			t.Errorf("%q: answered after %s, want %s", setting, took, want)
		}
	}
}

// effectOfWebhookMaxInFlight checks that at most the set number of reviews is processed
// at once.
func effectOfWebhookMaxInFlight(t *testing.T) {
	const together = 3
	for setting, most := range map[string]int32{"maxInFlight: 1, timeout: 20s": 1, "timeout: 20s": together} {
		api := newHookAPI(t, "kube-system/portolan-webhook")
		h := startHook(t, api, setting)
		var inside, highest atomic.Int32
		release := make(chan struct{})
		api.Misbehave(apitest.Fault{Refuse: func(_, path string) int {
			if strings.Contains(path, "/namespaces/shop-") {
				if n := inside.Add(1); n > highest.Load() {
					highest.Store(n)
				}
				<-release
				inside.Add(-1)
			}
			return 0
		}})
		client := h.client()
		answered := make(chan error)
		for i := range together {
			go func() {
				_, err := h.reviewIn(fmt.Sprint("shop-", i), client, "/mutate", "pods", newPod)
				answered <- err
			}()
		}
		h.poll(patience, func() error {
			if n := highest.Load(); n != most {
				return fmt.Errorf("%d reviews at once, want %d", n, most)
			}
			return nil
		})
		time.AfterFunc(200*time.Millisecond, func() { close(release) }) // no further request may arrive until then
		for range together {
			if err := <-answered; err != nil {
				t.Errorf("%q: %v", setting, err)
			}
		}
		if n := highest.Load(); n != most {
			t.Errorf("%q: %d reviews at once, want %d", setting, n, most)
		}
	}
}

func effectOfCertificateLife(t *testing.T) {
	for setting, want := range map[string]time.Duration{"certificateLife: 1h": time.Hour, "": 90 * 24 * time.Hour} {
		h := startHook(t, newHookAPI(t, "kube-system/portolan-webhook"), setting)
		conn, err := tls.Dial("tcp", h.addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		left := time.Until(conn.ConnectionState().PeerCertificates[0].NotAfter)
		if left > want || left < want-5*time.Minute {
			t.Errorf("%q: a certificate for %s, want %s", setting, left, want)
		}
	}
}

// wantAddressReview checks the review of a Service with an address as its ExternalName.
func wantAddressReview(t *testing.T, setting string, allowed bool, warnings int) {
	t.Helper()
	h := startHook(t, newHookAPI(t, "kube-system/portolan-webhook"), setting)
	response, err := h.review(h.client(), "/validate", "services", `{"metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "192.0.2.1"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if response.Allowed != allowed || len(response.Warnings) != warnings {
		t.Errorf("%q: %+v, want allowed: %t, and %d warnings", setting, response, allowed, warnings)
	}
}

// TestWebhook checks a webhook from start to shutdown. A review in progress at SIGTERM is
// answered.
func TestWebhook(t *testing.T) {
	t.Parallel()
	api := newHookAPI(t, "kube-system/portolan-webhook")
	h := startHook(t, api, "")
	h.wantPatch(`"search.shop.cluster.local.ap.k8s.io"`)
	h.awaitAdmin("/metrics", http.StatusOK, `portolan_webhook_reviews_total{operation="CREATE",resource="pods",result="changed",webhook="mutate"} 1`)
	h.awaitAdmin("/metrics", http.StatusOK, "portolan_webhook_certificate_expiry_timestamp_seconds 1")
	h.awaitAdmin("/healthz", http.StatusOK, "ok")
	if status, body := h.admin("/debug/zone"); status != http.StatusNotFound {
		t.Errorf("/debug/zone: %d %q, want that there is none", status, body)
	}

	conn, err := tls.Dial("tcp", h.addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if got := conn.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("the protocol is %s, want http/1.1", got)
	}

	asked, release := make(chan struct{}), make(chan struct{})
	api.Misbehave(apitest.Fault{Refuse: func(_, path string) int {
		if strings.HasSuffix(path, "/namespaces/shop-1") {
			close(asked)
			<-release
		}
		return 0
	}})
	client := h.client()
	answered := make(chan error, 1)
	go func() {
		response, err := h.reviewIn("shop-1", client, "/mutate", "pods", newPod)
		if err == nil && response.Patch == nil {
			err = fmt.Errorf("%+v, want a patch", response)
		}
		answered <- err
	}()
	<-asked
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	close(release)
	if err := <-answered; err != nil {
		t.Errorf("the review in progress at SIGTERM: %v", err)
	}
	h.wait()
	if code := h.state.ExitCode(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}

// TestAlertMetrics checks that the alert for missing servers uses a metric of servers
// only, but for agents, which another metric excludes, and that those for webhooks,
// gateways and agents use one that none of the other processes exports.
func TestAlertMetrics(t *testing.T) {
	t.Parallel()
	alerts, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	server := start(t, "--manifests", shop(t), "--listen", anyPort)
	server.awaitAdmin("/metrics", http.StatusOK, "\nportolan_zone_serial{")
	hook := startHook(t, newHookAPI(t, "kube-system/portolan-webhook"), "")
	agent := startNode(t, "node: {mode: cache, servers: [192.0.2.1]}")
	gateway := follow(t, exec.Command("portolan", "gateway", "--manifests", shop(t), "--listen", loopbackAddress(), "--admin", anyPort))
	gateway.waitLog("requests are served")
	for pattern, has := range map[string]*process{
		`absent\((\w+) unless`: server, `absent\(\w+ unless on \(instance\) (\w+)\)`: nil,
		`unless count\((portolan_webhook_\w+)\)`: hook.process, `unless count\((portolan_node_\w+)\)`: nil,
		`unless count\((portolan_gateway_\w+)\)`: gateway,
	} {
		m := regexp.MustCompile(pattern).FindSubmatch(alerts)
		if m == nil {
			t.Fatalf("no alert has %s", pattern)
		}
		for _, p := range []*process{server, hook.process, agent, gateway} {
			_, told := p.admin("/metrics")
			want := p == has
			if got := regexp.MustCompile(`(?m)^` + string(m[1]) + `[{ ]`).MatchString(told); got != want {
				t.Errorf("%s: %s is exported: %t, want %t", p.cmd.Args, m[1], got, want)
			}
		}
	}
}

// TestWebhookIsNotReadyUntilTrusted checks that /readyz reports why the API server cannot
// trust the webhook.
func TestWebhookIsNotReadyUntilTrusted(t *testing.T) {
	t.Parallel()
	api := newHookAPI(t, "kube-system/portolan-webhook")
	api.Misbehave(apitest.Fault{Refuse: func(method, _ string) int {
		if method == http.MethodPatch {
			return http.StatusForbidden
		}
		return 0
	}})
	file := settings(t, fmt.Sprintf("kubernetes: {kubeconfig: %q}\nlameduck: 100ms\nwebhook: {listen: '%s', clusterDNS: [10.96.0.10]}", api.Kubeconfig(t), anyPort))
	p := follow(t, exec.Command("portolan", "webhook", "--config", file))
	p.awaitAdmin("/readyz", http.StatusServiceUnavailable, "mutatingwebhookconfigurations portolan-webhook: told to refuse PATCH")
	p.awaitAdmin("/healthz", http.StatusOK, "ok")
	p.waitLog("certificate rotation failed")
	api.Misbehave(apitest.Fault{})
	p.awaitAdmin("/readyz", http.StatusOK, "ok")
	p.stop(syscall.SIGTERM)
	p.waitLog("stopping.*lameduck=100ms")
}
