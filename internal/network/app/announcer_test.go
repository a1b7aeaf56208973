package app

import (
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

// TestNoServiceProxy: readiness says that announced addresses need a service proxy, unless the agent is one.
func TestNoServiceProxy(t *testing.T) {
	t.Parallel()
	for claim, c := range map[string]struct {
		served *Served
		want   bool
	}{
		"with the part proxy": {NewServed(), false},
		"without it":          {nil, true},
	} {
		a := NewAnnouncer(AnnouncerConfig{Node: "a", Store: cluster.NewStore(), Served: c.served})
		missing, remarks := a.Ready()
		said := slices.ContainsFunc(remarks, func(r string) bool { return strings.Contains(r, "another service proxy") })
		if len(missing) > 0 || said != c.want {
			t.Errorf("%s: Ready() = %q, %q", claim, missing, remarks)
		}
	}
}
