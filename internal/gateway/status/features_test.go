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
	for name, experimental := range map[string]bool{"report.yaml": false, "report-experimental.yaml": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantProved(t, name, Features(experimental))
		})
	}
}

// wantProved compares claimed features with a report.
func wantProved(t *testing.T, report string, claimed []string) {
	t.Helper()
	text, err := os.ReadFile("../../../test/conformance/testdata/" + report)
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		Statistics        struct{ Failed, Passed, Skipped int }
		SupportedFeatures []string
	}
	var recorded struct {
		Profiles []struct {
			Name           string
			Core, Extended outcome
		}
	}
	if err := yaml.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	// What the profiles are for is core of each, and so in no list of the report.
	want := []string{"Gateway", "GRPCRoute", "HTTPRoute", "ReferenceGrant", "TCPRoute", "TLSRoute", "UDPRoute"}
	var names []string
	for _, p := range recorded.Profiles {
		names = append(names, p.Name)
		for name, o := range map[string]outcome{"core": p.Core, "extended": p.Extended} {
			if s := o.Statistics; s.Failed+s.Skipped > 0 || s.Passed == 0 {
				t.Errorf("%s, %s: %+v, want that all passed", p.Name, name, s)
			}
		}
		want = append(want, p.Extended.SupportedFeatures...)
	}
	slices.Sort(names)
	profiles := []string{"GATEWAY-GRPC", "GATEWAY-HTTP", "GATEWAY-TCP", "GATEWAY-TLS", "GATEWAY-UDP"}
	if d := cmp.Diff(profiles, names); d != "" {
		t.Fatalf("profiles: (-want +recorded)\n%s", d)
	}
	slices.Sort(want)
	if d := cmp.Diff(slices.Compact(want), claimed); d != "" {
		t.Errorf("features: (-proved +claimed)\n%s", d)
	}
}
