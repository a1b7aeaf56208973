package admission_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"portolan.dev/portolan/test/await"
)

// newPod is a Pod of a container, and nothing else.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
}

// try gives what would become of a Pod; it is not kept.
func (w *webhooks) try(namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	return w.client.CoreV1().Pods(namespace).Create(w.t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// changed reports whether a Pod of the Namespace shop would be changed.
func (w *webhooks) changed() error {
	pod, err := w.try("shop", newPod("probe"))
	if err != nil {
		return err
	}
	if pod.Spec.DNSPolicy != corev1.DNSNone {
		return fmt.Errorf("dnsPolicy is %s, want None; the webhook said %q", pod.Spec.DNSPolicy, w.warned.take())
	}
	return nil
}

func (w *webhooks) awaitChange() {
	w.t.Helper()
	await.NoError(w.t, w.changed)
}

// dnsOf is a Pod's DNS in one line.
func dnsOf(s *corev1.PodSpec) string {
	var text strings.Builder
	text.WriteString(string(s.DNSPolicy))
	if c := s.DNSConfig; c != nil {
		fmt.Fprint(&text, " ", c.Nameservers, c.Searches)
		for _, o := range c.Options {
			text.WriteString(" " + o.Name)
			if o.Value != nil {
				text.WriteString(":" + *o.Value)
			}
		}
	}
	return text.String()
}

const changedDNS = "None [10.96.0.10] [search.%s.cluster.local.ap.k8s.io] ndots:5"

// testMutatedPods: which Pods are changed, and to what.
func testMutatedPods(t *testing.T, w *webhooks) {
	for claim, tt := range map[string]struct {
		namespace string
		edit      func(*corev1.Pod)
		want      string
		warning   string
	}{
		"in a Namespace with the label": {"shop", func(*corev1.Pod) {}, fmt.Sprintf(changedDNS, "shop"), ""},
		"in one without":                {"plain", func(*corev1.Pod) {}, "ClusterFirst", ""},
		"with the annotation":           {"plain", annotated(autopath), fmt.Sprintf(changedDNS, "plain"), ""},
		"with a small c":                {"plain", annotated("clusterFirstWithAutopath"), fmt.Sprintf(changedDNS, "plain"), ""},
		"that is off":                   {"shop", annotated("off"), "ClusterFirst", ""},
		"with a typo":                   {"plain", annotated("Autopath"), "ClusterFirst", `"Autopath" is not ClusterFirstWithAutopath or off`},
		"with the KEP's policy":         {"plain", func(p *corev1.Pod) { p.Spec.DNSPolicy = "clusterFirstWithAutopath" }, fmt.Sprintf(changedDNS, "plain"), ""},
		"with Default":                  {"shop", func(p *corev1.Pod) { p.Spec.DNSPolicy = corev1.DNSDefault }, "Default", ""},
		"in the node's network":         {"shop", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "ClusterFirst", "pod-host-network-policy: "},
		"of the cluster itself":         {hookNamespace, annotated(autopath), "ClusterFirst", ""},
		"with a DNS of its own": {"shop", func(p *corev1.Pod) {
			p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}}}
		}, "None [10.96.0.10 192.0.2.1] [search.shop.cluster.local.ap.k8s.io] ndots:2", ""},
	} {
		pod := newPod("p")
		tt.edit(pod)
		w.warned.take()
		made, err := w.try(tt.namespace, pod)
		if err != nil {
			t.Errorf("%s: %v", claim, err)
			continue
		}
		said := w.warned.take()
		if got := dnsOf(&made.Spec); got != tt.want {
			t.Errorf("a Pod %s: DNS is %s, want %s; warnings %q", claim, got, tt.want, said)
		}
		if tt.warning == "" && len(said) > 0 || tt.warning != "" && !strings.Contains(strings.Join(said, "\n"), tt.warning) {
			t.Errorf("a Pod %s: warnings %q, want %q", claim, said, tt.warning)
		}
	}
	settings := fmt.Appendf(nil, `{"metadata": {"annotations": {"portolan.dev/ndots": "1", "portolan.dev/nameservers": "169.254.20.10,fd00::10"}}}`)
	if _, err := w.client.CoreV1().Namespaces().Patch(t.Context(), "plain", types.MergePatchType, settings, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := newPod("p")
	annotated(autopath)(pod)
	await.NoError(t, func() error { // a Namespace is kept for a few seconds
		made, err := w.try("plain", pod)
		if err != nil {
			return err
		}
		if got, want := dnsOf(&made.Spec), "None [169.254.20.10 fd00::10] [search.plain.cluster.local.ap.k8s.io] ndots:1"; got != want {
			return fmt.Errorf("with annotations of the Namespace: %s, want %s", got, want)
		}
		return nil
	})
}

func annotated(policy string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{policyKey: policy} }
}

// testWebhookPage: the Pod that docs/webhook.md shows becomes what it shows.
func testWebhookPage(t *testing.T, w *webhooks) {
	page, err := os.ReadFile(hookPage)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n((?:apiVersion|spec):.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of YAML in webhook.md, want a Pod before and after", len(blocks))
	}
	var before, after corev1.Pod
	for i, into := range []*corev1.Pod{&before, &after} {
		if err := yaml.UnmarshalStrict(blocks[i][1], into); err != nil {
			t.Fatal(err)
		}
	}
	made, err := w.try(before.Namespace, &before)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := dnsOf(&made.Spec), dnsOf(&after.Spec); got != want {
		t.Errorf("the Pod of webhook.md has %s, want %s", got, want)
	}
}

// testMutatedDeployment: the Pods that controllers make of a template come to be
// as the template's annotation wants.
func testMutatedDeployment(t *testing.T, w *webhooks) {
	ctx := t.Context()
	labels := map[string]string{"app": "web"}
	pod := newPod("")
	annotated(autopath)(pod)
	pod.Labels = labels
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec},
		},
	}
	if _, err := w.client.AppsV1().Deployments("shop").Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, func() error {
		list, err := w.client.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("%d Pods, want 1", len(list.Items))
		}
		if got, want := dnsOf(&list.Items[0].Spec), fmt.Sprintf(changedDNS, "shop"); got != want {
			return fmt.Errorf("DNS of the Deployment's Pod is %s, want %s", got, want)
		}
		return nil
	})
}
