package compile

import (
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// TestAppProtocol: what a port speaks is what its Service says (KEP-3726), and HTTP/1.1 if it says nothing that is known.
func TestAppProtocol(t *testing.T) {
	t.Parallel()
	for appProtocol, want := range map[string]struct {
		spoken   bool
		protocol table.Protocol
	}{
		"":                  {true, table.HTTP1},
		"http":              {true, table.HTTP1},
		"example.com/own":   {true, table.HTTP1},
		"kubernetes.io/ws":  {true, table.HTTP1},
		"kubernetes.io/h2c": {true, table.H2C},
		"kubernetes.io/wss": {spoken: false},
		"https":             {spoken: false},
	} {
		s := &cluster.Service{Ports: []cluster.Port{{Number: 80, Protocol: cluster.TCP}}}
		if appProtocol != "" {
			s.Spec = &cluster.ServiceSpec{AppProtocols: []*string{&appProtocol}}
		}
		if got := spoken(s, 0); got != want.spoken {
			t.Errorf("spoken with appProtocol %q = %t, want %t", appProtocol, got, want.spoken)
		}
		if got := newUpstream(s, 0).Protocol; want.spoken && got != want.protocol {
			t.Errorf("protocol with appProtocol %q = %d, want %d", appProtocol, got, want.protocol)
		}
	}
}
