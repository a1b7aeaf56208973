package rolling

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"portolan.dev/portolan/test/upstream/traffic"
)

// slice is an EndpointSlice with Pods and whether they are ready.
func slice(pods map[string]bool) *discoveryv1.EndpointSlice {
	s := new(discoveryv1.EndpointSlice)
	for name, ready := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			TargetRef: &corev1.ObjectReference{Name: name}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return s
}

func TestLate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := &withdrawals{times: map[string]time.Time{}}
	w.note(ready(slice(map[string]bool{"a": true, "b": true, "c": true, "d": false})),
		ready(slice(map[string]bool{"a": true, "b": false, "d": false})), now)
	w.note(map[string]bool{"b": true}, map[string]bool{}, now.Add(time.Hour)) // another slice follows
	second := []time.Time{now.Add(-time.Second), now.Add(time.Second)}
	late := w.late(map[string][]time.Time{"a": second, "b": second, "c": second, "d": second, "e": second})
	if want := []time.Duration{time.Second, time.Second}; !slices.Equal(late, want) {
		t.Errorf("late connections %v, want one of b, which terminates, and one of c, which is gone: %v", late, want)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	got := Table([]Row{
		{"kube-proxy", 0, &Result{
			Took:     61 * time.Second,
			Internal: traffic.Figures{New: traffic.Count{Opened: 10, Failed: 1}, Lasting: traffic.Count{Opened: 3, Failed: 2}, Repeated: 4},
			External: traffic.Figures{New: traffic.Count{Opened: 20, Failed: 5}, Lasting: traffic.Count{Opened: 2, Ended: 1}, Repeated: 6},
			Late:     []time.Duration{time.Millisecond, 20 * time.Millisecond},
		}},
		{"Portolan", 10 * time.Second, &Result{}},
	})
	want := `| Pods serve on for | proxy | failed: cluster IP | node port | lasting | ended by a Pod | sent again | late | rollout |
|---|---|---|---|---|---|---|---|---|
| 0 s | kube-proxy | 1 of 10 | 5 of 20 | 2 of 5 | 1 | 10 | 2, up to 20 ms | 61 s |
| 10 s | Portolan | 0 of 0 | 0 of 0 | 0 of 0 | 0 | 0 | 0 | 0 s |
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Table (-want +got):\n%s", diff)
	}
}
