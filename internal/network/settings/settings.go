// Package settings declares the section of the configuration file for the network of Pods: its keys, its defaults and
// what it compiles to.
package settings

import (
	"net/netip"
	"path/filepath"
	"slices"

	"portolan.dev/portolan/internal/config/key"
	announce "portolan.dev/portolan/internal/network/announce/settings"
	"portolan.dev/portolan/internal/network/nft"
	"portolan.dev/portolan/internal/network/plan"
)

// ConfName is the name of the file of the network configuration. Container runtimes load the first file by name.
const ConfName = "05-portolan.conflist"

// Network is the section of the network of Pods.
type Network struct {
	Encapsulation string    `yaml:"encapsulation"`
	MTU           int       `yaml:"mtu"` // 0 is that of the uplink, less what tunnels add
	VXLAN         VXLAN     `yaml:"vxlan"`
	Encryption    string    `yaml:"encryption"`
	WireGuard     WireGuard `yaml:"wireguard"`
	Masquerade    bool      `yaml:"masquerade"`
	// NonMasqueradeCIDRs are ranges outside the cluster to which Pods keep their addresses.
	NonMasqueradeCIDRs []string `yaml:"nonMasqueradeCIDRs"`
	Table              string   `yaml:"table"`
	CNI                CNI      `yaml:"cni"`
	// Announce is how addresses of load balancers are announced, also by agents that do not connect Pods.
	Announce announce.Announce `yaml:"announce"`
}

// VXLAN is the section of tunnels between nodes.
type VXLAN struct {
	VNI  int `yaml:"vni"`
	Port int `yaml:"port"` // of UDP
	// NodeAddresses has Pods reach the addresses of nodes behind a tunnel through it.
	NodeAddresses bool `yaml:"nodeAddresses"`
}

// WireGuard is the section of encrypted tunnels between nodes.
type WireGuard struct {
	Port int `yaml:"port"` // of UDP
	// NodesWithoutKey is what becomes of packets to nodes that have no key.
	NodesWithoutKey string `yaml:"nodesWithoutKey"`
}

// CNI is the section of the plugin.
type CNI struct {
	Socket string `yaml:"socket"`
	// Install has the agent install the plugin, into the directories BinDir and ConfDir.
	Install bool   `yaml:"install"`
	BinDir  string `yaml:"binDir"`
	ConfDir string `yaml:"confDir"`
}

// Default returns the section of a file that lacks it.
func Default() Network {
	return Network{
		Encapsulation: string(plan.CrossSubnet), VXLAN: VXLAN{VNI: 80, Port: 4789, NodeAddresses: true}, Masquerade: true,
		Encryption: string(plan.NoEncryption), WireGuard: WireGuard{Port: 51820, NodesWithoutKey: string(plan.Unreachable)},
		Table:    nft.DefaultName,
		Announce: announce.Default(),
		CNI:      CNI{Socket: "/run/portolan/cni.sock", Install: true, BinDir: "/opt/cni/bin", ConfDir: "/etc/cni/net.d"},
	}
}

// Compiled is the section in the types of the packages that use it.
type Compiled struct {
	Encapsulation plan.Encapsulation
	MTU           int
	VNI           uint32
	Port          uint16
	NodesOutside  bool
	Encryption    plan.Encryption
	WireGuardPort uint16
	Keyless       plan.Keyless
	Masquerade    bool
	NonMasquerade []netip.Prefix
	Table         string
	CNI           CNI
	Announce      announce.Compiled
}

// Compile checks the section, except for the checks in Keys, and returns it in the types of the packages that use it.
// Its error is a *key.Error.
func (n *Network) Compile() (Compiled, error) {
	made := Compiled{
		Encapsulation: plan.Encapsulation(n.Encapsulation), MTU: n.MTU, VNI: uint32(n.VXLAN.VNI), Port: uint16(n.VXLAN.Port),
		Encryption: plan.Encryption(n.Encryption), WireGuardPort: uint16(n.WireGuard.Port),
		Keyless:      plan.Keyless(n.WireGuard.NodesWithoutKey),
		NodesOutside: !n.VXLAN.NodeAddresses, Masquerade: n.Masquerade, Table: n.Table, CNI: n.CNI,
	}
	// IPv6 requires that every link carry packets of 1280 octets (RFC 8200, section 5), and IPv4 of 68 (RFC 791).
	const least = 1280
	switch {
	case n.MTU != 0 && n.MTU < least:
		return made, key.Errorf("network.mtu", "%d is less than %d, which IPv6 needs; 0 is that of the uplink", n.MTU, least)
	case made.Encryption == plan.WireGuard && n.WireGuard.Port == n.VXLAN.Port:
		return made, key.Errorf("network.wireguard.port", "%d is that of network.vxlan.port, too", n.WireGuard.Port)
	case n.Table == "":
		return made, key.Errorf("network.table", "is empty; leave it out for %s", nft.DefaultName)
	}
	for _, p := range []struct{ name, path string }{
		{"socket", n.CNI.Socket}, {"binDir", n.CNI.BinDir}, {"confDir", n.CNI.ConfDir},
	} {
		if !filepath.IsAbs(p.path) {
			return made, key.Errorf("network.cni."+p.name, "%q is not an absolute path", p.path)
		}
	}
	for i, text := range n.NonMasqueradeCIDRs {
		r, err := netip.ParsePrefix(text)
		if err != nil {
			return made, key.ItemErrorf("network.nonMasqueradeCIDRs", i, "%q is not a range such as 10.0.0.0/8", text)
		}
		if r = r.Masked(); slices.Contains(made.NonMasquerade, r) {
			return made, key.ItemErrorf("network.nonMasqueradeCIDRs", i, "%q is given twice", text)
		}
		made.NonMasquerade = append(made.NonMasquerade, r)
	}
	var err error
	made.Announce, err = n.Announce.Compile()
	return made, err
}
