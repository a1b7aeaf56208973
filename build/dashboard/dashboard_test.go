package dashboard

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write deploy/grafana and the copies in the chart")

// The directories with the files: the chart can only read files that are in it.
var directories = []string{"../../deploy/grafana", "../../deploy/helm/portolan/dashboards"}

// TestFiles checks that the files are what the tables make, and that there are no others.
func TestFiles(t *testing.T) {
	for _, dir := range directories {
		var names []string
		for _, d := range All() {
			want, err := d.JSON()
			if err != nil {
				t.Fatal(err)
			}
			name := "portolan-" + d.Name + ".json"
			names = append(names, name)
			wantFile(t, filepath.Join(dir, name), want)
		}
		found, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			if !slices.Contains(names, filepath.Base(file)) {
				t.Errorf("%s is no dashboard of the tables: delete it", file)
			}
		}
	}
}

func wantFile(t *testing.T, file string, want []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the tables make (%v): run go test ./build/dashboard -update", file, err)
	}
}

// TestModel checks what Grafana needs to import a dashboard: identifiers that are unique and stable, no data source of
// one Grafana, panels that do not overlap, and thresholds in rising order.
func TestModel(t *testing.T) {
	uids := make(map[string]bool)
	for _, d := range All() {
		t.Run(d.Name, func(t *testing.T) {
			text, err := d.JSON()
			if err != nil {
				t.Fatal(err)
			}
			var m model
			if err := json.Unmarshal(text, &m); err != nil {
				t.Fatal(err)
			}
			if uids[m.UID] || m.UID == "" || len(m.UID) > 40 {
				t.Errorf("uid %q: want one of at most 40 characters that no other dashboard has", m.UID)
			}
			uids[m.UID] = true
			if bytes.Contains(text, []byte(`"id": null`)) || regexp.MustCompile(`"uid": "[A-Za-z0-9]{9,}"`).Match(text) {
				t.Error("the dashboard has identifiers of one Grafana")
			}
			m.checkPanels(t)
		})
	}
}

// model is what the test reads of a dashboard.
type model struct {
	UID    string
	Panels []struct {
		ID          int
		Type, Title string
		Description string
		GridPos     struct{ X, Y, W, H int }
		FieldConfig struct {
			Defaults struct {
				Thresholds struct{ Steps []struct{ Value *float64 } }
			}
		}
		Targets    []struct{ RefID, Expr string }
		Datasource struct{ UID string }
	}
}

func (m *model) checkPanels(t *testing.T) {
	t.Helper()
	cells, ids := make(map[[2]int]string), make(map[int]bool)
	for _, p := range m.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %d %q: the number or the title is missing or not unique", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= columns {
					t.Fatalf("panel %q is on %q or outside the grid, at %d, %d", p.Title, other, x, y)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if !strings.HasSuffix(p.Description, ".") || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("panel %q: no sentence of description, no variable data source, or no query", p.Title)
		}
		steps := p.FieldConfig.Defaults.Thresholds.Steps
		if len(steps) == 0 || steps[0].Value != nil {
			t.Errorf("panel %q: the first threshold has a value", p.Title)
		}
		for i := 2; i < len(steps); i++ {
			if *steps[i].Value <= *steps[i-1].Value {
				t.Errorf("panel %q: thresholds do not rise", p.Title)
			}
		}
	}
}

// TestPromQL checks that each metric of an expression gets selectors of job and instance.
func TestPromQL(t *testing.T) {
	const selector = `{job=~"$job", instance=~"$instance"`
	for expr, want := range map[string]string{
		"count(portolan_build_info)":                   "count(portolan_build_info" + selector + "})",
		`portolan_dns_requests_total{rcode="REFUSED"}`: "portolan_dns_requests_total" + selector + `, rcode="REFUSED"}`,
		"go_threads / go_goroutines":                   "go_threads" + selector + "} / go_goroutines" + selector + "}",
	} {
		if got := (Query{Expr: expr}).PromQL(); got != want {
			t.Errorf("PromQL() of %s = %s, want %s", expr, got, want)
		}
	}
}
