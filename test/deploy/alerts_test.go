package deploy

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// prometheusRule has the fields of monitoring.coreos.com/v1 that a rule has.
type prometheusRule struct {
	APIVersion string `yaml:"apiVersion" json:"apiVersion"`
	Kind       string `yaml:"kind" json:"kind"`
	Metadata   struct {
		Name, Namespace string
		Labels          map[string]string
	} `yaml:"metadata" json:"metadata"`
	Spec map[string]any `yaml:"spec" json:"spec"`
}

var alertsFile = filepath.Join(deployDir, "prometheus", "alerts.yaml")

// wantRule checks that the PrometheusRule of the chart has all alerts, where the values say, and that there is none
// without the value.
func wantRule(t *testing.T, all objects) {
	t.Helper()
	rule := as[prometheusRule](t, all, "PrometheusRule")
	if rule.Metadata.Namespace != "monitoring" || rule.Metadata.Labels["release"] != "prometheus" {
		t.Errorf("PrometheusRule: %+v", rule.Metadata)
	}
	wantAlerts(t, rule.Spec)
	if rendered(t, nil)["PrometheusRule/portolan"] != nil {
		t.Error("a PrometheusRule is rendered where nobody asked for it")
	}
	if readFile(t, filepath.Join(chartDir, "alerts.yaml")) != readFile(t, alertsFile) {
		t.Errorf("the chart has other alerts: cp %s %s", alertsFile, chartDir)
	}
}

// wantAlerts checks that the spec of a PrometheusRule is the file of rules.
func wantAlerts(t *testing.T, spec map[string]any) {
	t.Helper()
	var want map[string]any
	if err := yaml.Unmarshal([]byte(readFile(t, alertsFile)), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("spec of the PrometheusRule (-want +got):\n%s", diff)
	}
}

// TestRuleOfPage runs the command of docs/operate.md that makes a PrometheusRule of the file.
func TestRuleOfPage(t *testing.T) {
	t.Parallel()
	page := readFile(t, "../../docs/operate.md")
	command := regexp.MustCompile("(?s)```sh\n(\\{ cat <<'RULE'.*?) \\| kubectl apply -f -\n```").FindStringSubmatch(page)
	if command == nil {
		t.Fatal("docs/operate.md has no such command")
	}
	shell := exec.CommandContext(t.Context(), "sh", "-c", command[1])
	shell.Dir = "../.."
	out, err := shell.Output()
	if err != nil {
		t.Fatal(err)
	}
	var rule prometheusRule
	if err := yaml.NewDecoder(strings.NewReader(string(out))).Decode(&rule); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if rule.Kind != "PrometheusRule" || rule.APIVersion != "monitoring.coreos.com/v1" {
		t.Errorf("the command makes a %s of %s", rule.Kind, rule.APIVersion)
	}
	wantAlerts(t, rule.Spec)
}
