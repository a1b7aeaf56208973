package admission

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/kube/apitest"
)

var ownService = ServiceName{Namespace: "dns", Name: "hook"}

const (
	namespacePath  = "/api/v1/namespaces/dns"
	secretPath     = "/api/v1/namespaces/dns/secrets/hook"
	mutatingPath   = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hook"
	validatingPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hook"
)

// world is an API server with the registrations, and a clock.
type world struct {
	*apitest.Server
	t   *testing.T
	api *API

	mu  sync.Mutex
	now time.Time
}

const testLife = 10 * time.Minute

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: apitest.New(t), t: t, now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)}
	own := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "dns", Name: "hook"}}
	other := admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: "dns", Name: "other"}, CABundle: []byte("other"),
	}
	meta := metav1.ObjectMeta{Name: "hook"}
	w.emptySecret()
	w.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dns"}})
	w.Put(&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{
		{Name: "a", ClientConfig: own}, {Name: "other", ClientConfig: other}, {Name: "b", ClientConfig: own},
	}})
	w.Put(&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{
		{Name: "c", ClientConfig: own},
	}})
	var err error
	if w.api, err = NewAPI(APIConfig{Kubeconfig: w.Kubeconfig(t), QPS: -1}); err != nil {
		t.Fatal(err)
	}
	return w
}

// emptySecret is the Secret as it is installed.
func (w *world) emptySecret() {
	w.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "dns", Name: "hook"}})
}

func (w *world) keeper() *CertificateRotator {
	return NewCertificateRotator(Config{Service: ownService, CertificateLife: testLife}, w.api, w.time, slog.New(slog.DiscardHandler))
}

func (w *world) time() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// look has keepers pass once.
func (w *world) look(keepers ...*CertificateRotator) {
	w.t.Helper()
	for _, k := range keepers {
		if err := k.tryPass(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// bundles are those of the own webhooks; that of the other must stay.
func (w *world) bundles() (all [][]byte) {
	w.t.Helper()
	var m admissionregistrationv1.MutatingWebhookConfiguration
	var v admissionregistrationv1.ValidatingWebhookConfiguration
	if !w.Get("", "hook", &m) || !w.Get("", "hook", &v) {
		w.t.Fatal("a registration is gone")
	}
	if got := string(m.Webhooks[1].ClientConfig.CABundle); got != "other" {
		w.t.Fatalf("the CA bundle of another's webhook is %q", got)
	}
	return [][]byte{m.Webhooks[0].ClientConfig.CABundle, m.Webhooks[2].ClientConfig.CABundle, v.Webhooks[0].ClientConfig.CABundle}
}

// check says why an API server with these bundles would not trust a keeper.
func (w *world) check(k *CertificateRotator, bundles [][]byte) error {
	pair, err := k.Certificate(nil)
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return err
	}
	for i, bundle := range bundles {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle)
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "hook.dns.svc", Roots: roots, CurrentTime: w.time()}); err != nil {
			return fmt.Errorf("bundle %d: %w", i, err)
		}
	}
	return nil
}

func (w *world) wantTrusted(keepers ...*CertificateRotator) {
	w.t.Helper()
	for i, k := range keepers {
		if err := w.check(k, w.bundles()); err != nil {
			w.t.Fatalf("keeper %d: %v", i, err)
		}
		if missing, _ := k.Ready(); len(missing) > 0 {
			w.t.Fatalf("keeper %d is not ready: %q", i, missing)
		}
	}
}

func wantNotReady(t *testing.T, k *CertificateRotator, words string) {
	t.Helper()
	missing, remarks := k.Ready()
	if len(missing) == 0 || !strings.Contains(strings.Join(append(missing, remarks...), "; "), words) {
		t.Errorf("missing %q, remarks %q, want %q", missing, remarks, words)
	}
}

// TestRotatorCreatesCertificates checks that one pass creates the Secret and the CA
// bundles, and that the rotator is not ready before.
func TestRotatorCreatesCertificates(t *testing.T) {
	w := newWorld(t)
	k := w.keeper()
	wantNotReady(t, k, "there is no certificate yet")
	if _, err := k.Certificate(nil); err == nil {
		t.Error("a certificate before the first pass")
	}
	w.look(k)
	w.wantTrusted(k)
	if got, want := k.Until(), w.time().Add(testLife); !got.Equal(want) {
		t.Errorf("good until %s, want %s", got, want)
	}
	want := []string{"PUT " + secretPath, "PATCH " + mutatingPath, "PATCH " + validatingPath}
	if got := w.Writes(); !slices.Equal(got, want) {
		t.Errorf("writes %q, want %q", got, want)
	}
	w.look(k, k)
	if got := w.Writes(); len(got) != len(want) {
		t.Errorf("writes of more passes: %q, want none", got[len(want):])
	}
}

// TestRotatorRenewsCertificates checks that certificates are renewed before they expire,
// and that API servers that receive changes late trust every replica at any time.
func TestRotatorRenewsCertificates(t *testing.T) {
	const step, late = 5 * time.Second, 20 * time.Second
	w := newWorld(t)
	keepers := []*CertificateRotator{w.keeper(), w.keeper(), w.keeper()}
	w.look(keepers...)
	random := rand.New(rand.NewPCG(1, 2))
	history := [][][]byte{w.bundles()}
	served := make(map[time.Time]bool)
	for elapsed := time.Duration(0); elapsed < 3*testLife; elapsed += step {
		w.pass(step)
		for i, k := range keepers {
			if random.IntN(2) == 0 { // every 10 s, about
				w.look(k)
			}
			if random.IntN(200) == 0 { // it is started again
				keepers[i] = w.keeper()
				w.look(keepers[i])
			}
		}
		history = append(history, w.bundles())
		before := history[max(0, len(history)-1-int(late/step))]
		w.wantTrusted(keepers...)
		for i, k := range keepers {
			if err := w.check(k, before); err != nil {
				t.Fatalf("after %s: keeper %d and an API server that is late: %v", elapsed, i, err)
			}
			if left := k.Until().Sub(w.time()); left < settleTime-step {
				t.Fatalf("after %s: keeper %d has a certificate for %s more", elapsed, i, left)
			}
			served[k.Until()] = true
		}
	}
	if len(served) < 4 || len(served) > 6 { // each two thirds of a life
		t.Errorf("%d certificates were served within three lives", len(served))
	}
}

// TestConcurrentRotators checks that of several rotators that create or renew
// certificates at once one succeeds, and that all serve the same certificate.
func TestConcurrentRotators(t *testing.T) {
	w := newWorld(t)
	var keepers []*CertificateRotator
	for range 8 {
		keepers = append(keepers, w.keeper())
	}
	race := func() {
		t.Helper()
		var wg sync.WaitGroup
		for _, k := range keepers {
			wg.Go(func() {
				// All may have lost more often than one pass tries.
				for range 100 {
					if err := k.Pass(t.Context()); err == nil || !errors.Is(err, errChanged) {
						return
					}
				}
			})
		}
		wg.Wait()
		w.wantTrusted(keepers...)
		for i, k := range keepers {
			if !k.serving.Load().same(keepers[0].serving.Load()) {
				t.Errorf("keeper %d serves another certificate than the first", i)
			}
		}
	}
	made := func(method string) (n int) {
		for _, write := range w.Writes() {
			if write == method+" "+secretPath {
				n++
			}
		}
		return n
	}
	race()
	first := keepers[0].serving.Load()
	w.pass(testLife * 3 / 4)
	race()
	if !keepers[0].serving.Load().same(first) {
		t.Error("the new certificate is served at once")
	}
	w.pass(settleTime)
	race()
	if keepers[0].serving.Load().same(first) {
		t.Error("the new certificate is not served")
	}
	if made("PUT") != 2 {
		t.Errorf("the Secret was written %d times, want twice", made("PUT"))
	}
}

// TestRotatorKeepsNewerBundle checks that a rotator that read the webhook configurations
// before another one renewed does not restore the older bundle.
func TestRotatorKeepsNewerBundle(t *testing.T) {
	w := newWorld(t)
	late, quick := w.keeper(), w.keeper()
	w.look(late, quick)
	registered, err := w.api.registrations(t.Context(), ownService)
	if err != nil {
		t.Fatal(err)
	}
	old := late.serving.Load()
	w.pass(testLife * 3 / 4)
	w.look(quick)
	for _, r := range registered {
		r.entries[0].bundle = nil // so that it is set
	}
	if err := late.register(t.Context(), registered, old.authorityPEM); !errors.Is(err, errChanged) {
		t.Errorf("register with what was read before = %v, want %v", err, errChanged)
	}
	w.look(late)
	w.wantTrusted(late, quick)
}

// TestRotatorRepairsChanges checks that the next pass repairs what others changed, and
// that no replica serves an untrusted certificate meanwhile.
func TestRotatorRepairsChanges(t *testing.T) {
	for claim, spoil := range map[string]func(*world){
		"the bundle is emptied": func(w *world) {
			var v admissionregistrationv1.ValidatingWebhookConfiguration
			w.Get("", "hook", &v)
			v.Webhooks[0].ClientConfig.CABundle = nil
			w.Put(&v)
		},
		"the bundle is another's": func(w *world) {
			var m admissionregistrationv1.MutatingWebhookConfiguration
			w.Get("", "hook", &m)
			m.Webhooks[2].ClientConfig.CABundle = []byte("-----BEGIN CERTIFICATE-----\n")
			w.Put(&m)
		},
		"the Secret is empty": (*world).emptySecret,
		"the key is another's": func(w *world) {
			var s corev1.Secret
			w.Get("dns", "hook", &s)
			g, err := newGeneration("hook.dns.svc", w.time(), testLife)
			if err != nil {
				w.t.Fatal(err)
			}
			s.Data[corev1.TLSPrivateKeyKey] = g.keyPEM
			w.Put(&s)
		},
		"the certificate is another's": func(w *world) {
			g, err := newGeneration("hook.example", w.time(), testLife)
			if err != nil {
				w.t.Fatal(err)
			}
			s := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "dns", Name: "hook"}}
			put(&s, "", g)
			w.Put(&s)
		},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			one, two := w.keeper(), w.keeper()
			w.look(one, two)
			first := one.serving.Load()
			spoil(w)
			w.look(one)
			w.wantTrusted(one, two)
			if !one.serving.Load().same(first) {
				t.Error("another certificate is served before API servers can have noticed")
			}
			w.look(two)
			w.pass(settleTime)
			w.look(one, two)
			w.wantTrusted(one, two)
			if !one.serving.Load().same(two.serving.Load()) {
				t.Error("the replicas serve different certificates")
			}
		})
	}
}

// TestRotatorWithoutPermissions checks that without permissions the rotator is not ready
// and reports what is missing, and that without the API server it keeps its certificate
// until that expires.
func TestRotatorWithoutPermissions(t *testing.T) {
	w := newWorld(t)
	refuse := func(method, path string) {
		w.Misbehave(apitest.Fault{Refuse: func(m, p string) int {
			if m == method && p == path {
				return http.StatusForbidden
			}
			return 0
		}})
	}
	k := w.keeper()
	for _, of := range []struct{ method, path, words string }{
		{"GET", mutatingPath, "told to refuse GET"},
		{"GET", secretPath, "secret dns/hook: told to refuse GET"},
		{"PUT", secretPath, "secret dns/hook: told to refuse PUT"},
		{"PATCH", validatingPath, "validatingwebhookconfigurations hook: told to refuse PATCH"},
		{"GET", namespacePath, "namespace dns: told to refuse GET"},
	} {
		refuse(of.method, of.path)
		if k.tryPass(t.Context()) == nil {
			t.Errorf("%s of %s refused: no error", of.method, of.path)
		}
		wantNotReady(t, k, of.words)
	}
	refuse("", "")
	w.look(k)
	w.wantTrusted(k)
	if _, remarks := k.Ready(); len(remarks) > 0 {
		t.Errorf("remarks %q, want none any more", remarks)
	}

	w.Misbehave(apitest.Fault{Refuse: func(string, string) int { return http.StatusInternalServerError }})
	if k.tryPass(t.Context()) == nil {
		t.Error("no error without an API server")
	}
	if missing, remarks := k.Ready(); len(missing) > 0 || len(remarks) != 1 {
		t.Errorf("without an API server: missing %q, remarks %q, want one remark", missing, remarks)
	}
	w.pass(testLife)
	wantNotReady(t, k, "the certificate has expired")
}

// TestNewRotatorWithInvalidSecret checks that when a new replica finds an invalid Secret
// before the others do, these stay trusted, also by API servers that receive changes
// late, and that unused authorities are removed from the bundle.
func TestNewRotatorWithInvalidSecret(t *testing.T) {
	const step, late = 5 * time.Second, 20 * time.Second
	for claim, spoil := range map[string]func(*world){
		"the Secret is empty": (*world).emptySecret,
		"the newest is spoilt": func(w *world) {
			var s corev1.Secret
			w.Get("dns", "hook", &s)
			s.Data[corev1.TLSCertKey] = []byte("spoilt")
			w.Put(&s)
		},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			one, two := w.keeper(), w.keeper()
			w.look(one, two)
			w.pass(testLife * 3 / 4) // so that there is one before
			w.look(one, two)
			w.pass(settleTime)
			w.look(one, two)
			history := [][][]byte{w.bundles()}
			spoil(w)
			fresh := w.keeper()
			for n := range 40 {
				w.look(fresh)
				if n%2 == 1 { // the others look later
					w.look(one, two)
				}
				history = append(history, w.bundles())
				before := history[max(0, len(history)-1-int(late/step))]
				for i, k := range []*CertificateRotator{one, two} {
					if err := w.check(k, w.bundles()); err != nil {
						t.Fatalf("look %d: keeper %d: %v", n, i, err)
					}
					if err := w.check(k, before); err != nil {
						t.Fatalf("look %d: keeper %d and an API server that is late: %v", n, i, err)
					}
				}
				w.pass(step)
			}
			w.wantTrusted(one, two, fresh)
			if !one.serving.Load().same(fresh.serving.Load()) || !two.serving.Load().same(fresh.serving.Load()) {
				t.Error("the replicas serve different certificates")
			}
			if n := strings.Count(string(w.bundles()[0]), "BEGIN CERTIFICATE"); n > 2 {
				t.Errorf("%d authorities are trusted in the end, want two at most", n)
			}
		})
	}
}

// TestRotatorWithoutSecret checks that a rotator does not create a missing Secret, for
// which it would need permission to create any, but reports it, and that its present
// certificate stays trusted.
func TestRotatorWithoutSecret(t *testing.T) {
	w := newWorld(t)
	k := w.keeper()
	w.look(k)
	w.Delete(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "dns", Name: "hook"}})
	fresh := w.keeper()
	for _, one := range []*CertificateRotator{k, fresh} {
		if one.tryPass(t.Context()) == nil {
			t.Error("no error without a Secret")
		}
	}
	w.wantTrusted(k)
	wantNotReady(t, fresh, "secret dns/hook: it does not exist; install it with the webhook")
	w.emptySecret()
	w.look(fresh, k)
	w.wantTrusted(fresh, k)
}

// TestRotatorWithRejectedWebhookConfiguration checks that if the API server rejects an
// update of a webhook configuration, this is reported and not retried at once.
func TestRotatorWithRejectedWebhookConfiguration(t *testing.T) {
	w := newWorld(t)
	patches := 0
	w.Misbehave(apitest.Fault{Refuse: func(method, _ string) int {
		if method == http.MethodPatch {
			patches++
			return http.StatusUnprocessableEntity
		}
		return 0
	}})
	k := w.keeper()
	if err := k.tryPass(t.Context()); err == nil || errors.Is(err, errChanged) || patches != 1 {
		t.Errorf("after %d patches: %v, want one, and why it is refused", patches, err)
	}
	wantNotReady(t, k, "told to refuse PATCH")
}

// TestRotatorWithoutWebhookConfiguration checks that the rotator is not ready without a
// webhook configuration; one is sufficient.
func TestRotatorWithoutWebhookConfiguration(t *testing.T) {
	w := newWorld(t)
	w.Delete(&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hook"}})
	k := w.keeper()
	w.look(k)
	if missing, _ := k.Ready(); len(missing) > 0 {
		t.Errorf("with one registration: %q", missing)
	}
	w.Delete(&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hook"}})
	if k.tryPass(t.Context()) == nil {
		t.Error("no error without a registration")
	}
	wantNotReady(t, k, "has a webhook for the Service dns/hook")
}

// TestRotatorRun checks that Run repeats its pass until the context is canceled.
func TestRotatorRun(t *testing.T) {
	w := newWorld(t)
	k := NewCertificateRotator(Config{Service: ownService, CertificateLife: 10 * time.Second}, w.api, time.Now, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- k.Run(ctx) }()
	for began := time.Now(); len(w.Writes()) < 6; time.Sleep(10 * time.Millisecond) { // one renewal: the Secret and two registrations
		if time.Since(began) > time.Minute {
			t.Fatalf("writes within a minute: %q", w.Writes())
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want that it was told to", err)
	}
}
