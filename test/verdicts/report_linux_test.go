package verdicts

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// evidence is the page with the table of results.
const evidence = "../../docs/explain-evidence.md"

// The comments of the page that the results are between.
const (
	resultsBegin = "<!-- results, written by make evidence-explain -->\n"
	resultsEnd   = "<!-- end of results -->\n"
)

// report counts what agreed.
type report struct {
	seed, worlds, total, unknown int
	counts                       map[string]map[string]int // by kind of question, and by what was observed
}

// severalOutcomes is what no assertion holds of.
const severalOutcomes = "several, or no response"

// outcomeNames are the columns of the table.
var outcomeNames = []string{
	"resolves", "unresolved", "connects", "refused", "dropped", "backend", "status", "redirect", severalOutcomes,
}

// count counts an assertion on which verdict and packets agree.
func (r *report) count(x *test) {
	kind := x.question.kind
	if r.counts[kind] == nil {
		r.counts[kind] = make(map[string]int)
	}
	r.counts[kind][cmp.Or(string(x.observed.outcome), severalOutcomes)]++
	r.total++
}

// table returns the counts as a table of Markdown.
func (r *report) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s |\n|---|%s\n", strings.Join(outcomeNames, " | "), strings.Repeat("---|", len(outcomeNames)))
	for _, kind := range slices.Sorted(maps.Keys(r.counts)) {
		fmt.Fprintf(&b, "| %s |", kind)
		for _, o := range outcomeNames {
			if n := r.counts[kind][o]; n > 0 {
				fmt.Fprintf(&b, " %d |", n)
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// write writes the results into the page.
func (r *report) write(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(evidence)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(text), resultsBegin)
	_, tail, ends := strings.Cut(rest, resultsEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for the results", evidence)
	}
	results := fmt.Sprintf("Seeds %d to %d: %d assertions, no difference. Of %d more the model says that it does not know.\n\n%s",
		r.seed, r.seed+r.worlds-1, r.total, r.unknown, r.table())
	if err := os.WriteFile(evidence, []byte(head+resultsBegin+results+resultsEnd+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
