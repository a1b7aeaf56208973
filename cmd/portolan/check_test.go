package main

import (
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/kube/apitest"
)

// TestCheckReadsTheAPI checks that findings in a cluster have no file, and that rules
// about forbidden kinds are skipped.
func TestCheckReadsTheAPI(t *testing.T) {
	t.Parallel()
	const (
		selectsNone = "service orders/web: error: spec.selector: it selects no Pod: deployment orders/web has app=web, and the selector has wbe: "
		alias       = "service orders/alias: error: spec.externalName: 192.0.2.7 is an IP address, "
	)
	for claim, test := range map[string]struct {
		fault    apitest.Fault
		want     []string // prefixes of lines of stdout
		unwanted string   // in stdout
		stderr   string
	}{
		"all kinds are readable":    {apitest.Fault{}, []string{alias, selectsNone, "2 errors, 0 warnings, 0 notes"}, ".yaml", ""},
		"Deployments are forbidden": {apitest.Fault{Status: http.StatusForbidden, Resource: "deployments"}, []string{alias, "1 error, "}, "selects no Pod", "portolan: warning: "},
		"Services are forbidden":    {apitest.Fault{Status: http.StatusForbidden, Resource: "services"}, nil, "", "services"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			api := apitest.New(t)
			labels := map[string]string{"app": "web"}
			in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "orders", Name: name} }
			api.Put(
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "orders"}},
				&corev1.Service{ObjectMeta: in("alias"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "192.0.2.7"}},
				&corev1.Service{ObjectMeta: in("web"), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "wbe"}}},
				&appsv1.Deployment{ObjectMeta: in("web"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}}},
			)
			api.Misbehave(test.fault)
			cmd := exec.Command("portolan", "check", "--kubeconfig", api.Kubeconfig(t))
			var stdout, stderr strings.Builder
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			var exit *exec.ExitError
			if err := cmd.Run(); !errors.As(err, &exit) {
				t.Fatalf("%q: %v, want an exit status", cmd.Args, err)
			}
			if want := map[bool]int{true: 1, false: 2}[len(test.want) > 0]; exit.ExitCode() != want {
				t.Errorf("exit status %d, want %d; stderr %s", exit.ExitCode(), want, stderr.String())
			}
			for _, want := range test.want {
				if !strings.Contains("\n"+stdout.String(), "\n"+want) {
					t.Errorf("stdout\n%swant a line that begins %q", stdout.String(), want)
				}
			}
			if test.unwanted != "" && strings.Contains(stdout.String(), test.unwanted) {
				t.Errorf("stdout\n%shas %q", stdout.String(), test.unwanted)
			}
			if !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("stderr %q, want %q", stderr.String(), test.stderr)
			}
		})
	}
}
