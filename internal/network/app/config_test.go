package app

import (
	"testing"

	"portolan.dev/portolan/internal/network/plan"
	"portolan.dev/portolan/internal/network/settings"
)

// TestTunnelPort checks that packets to the port of VXLAN are only dropped where the node may have its device.
func TestTunnelPort(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		change func(*settings.Network)
		want   uint16
	}{
		"by default":       {func(*settings.Network) {}, 4789},
		"always a tunnel":  {func(n *settings.Network) { n.Encapsulation = string(plan.Always) }, 4789},
		"never a tunnel":   {func(n *settings.Network) { n.Encapsulation = string(plan.Never) }, 0},
		"all is encrypted": {func(n *settings.Network) { n.Encryption = string(plan.WireGuard) }, 0},
		"some are encrypted": {func(n *settings.Network) {
			n.Encryption, n.WireGuard.NodesWithoutKey = string(plan.WireGuard), string(plan.Unencrypted)
		}, 4789},
	} {
		section := settings.Default()
		test.change(&section)
		made, err := section.Compile()
		if err != nil {
			t.Fatalf("%s: Compile: %v", claim, err)
		}
		if got := tableConfig("n1", &made).TunnelPort; got != test.want {
			t.Errorf("%s: the table has TunnelPort %d, want %d", claim, got, test.want)
		}
	}
}
