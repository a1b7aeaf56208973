package deploy

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
)

var metricName = regexp.MustCompile(`\bportolan_[a-z_]+`)

// TestAlerts: each alert says what it means, asks for metrics that exist, and
// has its line in the page for those who get it.
func TestAlerts(t *testing.T) {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(readFile(t, filepath.Join(deployDir, "prometheus", "alerts.yaml"))), &file); err != nil {
		t.Fatal(err)
	}
	page := readFile(t, "../../docs/operate.md")
	metrics := append(documentedMetrics(t, page), documentedGatewayMetrics(t)...)
	var alerts []string
	for _, rule := range file.Groups[0].Rules {
		alerts = append(alerts, rule.Alert)
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" {
			t.Errorf("%s has no severity or no summary", rule.Alert)
		}
		if !strings.Contains(page, "\n| "+rule.Alert+" |") {
			t.Errorf("operate.md has no line for %s", rule.Alert)
		}
		for _, name := range metricName.FindAllString(rule.Expr, -1) {
			if !slices.Contains(metrics, strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")) {
				t.Errorf("%s asks for %s, which neither operate.md nor gateway.md has", rule.Alert, name)
			}
		}
	}
	for _, m := range regexp.MustCompile(`\n\| (Portolan\w+) \|`).FindAllStringSubmatch(page, -1) {
		if !slices.Contains(alerts, m[1]) {
			t.Errorf("operate.md has a line for %s, which is no alert", m[1])
		}
	}
}

// TestAlertReasons: an alert that names reasons of the gateway's own responses names such that there are.
func TestAlertReasons(t *testing.T) {
	m := regexp.MustCompile(`portolan_gateway_own_responses_total\{reason=~"([^"]+)"`).
		FindStringSubmatch(readFile(t, filepath.Join(deployDir, "prometheus", "alerts.yaml")))
	if m == nil {
		t.Fatal("no alert names reasons")
	}
	for reason := range strings.SplitSeq(m[1], "|") {
		if !proxy.Known(table.Reason(reason)) {
			t.Errorf("%q is no reason of the gateway", reason)
		}
	}
}

// documentedMetrics are those of the tables of metrics in a page or in a section of one.
func documentedMetrics(t *testing.T, text string) (names []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("\n\\| `(portolan_[a-z_]+)` \\|").FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	if len(names) < 10 {
		t.Fatalf("documented metrics: %v", names)
	}
	return names
}

// documentedGatewayMetrics are those of the table in gateway.md, whose cells may have several, with labels.
func documentedGatewayMetrics(t *testing.T) (names []string) {
	t.Helper()
	page := readFile(t, "../../docs/gateway.md")
	for _, cell := range regexp.MustCompile("(?m)^\\| (`portolan_gateway_.*?) \\|").FindAllStringSubmatch(page, -1) {
		names = append(names, metricName.FindAllString(cell[1], -1)...)
	}
	if len(names) < 10 {
		t.Fatalf("documented metrics: %v", names)
	}
	return names
}

// serverMetrics is the section of operate.md on the metrics of `portolan serve`.
func serverMetrics(page string) string {
	_, section, _ := strings.Cut(page, "\n## Metrics\n")
	section, _, _ = strings.Cut(section, "\n### ")
	return section
}

// TestLinks: the pages link to files that are there, save those that others
// of the documentation are still to bring.
func TestLinks(t *testing.T) {
	for _, page := range []string{"docs/operate.md", "docs/from-coredns.md", "docs/webhook.md", "docs/node.md", "docs/network.md", "docs/controller.md", "docs/gateway.md", "deploy/README.md", "deploy/helm/portolan/README.md"} {
		file := filepath.Join("../..", page)
		for _, m := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(readFile(t, file), -1) {
			if strings.HasPrefix(m[1], "https://") || m[1] == "bench.md" {
				continue
			}
			if found, _ := filepath.Glob(filepath.Join(filepath.Dir(file), m[1])); len(found) == 0 {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			}
		}
	}
}
