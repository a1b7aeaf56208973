package scenario_test

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	coverageFile = "../../docs/spec-coverage.md"
	answersFile  = "../../docs/dns-answers.md"
)

var update = flag.Bool("update", false, "write the scenarios into docs/spec-coverage.md")

// TestCoverage verifies that a scenario cites each statement of docs/spec-coverage.md, and
// that each citation is of a statement.
func TestCoverage(t *testing.T) {
	cited := citations(t)
	table, err := os.ReadFile(coverageFile)
	if err != nil {
		t.Fatal(err)
	}
	written, statements := withScenarios(string(table), cited)
	for id := range cited {
		if !slices.Contains(statements, id) {
			t.Errorf("%v cites %s, which is not in %s", cited[id], id, coverageFile)
		}
	}
	for _, id := range statements {
		if len(cited[id]) == 0 {
			t.Errorf("no scenario proves %s", id)
		}
	}
	for _, id := range answerStatements(t) {
		if !slices.Contains(statements, id) {
			t.Errorf("%s has %s, which is not in %s", answersFile, id, coverageFile)
		}
	}
	if *update {
		if err := os.WriteFile(coverageFile, []byte(written), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if written != string(table) {
		t.Errorf("%s is out of date; run go test ./internal/scenario -run Coverage -update", coverageFile)
	}
}

// citations returns the scenarios that cite each statement.
func citations(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(scenarioDir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	cited := make(map[string][]string)
	for _, file := range files {
		for _, id := range parseFile(t, file).Cites {
			cited[id] = append(cited[id], strings.TrimSuffix(filepath.Base(file), ".txtar"))
		}
	}
	return cited
}

// withScenarios fills in the last column of every table row, and lists the
// rows' statements.
func withScenarios(table string, cited map[string][]string) (filled string, statements []string) {
	var b strings.Builder
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 4 {
			b.WriteString(line)
			continue
		}
		id := strings.TrimSpace(cells[1])
		if id == "id" || strings.HasPrefix(id, "---") {
			b.WriteString(line)
			continue
		}
		statements = append(statements, id)
		scenarios := slices.Compact(slices.Sorted(slices.Values(cited[id])))
		cells[len(cells)-2] = " " + strings.Join(scenarios, ", ") + " "
		b.WriteString(strings.Join(cells, "|") + "\n")
	}
	return b.String(), statements
}

var statementID = regexp.MustCompile(`\[([a-z][a-z0-9-]*)\]`)

// answerStatements returns the statements of docs/dns-answers.md. Each row of its table and
// each item of its lists must have one.
func answerStatements(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(answersFile)
	if err != nil {
		t.Fatal(err)
	}
	_, page, ok := strings.Cut(string(data), "## Names and records")
	if !ok {
		t.Fatalf("%s has no section on names and records", answersFile)
	}
	ids := make(map[string]bool)
	for line := range strings.Lines(page) {
		found := statementID.FindAllStringSubmatch(line, -1)
		item := strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| owner")
		if item && len(found) == 0 {
			t.Errorf("%s: no statement named in: %s", answersFile, line)
		}
		for _, m := range found {
			ids[m[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
