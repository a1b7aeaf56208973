// Package report keeps what came of specs in files, and renders them as the table of
// docs/proxy-e2e.md.
package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"portolan.dev/portolan/test/upstream/suite"
)

// Outcome is what came of a spec with one proxy.
type Outcome struct {
	State suite.State
	// Attempts is how often the spec was run until it passed, or until it was given up.
	Attempts int    `json:",omitempty"`
	Skipped  string `json:",omitempty"` // why
}

// Outcomes are those of all specs with one proxy.
type Outcomes map[suite.Spec]Outcome

// Read reads a file that Write wrote. A file that does not exist has no outcomes.
func Read(file string) (Outcomes, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Outcomes{}, nil
	}
	if err != nil {
		return nil, err
	}
	o := Outcomes{}
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return o, nil
}

// Write writes a file, sorted by the names of the specs.
func (o Outcomes) Write(file string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "\t")
	if err := encoder.Encode(o); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

// Differences are the specs whose states differ, sorted.
func Differences(a, b Outcomes) []suite.Spec {
	var differ []suite.Spec
	for _, spec := range all(a, b) {
		if a[spec].State != b[spec].State {
			differ = append(differ, spec)
		}
	}
	return differ
}

// all are the specs of both, sorted.
func all(a, b Outcomes) []suite.Spec {
	var specs []suite.Spec
	for _, o := range []Outcomes{a, b} {
		for spec := range o {
			specs = append(specs, spec)
		}
	}
	slices.Sort(specs)
	return slices.Compact(specs)
}

// Table renders the outcomes as Markdown: how many specs have which result, and a row for each
// spec. Those that were skipped with both proxies come last, with the reason.
func Table(kubeProxy, portolan Outcomes) string {
	var text strings.Builder
	specs := all(kubeProxy, portolan)
	fmt.Fprintf(&text, "| | passed | failed | skipped |\n|---|---|---|---|\n%s%s\n",
		count("kube-proxy", kubeProxy), count("Portolan", portolan))
	text.WriteString("| spec | kube-proxy | Portolan |\n|---|---|---|\n")
	var skipped []suite.Spec
	for _, spec := range specs {
		a, b := kubeProxy[spec], portolan[spec]
		if a.State == suite.Skipped && b.State == suite.Skipped {
			skipped = append(skipped, spec)
			continue
		}
		fmt.Fprintf(&text, "| %s | %s | %s |\n", cell(string(spec)), a, b)
	}
	if len(skipped) > 0 {
		text.WriteString("\n| skipped spec | reason |\n|---|---|\n")
	}
	for _, spec := range skipped {
		fmt.Fprintf(&text, "| %s | %s |\n", cell(string(spec)), cell(kubeProxy[spec].Skipped))
	}
	return text.String()
}

func count(proxy string, o Outcomes) string {
	states := map[suite.State]int{}
	for _, outcome := range o {
		states[outcome.State]++
	}
	return fmt.Sprintf("| %s | %d | %d | %d |\n", proxy, states[suite.Passed], states[suite.Failed], states[suite.Skipped])
}

// String is the state, with the number of attempts if there were several.
func (o Outcome) String() string {
	state := cmp.Or(string(o.State), "not run")
	if o.State == suite.Passed && o.Attempts > 1 {
		return fmt.Sprintf("%s, attempt %d", state, o.Attempts)
	}
	return state
}

// cell is a text in a table.
func cell(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return strings.NewReplacer("|", "\\|", "<", "&lt;").Replace(strings.TrimPrefix(text, "[sig-network] "))
}

// end is the line of a page behind a table.
const end = "<!-- end of the table -->\n"

// begin is the line of a page before the table that a command writes.
func begin(command string) string { return "<!-- table: " + command + " -->\n" }

// ErrNoTable is the error of Insert for a page without the lines between which a table is.
var ErrNoTable = errors.New("the page has no place for the table")

// Insert returns the page with another table of a command, such as "make conformance-proxy".
func Insert(page, command, table string) (string, error) {
	before, rest, ok := strings.Cut(page, begin(command))
	_, after, found := strings.Cut(rest, end)
	if !ok || !found {
		return "", fmt.Errorf("%w of %s", ErrNoTable, command)
	}
	return before + begin(command) + "\n" + table + "\n" + end + after, nil
}
