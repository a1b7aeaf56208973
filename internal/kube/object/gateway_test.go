package object_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
)

// TestGatewayAddresses checks that the value of an address is what its type says.
func TestGatewayAddresses(t *testing.T) {
	t.Parallel()
	addr := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for claim, tt := range map[string]struct {
		address string
		want    cluster.External
	}{
		"an address":              {`{"type":"IPAddress","value":"192.0.2.1"}`, cluster.External{Addresses: addr}},
		"an address by default":   {`{"value":"192.0.2.1"}`, cluster.External{Addresses: addr}},
		"a name":                  {`{"type":"Hostname","value":"lb.example"}`, cluster.External{Targets: []string{"lb.example"}}},
		"a name without type":     {`{"value":"lb.example"}`, cluster.External{}},
		"a name for an address":   {`{"type":"IPAddress","value":"lb.example"}`, cluster.External{}},
		"of an implementation":    {`{"type":"example.com/pool","value":"blue"}`, cluster.External{}},
		"named, as its type says": {`{"type":"NamedAddress","value":"blue"}`, cluster.External{}},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			g := new(gatewayv1.Gateway)
			text := `{"metadata":{"name":"web","namespace":"shop"},"status":{"addresses":[` + tt.address + `]}}`
			if err := json.Unmarshal([]byte(text), g); err != nil {
				t.Fatal(err)
			}
			f, errs := object.Gateway(g)
			if diff := cmp.Diff(tt.want, f.External, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || len(errs) > 0 {
				t.Errorf("Gateway(%s): errors %v, External (-want +got):\n%s", text, errs, diff)
			}
		})
	}
}
