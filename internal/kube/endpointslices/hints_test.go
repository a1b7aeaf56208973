package endpointslices_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
)

// hints are those of web's endpoints that are ready, counted by zones and Nodes.
func (m *model) hints() map[string]int {
	counts := make(map[string]int)
	for _, s := range m.Slices(webKey) {
		for _, e := range s.Endpoints {
			switch {
			case !*e.Conditions.Ready:
			case e.Hints == nil:
				counts["none"]++
			default:
				counts[fmt.Sprintf("zones %v nodes %v", e.Hints.ForZones, e.Hints.ForNodes)]++
			}
		}
	}
	return counts
}

// putNodes puts a Node into each zone, with so many processors; it is called as
// its zone.
func putNodes(tx *cluster.Tx, zones map[string]int64) {
	for zone, cpus := range zones {
		tx.Put(&cluster.Node{Name: zone, Zone: zone, Ready: true, MilliCPU: cpus * 1000})
	}
}

// putIn puts so many Pods into each zone.
func putIn(tx *cluster.Tx, zones map[string]int) {
	i := 0
	for zone, n := range zones {
		for range n {
			i++
			tx.Put(pod(i, func(p *cluster.Pod) { p.Node = zone }))
		}
	}
}

// TestTrafficDistribution checks the page Service, "Traffic distribution".
func TestTrafficDistribution(t *testing.T) {
	for distribution, want := range map[string]map[string]int{
		"":               {"none": 3},
		"PreferClose":    {"zones [{a}] nodes []": 2, "zones [{b}] nodes []": 1},
		"PreferSameZone": {"zones [{a}] nodes []": 2, "zones [{b}] nodes []": 1},
		"PreferSameNode": {"zones [{a}] nodes [{a}]": 2, "zones [{b}] nodes [{b}]": 1},
		"Elsewhere":      {"none": 3},
	} {
		distributed := web(func(s *cluster.Service) { s.Spec.TrafficDistribution = distribution })
		m := newModel(t, func(tx *cluster.Tx) {
			tx.Put(distributed)
			putNodes(tx, map[string]int64{"a": 1, "b": 1})
			putIn(tx, map[string]int{"a": 2, "b": 1})
		})
		if diff := cmp.Diff(want, m.hints()); diff != "" {
			t.Errorf("trafficDistribution %q: hints (-want +got):\n%s", distribution, diff)
		}
	}
}

// TestTopologyMode checks the page Topology Aware Routing, with its safeguards.
func TestTopologyMode(t *testing.T) {
	for claim, tt := range map[string]struct {
		mode string
		cpus map[string]int64
		pods map[string]int
		also func(tx *cluster.Tx)
		want map[string]int
	}{
		"endpoints are allotted by processors": {"Auto", map[string]int64{"a": 2, "b": 2}, map[string]int{"a": 4, "b": 4}, nil,
			map[string]int{"zones [{a}] nodes []": 4, "zones [{b}] nodes []": 4}},
		"a zone with more Pods gives to one with fewer": {"auto", map[string]int64{"a": 2, "b": 2}, map[string]int{"a": 8, "b": 2}, nil,
			map[string]int{"zones [{a}] nodes []": 5, "zones [{b}] nodes []": 5}},
		"without the mode there are none": {"Disabled", map[string]int64{"a": 2, "b": 2}, map[string]int{"a": 4, "b": 4}, nil, map[string]int{"none": 8}},
		"too few endpoints: none":         {"Auto", map[string]int64{"a": 2, "b": 2, "c": 2}, map[string]int{"a": 1, "b": 1}, nil, map[string]int{"none": 2}},
		"one zone: none":                  {"Auto", map[string]int64{"a": 2}, map[string]int{"a": 4}, nil, map[string]int{"none": 4}},
		"a Node without a zone: none": {"Auto", map[string]int64{"a": 2, "b": 2}, map[string]int{"a": 4, "b": 4},
			func(tx *cluster.Tx) { tx.Put(&cluster.Node{Name: "x", Ready: true, MilliCPU: 1000}) }, map[string]int{"none": 8}},
		"a Node that does not tell its processors: none": {"Auto", map[string]int64{"a": 2, "b": 2}, map[string]int{"a": 4, "b": 4},
			func(tx *cluster.Tx) { tx.Put(&cluster.Node{Name: "x", Zone: "a", Ready: true}) }, map[string]int{"none": 8}},
		"a Node of the control plane does not count": {"Auto", map[string]int64{"a": 2, "b": 2}, map[string]int{"a": 4, "b": 4},
			func(tx *cluster.Tx) { tx.Put(&cluster.Node{Name: "x", Ready: true, ControlPlane: true}) },
			map[string]int{"zones [{a}] nodes []": 4, "zones [{b}] nodes []": 4}},
		"zones that can't have their share: none": {"Auto", map[string]int64{"a": 1, "b": 9}, map[string]int{"a": 1, "b": 1}, nil, map[string]int{"none": 2}},
	} {
		t.Run(claim, func(t *testing.T) {
			m := newModel(t, func(tx *cluster.Tx) {
				tx.Put(web(func(s *cluster.Service) { s.Spec.TopologyMode = tt.mode }))
				putNodes(tx, tt.cpus)
				putIn(tx, tt.pods)
				if tt.also != nil {
					tt.also(tx)
				}
			})
			if diff := cmp.Diff(tt.want, m.hints()); diff != "" {
				t.Errorf("topology-mode %q: hints (-want +got):\n%s", tt.mode, diff)
			}
		})
	}
}

// TestHintsFollowNodes checks that hints are added and removed with changes of Nodes,
// without changes of Pods and Services.
func TestHintsFollowNodes(t *testing.T) {
	m := newModel(t, func(tx *cluster.Tx) {
		tx.Put(web(func(s *cluster.Service) { s.Spec.TopologyMode = "Auto" }))
		putNodes(tx, map[string]int64{"a": 2, "b": 2})
		putIn(tx, map[string]int{"a": 4, "b": 4})
	})
	allotted := map[string]int{"zones [{a}] nodes []": 4, "zones [{b}] nodes []": 4}
	check := func(claim string, want map[string]int) {
		t.Helper()
		if diff := cmp.Diff(want, m.hints()); diff != "" {
			t.Errorf("%s: hints (-want +got):\n%s", claim, diff)
		}
	}
	check("two zones", allotted)
	m.update(func(tx *cluster.Tx) { tx.Put(&cluster.Node{Name: "b", Zone: "b", MilliCPU: 2000}) })
	check("the Node of one is not ready", map[string]int{"none": 8})
	m.update(func(tx *cluster.Tx) { putNodes(tx, map[string]int64{"b": 2}) })
	check("it is again", allotted)
	m.update(func(tx *cluster.Tx) { tx.Put(web()) })
	check("the mode is taken away", map[string]int{"none": 8})
	if sizes := m.sizes(); !slices.Equal(sizes, []int{8}) {
		t.Errorf("sizes of slices %v, want [8]", sizes)
	}
}
