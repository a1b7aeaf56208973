// Package report keeps what came of specs in files, and renders them as tables, such as that of
// docs/proxy-e2e.md.
package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"portolan.dev/portolan/test/upstream/suite"
)

// Outcome is what came of a spec on one kind of cluster.
type Outcome struct {
	State suite.State
	// Attempts is how often the spec was run until it passed, or until it was given up.
	Attempts int    `json:",omitempty"`
	Skipped  string `json:",omitempty"` // why
}

// Outcomes are those of all specs on one kind of cluster.
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

// Column has the outcomes of one kind of cluster.
type Column struct {
	Name     string // such as "kube-proxy"
	Outcomes Outcomes
}

// Faults are the specs that failed in a column, or whose states differ, sorted.
func Faults(columns ...Column) []suite.Spec {
	var faults []suite.Spec
	for _, spec := range all(columns) {
		first := columns[0].Outcomes[spec].State
		if slices.ContainsFunc(columns, func(c Column) bool {
			state := c.Outcomes[spec].State
			return state == suite.Failed || state != first
		}) {
			faults = append(faults, spec)
		}
	}
	return faults
}

// all are the specs of the columns, sorted.
func all(columns []Column) []suite.Spec {
	var specs []suite.Spec
	for _, c := range columns {
		specs = slices.AppendSeq(specs, maps.Keys(c.Outcomes))
	}
	slices.Sort(specs)
	return slices.Compact(specs)
}

// Table renders the outcomes as Markdown: how many specs have which result, and a row for each
// spec. Those that were skipped in all columns come last, with the reason of the first.
func Table(columns ...Column) string {
	var text strings.Builder
	text.WriteString("| | passed | failed | skipped |\n|---|---|---|---|\n")
	var names strings.Builder
	for _, c := range columns {
		text.WriteString(count(c))
		names.WriteString(" " + c.Name + " |")
	}
	fmt.Fprintf(&text, "\n| spec |%s\n|---|%s\n", names.String(), strings.Repeat("---|", len(columns)))
	var skipped []suite.Spec
	for _, spec := range all(columns) {
		if !slices.ContainsFunc(columns, func(c Column) bool { return c.Outcomes[spec].State != suite.Skipped }) {
			skipped = append(skipped, spec)
			continue
		}
		fmt.Fprintf(&text, "| %s |", cell(string(spec)))
		for _, c := range columns {
			fmt.Fprintf(&text, " %s |", c.Outcomes[spec])
		}
		text.WriteString("\n")
	}
	if len(skipped) > 0 {
		text.WriteString("\n| skipped spec | reason |\n|---|---|\n")
	}
	for _, spec := range skipped {
		fmt.Fprintf(&text, "| %s | %s |\n", cell(string(spec)), cell(columns[0].Outcomes[spec].Skipped))
	}
	return text.String()
}

func count(c Column) string {
	states := map[suite.State]int{}
	for _, outcome := range c.Outcomes {
		states[outcome.State]++
	}
	return fmt.Sprintf(
		"| %s | %d | %d | %d |\n",
		c.Name,
		states[suite.Passed],
		states[suite.Failed],
		states[suite.Skipped],
	)
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
