package deploy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// optional is a part of the chart that is off unless values enable it.
type optional struct {
	name    string // of its objects
	section string // its values, at the root
	enabled string // values that enable it
}

// test checks that nobody gets the part who has not asked for it, that who has gets the same
// server, and that an upgrade with the values of a chart that did not have the part gives what one
// with this chart's does: without it, enabled, and with other values.
func (o optional) test(t *testing.T, other string) {
	t.Helper()
	without, with := rendered(t, nil), rendered(t, valuesOf(t, o.enabled))
	for key, object := range without {
		if object.name() == o.name {
			t.Errorf("%s is rendered", key)
		}
		if diff := cmp.Diff(object, with[key]); diff != "" {
			t.Errorf("%s without and with %s (-without +with):\n%s", key, o.enabled, diff)
		}
	}
	for _, given := range []string{"{}", o.enabled, other} {
		c := loaded(t)
		delete(c.Values, o.section)
		reused, _, err := renderChart(t, c, "kube-system", valuesOf(t, given), clusterOf("v1.36.0"))
		if err != nil {
			t.Errorf("--reuse-values with %s: %v", given, err)
			continue
		}
		if diff := cmp.Diff(rendered(t, valuesOf(t, given)), reused); diff != "" {
			t.Errorf("with %s (-values of this chart +reused):\n%s", given, diff)
		}
	}
}
