package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"portolan.dev/portolan/test/await"
)

// runPortolan runs a command to its end; its status may be 1.
func runPortolan(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	file, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), file, args...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	// The race detector would have it wait for a second before it ends, in case
	// goroutines go on.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	const usage = 2
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() == usage) {
		t.Fatalf("portolan %s: %v\n%s", strings.Join(args, " "), err, &problems)
	}
	return out.String(), problems.String()
}

// TestExplainCluster: explain and resolvconf read a real cluster, with what
// makes Pods and what they may do; and say what they may not read.
func TestExplainCluster(t *testing.T) {
	a := newCluster(t)
	meta := metav1.ObjectMeta{Namespace: "there", Name: "jailed"}
	labels := map[string]string{"app": "jailed"}
	_, err := a.Client().AppsV1().Deployments("there").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Client().NetworkingV1().NetworkPolicies("there").Create(t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: meta,
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: labels}, PolicyTypes: []networkingv1.PolicyType{"Egress"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(
			a.Client().AppsV1().Deployments("there").Delete(ctx, meta.Name, metav1.DeleteOptions{}),
			a.Client().NetworkingV1().NetworkPolicies("there").Delete(ctx, meta.Name, metav1.DeleteOptions{}),
		); err != nil {
			t.Error(err)
		}
	})
	rules := append(rulesBut(), mayRead("Node"),
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments", "statefulsets", "daemonsets"}, Verbs: []string{"list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{"batch"}, Resources: []string{"jobs", "cronjobs"}, Verbs: []string{"list", "watch"}})
	user, err := a.NewUser(t.Context(), "explainer", rules...)
	if err != nil {
		t.Fatal(err)
	}
	explain := []string{"explain", "web", "--from", "there/deployment/jailed", "--cluster-dns", "10.96.0.10", "-o", "json", "--kubeconfig", user.Kubeconfig}

	// All but NetworkPolicies may be read.
	stdout, stderr := runPortolan(t, explain...)
	if e := explanation(t, stdout); e.Outcome != "found" || len(e.Diagnoses) != 1 || e.Diagnoses[0].Rule != "service-no-endpoints" {
		t.Errorf("without policies: %s, want found, and that nobody is behind it", stdout)
	}
	if want := `resources: [networkpolicies], verbs: [list, watch]}; what depends on it is unknown`; !strings.Contains(stderr, want) {
		t.Errorf("without policies: standard error %q, want %q", stderr, want)
	}

	// Not even Pods may be.
	few, err := a.NewUser(t.Context(), "few", rulesBut("Pod")...)
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr = runPortolan(t, "check", "--kubeconfig", few.Kubeconfig, "--cluster-dns", "10.96.0.10")
	if !strings.Contains(stderr, "resources: [pods]") || !strings.Contains(stdout, "service-no-endpoints") {
		t.Errorf("check without Pods: %q, %q; want what can be found without them", stdout, stderr)
	}

	rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies", "ingresses"}, Verbs: []string{"list", "watch"}})
	if err := a.Allow(t.Context(), user, rules...); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, func() error {
		stdout, stderr = runPortolan(t, explain...)
		if stderr != "" {
			return errors.New(stderr)
		}
		return nil
	})
	if e := explanation(t, stdout); e.Outcome != "blocked" || len(e.Diagnoses) == 0 || e.Diagnoses[0].Rule != "network-policy-blocks-dns" {
		t.Errorf("with policies: %s, want that the policy blocks it", stdout)
	}

	stdout, _ = runPortolan(t, "resolvconf", "there/jailed", "--cluster-dns", "10.96.0.10", "--kubeconfig", user.Kubeconfig)
	const want = "nameserver 10.96.0.10\nsearch there.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
	if stdout != want {
		t.Errorf("resolvconf: %q, want %q", stdout, want)
	}
}

// explained is what of the only layer of a lookup matters here.
type explained struct {
	Outcome   string
	Diagnoses []struct{ Rule string }
}

func explanation(t *testing.T, text string) explained {
	t.Helper()
	var all struct {
		Outcome string
		Layers  []explained
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all.Layers) != 1 {
		t.Fatalf("%v, %d layers: %s", err, len(all.Layers), text)
	}
	all.Layers[0].Outcome = all.Outcome
	return all.Layers[0]
}
