package deploy

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"portolan.dev/portolan/build/dashboard"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
)

var metricName = regexp.MustCompile(`\bportolan_[a-z_]+`)

// TestAlerts: each alert says what it means, asks for metrics that exist, and
// has its line in the page for those who get it, and a runbook, to which it leads.
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
		if !strings.Contains(page, "\n| ["+rule.Alert+"](runbooks/"+rule.Alert+".md) |") {
			t.Errorf("operate.md has no line for %s", rule.Alert)
		}
		if want := runbooks + rule.Alert + ".md"; rule.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %q, want %s", rule.Alert, rule.Annotations["runbook_url"], want)
		}
		if !strings.HasPrefix(readFile(t, filepath.Join(runbookDir, rule.Alert+".md")), "# "+rule.Alert+"\n") {
			t.Errorf("the runbook of %s has another title", rule.Alert)
		}
		for _, name := range metricName.FindAllString(rule.Expr, -1) {
			if !slices.Contains(metrics, strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")) {
				t.Errorf("%s asks for %s, which neither operate.md nor gateway.md has", rule.Alert, name)
			}
		}
	}
	index := readFile(t, filepath.Join(runbookDir, "README.md"))
	for name, text := range map[string]string{"operate.md": page, "runbooks/README.md": index} {
		var lines []string
		for _, m := range regexp.MustCompile(`\n\| \[(Portolan\w+)\]`).FindAllStringSubmatch(text, -1) {
			lines = append(lines, m[1])
		}
		if diff := cmp.Diff(alerts, lines); diff != "" {
			t.Errorf("the table of %s (-alerts +lines):\n%s", name, diff)
		}
	}
	files, err := filepath.Glob(filepath.Join(runbookDir, "Portolan*.md"))
	if err != nil || len(files) != len(alerts) {
		t.Errorf("%d runbooks of %d alerts, %v", len(files), len(alerts), err)
	}
}

const (
	runbookDir = "../../docs/runbooks"
	runbooks   = "https://portolan.dev/portolan/docs/runbooks/"
)

// TestMetricsOfDashboards: each metric in a dashboard or a runbook is in the documentation.
func TestMetricsOfDashboards(t *testing.T) {
	t.Parallel()
	var documented strings.Builder
	for _, page := range []string{"operate", "gateway", "policy", "proxy", "network"} {
		documented.WriteString(readFile(t, "../../docs/"+page+".md"))
	}
	known := metricName.FindAllString(documented.String(), -1)
	want := func(where, text string) {
		for _, name := range metricName.FindAllString(text, -1) {
			base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
			if !slices.Contains(known, base) && !slices.Contains(known, name) {
				t.Errorf("%s has the metric %s, which is in no table of the documentation", where, name)
			}
		}
	}
	for _, d := range dashboard.All() {
		text, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		want("dashboard "+d.Name, string(text))
	}
	files, err := filepath.Glob(filepath.Join(runbookDir, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		want(file, readFile(t, file))
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
	runbooks, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for i := range runbooks {
		runbooks[i] = strings.TrimPrefix(runbooks[i], "../../")
	}
	for _, page := range append(runbooks, "docs/operate.md", "docs/from-coredns.md", "docs/webhook.md", "docs/node.md", "docs/network.md", "docs/controller.md", "docs/gateway.md", "deploy/README.md", "deploy/helm/portolan/README.md") {
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
