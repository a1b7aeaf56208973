package apiobject_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const examplesFile = "../../../../docs/spec-examples.md"

var update = flag.Bool("update", false, "write the scenarios into docs/spec-examples.md")

// TestCoverage checks that a scenario shows each example of docs/spec-examples.md and
// that scenarios cite only these.
func TestCoverage(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(scenarioDir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	citing := make(map[string][]string)
	for _, file := range files {
		for _, id := range readScenario(t, file).cites {
			citing[id] = append(citing[id], strings.TrimSuffix(filepath.Base(file), ".txtar"))
		}
	}
	page, err := os.ReadFile(examplesFile)
	if err != nil {
		t.Fatal(err)
	}
	var written strings.Builder
	var examples []string
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 || strings.Contains(cells[1], " id ") || strings.HasPrefix(cells[1], "---") {
			written.WriteString(line)
			continue
		}
		id := strings.TrimSpace(cells[1])
		examples = append(examples, id)
		if len(citing[id]) == 0 {
			t.Errorf("no scenario shows %s", id)
		}
		cells[3] = " " + strings.Join(citing[id], ", ") + " "
		written.WriteString(strings.Join(cells, "|") + "\n")
	}
	for id, scenarios := range citing {
		if !slices.Contains(examples, id) {
			t.Errorf("%v cites %s, which is not in %s", scenarios, id, examplesFile)
		}
	}
	switch {
	case *update:
		if err := os.WriteFile(examplesFile, []byte(written.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	case written.String() != string(page):
		t.Errorf("%s is out of date; run go test ./internal/kube/simulate/apiobject -run Coverage -update", examplesFile)
	}
}
