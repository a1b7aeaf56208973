package admission_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/test/await"
)

// testSilence: replicas that do not say a word hold up a Pod for the two
// timeoutSeconds, to change it and to check it, and it is created.
func testSilence(t *testing.T, w *webhooks) {
	for _, r := range w.replicas {
		r.Signal(syscall.SIGSTOP)
	}
	const timeout = 2 * time.Second // as registrations.yaml has it
	began := time.Now()
	_, err := w.client.CoreV1().Pods("shop").Create(t.Context(), newPod("unheard"), metav1.CreateOptions{})
	if took := time.Since(began); err != nil || took < timeout || took > 2*timeout+await.Answer/2 {
		t.Errorf("a Pod while the webhook is silent: %v after %s, want it created after %s", err, took, 2*timeout)
	}
	for _, r := range w.replicas {
		r.Signal(syscall.SIGCONT)
	}
	w.awaitChange()
}

// testDeath: while one replica is there Pods are changed; without any they are
// still created.
func testDeath(t *testing.T, w *webhooks) {
	w.replicas[0].kill()
	w.balance()
	w.awaitChange()
	w.replicas[1].kill()
	w.balance()
	for i := range 5 {
		began := time.Now()
		pod, err := w.client.CoreV1().Pods("shop").Create(t.Context(), newPod(fmt.Sprintf("alone-%d", i)), metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("a Pod without a webhook: %v", err)
		}
		if pod.Spec.DNSPolicy != corev1.DNSClusterFirst {
			t.Errorf("a Pod without a webhook has dnsPolicy %s", pod.Spec.DNSPolicy)
		}
		if took := time.Since(began); took > await.Answer {
			t.Errorf("a Pod without a webhook was created after %s", took)
		}
	}
	w.start("")
	w.start("")
	w.awaitChange()
}
