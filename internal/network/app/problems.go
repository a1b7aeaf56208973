package app

import (
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"portolan.dev/portolan/internal/network/plan"
)

const (
	// loggedAtOnce is how many Nodes the log names when their problems change at the same time, as with a setting.
	loggedAtOnce = 10
	// remarkedNodes is how many Nodes the readiness names.
	remarkedNodes = 3
)

// problems are what of other Nodes has no effect.
type problems struct {
	log *slog.Logger

	mu     sync.Mutex // guards the field below
	byNode map[string][]plan.Verdict
}

func newProblems(log *slog.Logger) *problems {
	return &problems{log: log, byNode: make(map[string][]plan.Verdict)}
}

// update replaces the problems, and logs those that are new, or others than before.
func (p *problems) update(all iter.Seq2[string, []plan.Verdict]) {
	is := make(map[string][]plan.Verdict)
	for name, verdicts := range all {
		if verdicts = slices.DeleteFunc(slices.Clone(verdicts), isExpected); len(verdicts) > 0 {
			is[name] = verdicts
		}
	}
	p.mu.Lock()
	was := p.byNode
	p.byNode = is
	p.mu.Unlock()
	var changed []string
	for name, verdicts := range is {
		if !slices.Equal(verdicts, was[name]) {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	for _, name := range changed[:min(len(changed), loggedAtOnce)] {
		p.log.Warn("a part of a Node has no effect", "node", name, "problem", textOf(is[name]))
	}
	if more := len(changed) - loggedAtOnce; more > 0 {
		p.log.Warn("a part of further Nodes has no effect", "nodes", more)
	}
}

// isExpected reports whether nothing is wrong: a Node gets its range after it joins, and without tunnels routers may
// know the way to one that is on no link of the host.
func isExpected(v plan.Verdict) bool { return v.Reason == plan.NoRange || v.Reason == plan.OffLink }

// remarks returns the problems for the readiness: those of a few Nodes, and how many others have some.
func (p *problems) remarks() (remarks []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := slices.Sorted(maps.Keys(p.byNode))
	for _, name := range names[:min(len(names), remarkedNodes)] {
		remarks = append(remarks, fmt.Sprintf("Node %s: %s", name, textOf(p.byNode[name])))
	}
	if more := len(names) - remarkedNodes; more > 0 {
		remarks = append(remarks, fmt.Sprintf("a part of %d other Nodes has no effect", more))
	}
	return remarks
}

func textOf(verdicts []plan.Verdict) string {
	texts := make([]string, len(verdicts))
	for i, v := range verdicts {
		texts[i] = v.String()
	}
	return strings.Join(texts, "; ")
}
