package inventory_test

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"portolan.dev/portolan/internal/kube/inventory"
)

func pod(name, label string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: name, Labels: map[string]string{"app.kubernetes.io/name": label},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "image:v1", Args: []string{"argument"}, Env: []corev1.EnvVar{{Name: "A", Value: "environment"}},
		}}},
		Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{{Type: "Ready", Status: "True", Message: "message"}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", ImageID: "sha256:1", Ready: true, RestartCount: 2,
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: 137, Reason: "OOMKilled", Message: "message",
				}},
			}},
		},
	}
}

// TestPods checks what is read of Portolan's Pods, and that others are not.
func TestPods(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(pod("portolan-node-x", "portolan-node"), pod("web", "web"))
	r := inventory.Reader{Client: client}
	pods, err := r.Pods(t.Context(), "")
	if err != nil || len(pods) != 1 {
		t.Fatalf("Pods = %v, %v; want one", pods, err)
	}
	var b bytes.Buffer
	if err := inventory.WritePods(&b, pods); err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{`"image:v1"`, `"restarts": 2`, "ended with status 137: OOMKilled", `"Ready": "True"`} {
		if !strings.Contains(b.String(), words) {
			t.Errorf("WritePods lacks %s: %s", words, b.String())
		}
	}
	for _, words := range []string{"argument", "environment", "message"} {
		if strings.Contains(b.String(), words) {
			t.Errorf("WritePods has %s: %s", words, b.String())
		}
	}
	b.Reset()
	const octets = 100
	err = r.Log(t.Context(), &b, inventory.Log{Pod: &pods[0], Container: "main", Lines: 1, Octets: octets})
	if err != nil || b.Len() == 0 {
		t.Errorf("Log = %q, %v", b.String(), err)
	}
}

// TestNodes checks what is read of Nodes.
func TestNodes(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.36.0", KernelVersion: "6.12", OSImage: "Debian"},
			Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "False"}},
		},
	})
	var b bytes.Buffer
	r := inventory.Reader{Client: client}
	if err := r.Nodes(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"node-1 kubelet v1.36.0", "6.12", "Ready=False"} {
		if !strings.Contains(b.String(), words) {
			t.Errorf("Nodes lacks %q: %s", words, b.String())
		}
	}
	b.Reset()
	if err := r.Versions(t.Context(), &b); err != nil || !strings.HasPrefix(b.String(), "Kubernetes v") {
		t.Errorf("Versions = %q, %v", b.String(), err)
	}
}
