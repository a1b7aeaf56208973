package cli

import (
	"net/netip"
	"testing"

	"portolan.dev/portolan/internal/pod/view"
	"portolan.dev/portolan/internal/support/evidence"
)

// TestFailuresOf: views show what is about them.
func TestFailuresOf(t *testing.T) {
	t.Parallel()
	ring := evidence.New(evidence.Config{Size: 10, Mask: evidence.MaskNone})
	s := ring.Source(evidence.SourceConfig{Kind: "drop", Reasons: []evidence.Reason{{Word: "policy"}}}).Sampler(0)
	for subject, pod := range map[string]string{"10.244.1.7:8080/TCP": "shop/web-0", "db.shop.svc.cluster.local.": ""} {
		s.Record(&evidence.Sample{
			Client: netip.MustParseAddr("10.244.1.1"), Pod: pod, Subject: []byte(subject), Weight: 1,
		})
	}
	for claim, test := range map[string]struct {
		of   view.Involved
		want int
	}{
		"nothing":        {view.Involved{}, 0},
		"a Pod":          {view.Involved{Pods: []string{"shop/web-0"}}, 1},
		"another Pod":    {view.Involved{Pods: []string{"shop/web-1"}}, 0},
		"a client":       {view.Involved{Addresses: []string{"10.244.1.1"}}, 2},
		"a destination":  {view.Involved{Addresses: []string{"10.244.1.7"}}, 1},
		"a name":         {view.Involved{Names: []string{"db.shop.svc.cluster.local."}}, 1},
		"a name and all": {view.Involved{Names: []string{"db.shop.svc.cluster.local."}, Pods: []string{"shop/web-0"}}, 2},
	} {
		if got := failuresOf(ring)(test.of); len(got) != test.want {
			t.Errorf("%s: failuresOf(%+v) = %d events, want %d", claim, test.of, len(got), test.want)
		}
	}
	if failuresOf(nil) != nil {
		t.Error("failuresOf(nil) is not nil")
	}
}
