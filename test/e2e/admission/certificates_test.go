package admission_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portolan.dev/portolan/test/await"
)

// testRenewals: while Pods are created all the time, certificates and their
// authorities are made anew, since the Secret is emptied, and each Pod is changed.
func testRenewals(t *testing.T, w *webhooks) {
	bundles := map[string]bool{w.bundle(): true}
	pods := 0
	pace := time.NewTicker(20 * time.Millisecond) // leaves processor time to the servers
	defer pace.Stop()
	for range 2 {
		before := w.served()
		w.emptySecret()
		for began, renewed := time.Now(), false; !renewed; {
			if time.Since(began) > 2*await.Patience {
				t.Fatalf("%s after the Secret was emptied the certificates are %q, before they were %q", 2*await.Patience, w.served(), before)
			}
			for range 25 {
				if err := w.changed(); err != nil {
					t.Errorf("Pod %d, after %s: %v", pods, time.Since(began), err)
				}
				pods++
				<-pace.C
			}
			bundles[w.bundle()] = true
			renewed = !slices.ContainsFunc(w.served(), func(serial string) bool { return slices.Contains(before, serial) })
		}
	}
	t.Logf("%d Pods were created while there were %d CA bundles", pods, len(bundles))
	if len(bundles) < 3 {
		t.Errorf("%d CA bundles in two renewals, want 3 or more", len(bundles))
	}
	if t.Failed() {
		t.Logf("log of the API server's proxy:\n%s", w.proxy.logged())
	}
}

// emptySecret takes the certificates from the Secret.
func (w *webhooks) emptySecret() {
	w.t.Helper()
	secrets := w.Client().CoreV1().Secrets(hookNamespace)
	s, err := secrets.Get(w.t.Context(), hookName, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	s.Data = nil
	if _, err := secrets.Update(w.t.Context(), s, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// served are the serial numbers of the certificates that replicas serve.
func (w *webhooks) served() (serials []string) {
	w.t.Helper()
	for _, r := range w.replicas {
		if !r.Running() {
			continue
		}
		conn, err := tls.Dial("tcp", r.addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			w.t.Fatal(err)
		}
		serials = append(serials, conn.ConnectionState().PeerCertificates[0].SerialNumber.String())
		conn.Close()
	}
	return serials
}

// bundle is the CA bundle that the API server trusts.
func (w *webhooks) bundle() string {
	w.t.Helper()
	c, err := w.Client().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(w.t.Context(), hookName, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, hook := range c.Webhooks {
		if !bytes.Equal(hook.ClientConfig.CABundle, c.Webhooks[0].ClientConfig.CABundle) {
			w.t.Error("the webhooks' CA bundles differ")
		}
	}
	return string(c.Webhooks[0].ClientConfig.CABundle)
}

// testRepairs: a CA bundle that is emptied is set again, a Secret that is deleted
// and installed again is filled, and Pods are changed all that time, but for when
// the bundle is empty.
func testRepairs(t *testing.T, w *webhooks) {
	ctx := t.Context()
	empty, err := json.Marshal([]map[string]any{{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}})
	if err != nil {
		t.Fatal(err)
	}
	registered := w.Client().AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := registered.Patch(ctx, hookName, types.JSONPatchType, empty, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.try("shop", newPod("probe")); err != nil {
		t.Errorf("a Pod while the CA bundle is empty: %v", err)
	}
	await.NoError(t, func() error {
		c, err := registered.Get(ctx, hookName, metav1.GetOptions{})
		if err == nil && len(c.Webhooks[0].ClientConfig.CABundle) == 0 {
			err = errors.New("the CA bundle is empty")
		}
		return err
	})
	w.awaitChange()
	secrets := w.Client().CoreV1().Secrets(hookNamespace)
	if err := secrets.Delete(ctx, hookName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.changed(); err != nil {
		t.Errorf("without a Secret: %v", err)
	}
	w.install("Secret")
	await.NoError(t, func() error {
		if err := w.changed(); err != nil {
			t.Errorf("after the Secret was deleted: %v", err)
		}
		s, err := secrets.Get(ctx, hookName, metav1.GetOptions{})
		if err == nil && len(s.Data) == 0 {
			err = errors.New("the Secret is empty")
		}
		return err
	})
	w.awaitChange()
}
