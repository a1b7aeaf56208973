package status

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestFeaturesAreProved checks that the gateway claims what the recorded run of the conformance tests proves, and nothing else.
func TestFeaturesAreProved(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../test/conformance/testdata/report.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		Statistics        struct{ Failed, Passed, Skipped int }
		SupportedFeatures []string
	}
	var report struct {
		Profiles []struct {
			Name           string
			Core, Extended outcome
		}
	}
	if err := yaml.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Profiles) != 1 || report.Profiles[0].Name != "GATEWAY-HTTP" {
		t.Fatalf("profiles %v, want GATEWAY-HTTP", report.Profiles)
	}
	p := report.Profiles[0]
	for name, o := range map[string]outcome{"core": p.Core, "extended": p.Extended} {
		if s := o.Statistics; s.Failed+s.Skipped > 0 || s.Passed == 0 {
			t.Errorf("%s: %+v, want that all passed", name, s)
		}
	}
	want := append([]string{"Gateway", "HTTPRoute", "ReferenceGrant"}, p.Extended.SupportedFeatures...)
	slices.Sort(want)
	if d := cmp.Diff(want, Features()); d != "" {
		t.Errorf("features.txt: (-proved +claimed)\n%s", d)
	}
}
