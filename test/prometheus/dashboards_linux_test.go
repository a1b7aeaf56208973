package prometheus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/build/dashboard"
	"portolan.dev/portolan/test/await"
)

// events are the panels without data in the world of this test, and why.
var events = map[string]string{
	"policy, Nodes without the plugin": "with the part network, its plugin is the only one",
	"network, Encrypted tunnels":       "WireGuard is not in all kernels; internal/network tests it",
	"network, BGP":                     "there is no router; internal/network/announce tests it",
	"network, Reviews of the webhook":  "the API server sends reviews; TestAlerts has some",
}

// TestDashboards checks that each query of each panel has data, with a server, an agent with all parts, a gateway, the
// webhook and the controllers, all in use, and that so has each metric of public dashboards of CoreDNS and kube-proxy.
func TestDashboards(t *testing.T) {
	m := startMonitor(t)
	w := startWorld(t)
	w.watch(m)
	defer w.traffic()()
	queries := make(map[string]string) // by what they are for
	for _, d := range dashboard.All() {
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				for _, q := range p.Queries {
					queries[inTest(q.PromQL())] = d.Name + ", " + p.Title
				}
			}
		}
	}
	for _, d := range public {
		for _, expr := range d.queries {
			queries[expr] = d.name
		}
	}
	without := m.awaitData(slices.Sorted(maps.Keys(queries)), func(expr string) bool {
		return events[queries[expr]] == ""
	})
	used := make(map[string]bool)
	for _, expr := range without {
		panel := queries[expr]
		if used[panel] = true; events[panel] == "" {
			t.Errorf("%s: no data of %s", panel, expr)
		}
	}
	for panel, why := range events {
		if !used[panel] {
			t.Errorf("%s has data, although events says: %s", panel, why)
		}
	}
}

// inTest puts the values of Grafana's variables into a query.
func inTest(promQL string) string {
	return strings.NewReplacer("$job", ".+", "$instance", ".+", "$__rate_interval", "1m").Replace(promQL)
}

// awaitData waits until queries have a result that is a number, and returns those that have none. It gives those some
// time that are to have one.
func (m *monitor) awaitData(queries []string, expected func(expr string) bool) (without []string) {
	m.t.Helper()
	const while = time.Minute
	_ = await.Within(while, func() error {
		without = nil
		for _, expr := range queries {
			found, err := m.query(expr)
			if err != nil {
				m.t.Fatal(err)
			}
			if len(found) == 0 {
				without = append(without, expr)
			}
		}
		if queries = without; slices.ContainsFunc(without, expected) {
			return fmt.Errorf("%d queries have no data", len(without))
		}
		return nil
	})
	return without
}
