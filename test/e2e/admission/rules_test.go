package admission_test

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// longName has an FQDN of more than 64 characters in a subdomain.
const longName = "a-name-that-is-as-long-as-people-make-them"

// trouble are objects that rules find something in.
func (w *webhooks) trouble() map[string]func() error {
	ctx, dry := w.t.Context(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pod := newPod(longName)
	pod.Spec.SetHostnameAsFQDN, pod.Spec.Subdomain = new(true), "sub"
	many := newPod("p")
	many.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}}
	labels := map[string]string{"app": "x"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newPod("").Spec}
	template.Spec.SetHostnameAsFQDN = new(true)
	return map[string]func() error{
		"pod-fqdn-too-long: spec.setHostnameAsFQDN: failed to construct FQDN": func() error {
			_, err := w.client.CoreV1().Pods("plain").Create(ctx, pod, dry)
			return err
		},
		"pod-dns-limit: spec.dnsConfig.nameservers: 1 nameserver is left out": func() error {
			_, err := w.client.CoreV1().Pods("plain").Create(ctx, many, dry)
			return err
		},
		"pod-fqdn-too-long: spec.template.spec.setHostnameAsFQDN: failed to construct FQDN": func() error {
			_, err := w.client.AppsV1().StatefulSets("plain").Create(ctx, &appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{Name: longName},
				Spec:       appsv1.StatefulSetSpec{ServiceName: "sub", Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
			}, dry)
			return err
		},
		"externalname-address: spec.externalName: 192.0.2.1 is an IP address": func() error {
			_, err := w.client.CoreV1().Services("plain").Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "s"},
				Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "192.0.2.1"},
			}, dry)
			return err
		},
		"namespace-named-svc: metadata.name: lookups of SERVICE.NAMESPACE.svc": func() error {
			_, err := w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "svc"}}, dry)
			return err
		},
	}
}

// testRulesWarn: what rules find is a warning to whoever applies an object, in
// the words of the page.
func testRulesWarn(t *testing.T, w *webhooks) {
	page, err := os.ReadFile(hookPage)
	if err != nil {
		t.Fatal(err)
	}
	for want, apply := range w.trouble() {
		w.warned.take()
		if err := apply(); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		said := w.warned.take()
		if !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("warnings %q, want %s", said, want)
		}
		if strings.HasPrefix(want, "externalname") && !bytes.Contains(page, []byte(strings.Join(said, "\n"))) {
			t.Errorf("webhook.md lacks %q", said)
		}
	}
}

// testRulesDeny: where the configuration says so, it is denied.
func testRulesDeny(t *testing.T, w *webhooks) {
	w.stop()
	w.start("  deny: [externalname-address, pod-fqdn-too-long, namespace-named-svc]\n  ignore: [pod-dns-limit]\n")
	w.awaitChange()
	for want, apply := range w.trouble() {
		w.warned.take()
		err := apply()
		if strings.HasPrefix(want, "pod-dns-limit") {
			if said := w.warned.take(); err != nil || len(said) > 0 {
				t.Errorf("ignored: %v, warnings %q, want none", err, said)
			}
			continue
		}
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "denied the request: "+want) {
			t.Errorf("%v, want it denied: %s", err, want)
		}
	}
}

// warnings keeps what the API server says beside its answers.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	const warning = 299 // RFC 7234, section 5.5.7
	if code != warning || text == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// take gives what was said since it was last called.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}
