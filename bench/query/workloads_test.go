package query

import (
	"math"
	"slices"
	"testing"

	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/internal/dns/dnswire"
)

func smallCluster() *synthetic.Cluster {
	return &synthetic.Cluster{Namespaces: 10, Services: [synthetic.Kinds]int{200, 20, 5, 0, 2}}
}

func TestWorkloadsAreTheSameEachTime(t *testing.T) {
	const n = 1000
	for _, w := range workloads() {
		one, other := w.ask(smallCluster(), n), w.ask(smallCluster(), n)
		if len(one) != n || !slices.Equal(one, other) {
			t.Errorf("%s: two askers ask different queries", w.name)
		}
		for _, q := range one {
			if _, err := q.wire(); err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
		}
	}
}

// TestSharesOfTheMix checks the shares in the comment of lookup and in docs/bench.md,
// in percent.
func TestSharesOfTheMix(t *testing.T) {
	c := smallCluster()
	services, headless := make(map[string]bool), make(map[string]bool)
	for i := range c.Services[synthetic.ClusterIP] {
		services[c.DNSName(synthetic.ClusterIP, i)] = true
	}
	for i := range c.Services[synthetic.Headless] {
		headless[c.DNSName(synthetic.Headless, i)] = true
	}
	const n = 200_000
	got := make(map[string]float64)
	mix := workload{queries: (*asker).lookup}
	for _, q := range mix.ask(c, n) {
		what := "NXDOMAIN"
		switch exists := services[q.name] || headless[q.name]; {
		case q.kind == dnswire.TypeSRV:
			what = "SRV"
		case exists && q.kind == dnswire.TypeAAAA:
			what = "NODATA"
		case headless[q.name]:
			what = "headless"
		case exists:
			what = "service"
		}
		got[what] += 100. / n
	}
	for what, want := range map[string]float64{"NXDOMAIN": 55.3, "NODATA": 22.1, "service": 21.4, "headless": .75, "SRV": .5} {
		const tolerance = .7
		if math.Abs(got[what]-want) > tolerance {
			t.Errorf("%s are %.2f %%, want %.2f %%", what, got[what], want)
		}
	}
}

func TestHitsReachAllServices(t *testing.T) {
	hits := workload{queries: (*asker).hit}
	c := smallCluster()
	if got, want := len(distinct(hits.ask(c, askedInTurn))), c.Services[synthetic.ClusterIP]; got != want {
		t.Errorf("%d names are asked for, want %d", got, want)
	}
}
