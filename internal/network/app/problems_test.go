package app

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/plan"
	"portolan.dev/portolan/internal/network/route"
)

// TestProblems checks that the log and the readiness say what of other Nodes has no effect: the log once.
func TestProblems(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := newProblems(slog.New(slog.NewTextHandler(&log, nil)))
	taken := plan.Verdict{Reason: plan.RangeTaken, Range: netip.MustParsePrefix("10.244.2.0/24"), Other: "n1"}
	many := make(map[string][]plan.Verdict)
	for i := range 14 {
		many[fmt.Sprintf("n%02d", i)] = []plan.Verdict{taken}
	}
	for _, step := range []struct {
		claim   string
		all     map[string][]plan.Verdict
		log     []string
		remarks []string
	}{
		{
			"a problem", map[string][]plan.Verdict{"n2": {taken, {Reason: plan.NoAddress}}},
			[]string{`node=n2 problem="podCIDR 10.244.2.0/24 overlaps one of Node n1, which has it; no usable InternalIP"`},
			[]string{"Node n2: podCIDR 10.244.2.0/24 overlaps one of Node n1, which has it; no usable InternalIP"},
		},
		{
			"the same and one that is expected",
			map[string][]plan.Verdict{"n2": {taken, {Reason: plan.NoAddress}}, "n3": {{Reason: plan.NoRange}, {Reason: plan.OffLink}}},
			nil,
			[]string{"Node n2: podCIDR 10.244.2.0/24 overlaps one of Node n1, which has it; no usable InternalIP"},
		},
		{
			"another one", map[string][]plan.Verdict{"n2": {taken}},
			[]string{`node=n2 problem="podCIDR 10.244.2.0/24 overlaps one of Node n1, which has it"`},
			[]string{"Node n2: podCIDR 10.244.2.0/24 overlaps one of Node n1, which has it"},
		},
		{"none", nil, nil, nil},
		{
			"many", many,
			[]string{
				"node=n00 ", "node=n01 ", "node=n02 ", "node=n03 ", "node=n04 ", "node=n05 ", "node=n06 ", "node=n07 ", "node=n08 ",
				"node=n09 ", "nodes=4",
			},
			[]string{
				"Node n00: " + taken.String(), "Node n01: " + taken.String(), "Node n02: " + taken.String(),
				"a part of 11 other Nodes has no effect",
			},
		},
	} {
		log.Reset()
		p.update(maps.All(step.all))
		lines := slices.Collect(strings.Lines(log.String()))
		if !slices.EqualFunc(lines, step.log, strings.Contains) {
			t.Errorf("%s: the log has %q, want %q", step.claim, lines, step.log)
		}
		if got := p.remarks(); !slices.Equal(got, step.remarks) {
			t.Errorf("%s: remarks() = %q, want %q", step.claim, got, step.remarks)
		}
	}
}

// TestProblemsOfCluster checks that the problems of other Nodes follow from the cluster.
func TestProblemsOfCluster(t *testing.T) {
	t.Parallel()
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for i, addr := range []string{"192.0.2.1", "192.0.2.2"} {
			tx.Put(&cluster.Node{
				Name: fmt.Sprintf("n%d", i+1), Created: int64(i + 1), InternalIPs: []netip.Addr{netip.MustParseAddr(addr)},
				PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")},
			})
		}
	})
	w := &worker{
		cfg: &Config{Node: "n1"}, compiler: plan.NewCompiler(plan.Config{Node: "n1"}),
		others: newProblems(slog.New(slog.DiscardHandler)),
	}
	store.View(func(v *cluster.View) { w.compiler.All(v, route.Host{}) })
	w.others.update(w.compiler.Problems())
	want := []string{"Node n2: podCIDR 10.244.1.0/24 overlaps one of Node n1, which has it"}
	if got := w.remarks(); !slices.Equal(got, want) {
		t.Errorf("remarks() = %q, want %q", got, want)
	}
}
