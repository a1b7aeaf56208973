package view

import (
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

func TestOverviewCountsSources(t *testing.T) {
	t.Parallel()
	shop(t, func(m *Model) {
		o := Overview{Sources: []Source{{Kind: "Service"}, {Kind: "Pod"}}}
		m.Overview(&o)
		if n, counted := o.Counts["gateways"]; counted || o.Counts["services"] != 1 {
			t.Errorf("Overview of Services and Pods counts %d Gateways (%t) in %v, want those kinds only", n, counted, o.Counts)
		}
		found := false
		for _, lacking := range o.NotRead {
			found = found || lacking.Kind == cluster.KindGateway.String()
		}
		if !found {
			t.Errorf("Overview of Services and Pods says that it lacks %v, want Gateways, too", o.NotRead)
		}
	})
}

func TestClauseOfIt(t *testing.T) {
	t.Parallel()
	for after, want := range map[string]string{
		"":                                 "",
		", which is terminating":           "it is terminating",
		", whose condition Ready is False": "its condition Ready is False",
	} {
		if got := clauseOfIt(after); got != want {
			t.Errorf("clauseOfIt(%q) = %q, want %q", after, got, want)
		}
	}
}
