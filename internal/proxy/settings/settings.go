// Package settings declares the section of the configuration file for the service proxy:
// its keys, its defaults and what it compiles to.
package settings

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/proxy/nft"
)

// The ways to recognize packets from Pods on the node.
const (
	ClusterCIDR         = "ClusterCIDR"
	NodeCIDR            = "NodeCIDR"
	BridgeInterface     = "BridgeInterface"
	InterfaceNamePrefix = "InterfaceNamePrefix"
)

// primary stands for the Node's InternalIPs.
const primary = "primary"

// Proxy is the section of the service proxy.
type Proxy struct {
	NodeName      string      `yaml:"nodeName"`
	DetectLocal   DetectLocal `yaml:"detectLocal"`
	MasqueradeAll bool        `yaml:"masqueradeAll"`
	MasqueradeBit int         `yaml:"masqueradeBit"`
	// NodePortAddresses are ranges, or "primary" alone.
	NodePortAddresses []string `yaml:"nodePortAddresses"`
	Table             string   `yaml:"table"`
}

// DetectLocal says how packets from Pods on the node are recognized.
type DetectLocal struct {
	Mode         string   `yaml:"mode"`
	ClusterCIDRs []string `yaml:"clusterCIDRs"`
	Interface    string   `yaml:"interface"`
}

// Default returns the section of a file that lacks it.
func Default() Proxy {
	return Proxy{
		DetectLocal: DetectLocal{Mode: ClusterCIDR}, MasqueradeBit: 14, NodePortAddresses: []string{primary}, Table: nft.DefaultName,
	}
}

// Compiled is the section in the types of the packages that use it.
type Compiled struct {
	NodeName string // empty is the default
	Table    nft.Config
	// PodCIDRs: Pods are recognized by the Node's ranges, which the table's config lacks.
	PodCIDRs bool
	// NodePorts are the ranges of addresses for node ports; nil is the Node's InternalIPs.
	NodePorts []netip.Prefix
}

// Compile checks the section, except for the checks in Keys, and returns it in the types of
// the packages that use it. Its error is a *key.Error.
func (p *Proxy) Compile() (Compiled, error) {
	made := Compiled{NodeName: p.NodeName, Table: nft.Config{
		Name: p.Table, Mark: 1 << p.MasqueradeBit, MasqueradeAll: p.MasqueradeAll,
	}}
	if p.Table == "" {
		return made, key.Errorf("proxy.table", "is empty; leave it out for %s", nft.DefaultName)
	}
	if err := p.DetectLocal.compile(&made); err != nil {
		return made, err
	}
	if len(p.NodePortAddresses) == 1 && p.NodePortAddresses[0] == primary || len(p.NodePortAddresses) == 0 {
		return made, nil
	}
	for i, text := range p.NodePortAddresses {
		cidr, err := netip.ParsePrefix(text)
		if err != nil {
			return made, key.ItemErrorf("proxy.nodePortAddresses", i, "%q is not a range such as 192.0.2.0/24, nor primary alone", text)
		}
		made.NodePorts = append(made.NodePorts, cidr.Masked())
	}
	return made, nil
}

func (d *DetectLocal) compile(made *Compiled) error {
	const path = "proxy.detectLocal."
	var families []bool
	for i, text := range d.ClusterCIDRs {
		cidr, err := netip.ParsePrefix(text)
		if err != nil {
			return key.ItemErrorf(path+"clusterCIDRs", i, "%q is not a range such as 10.244.0.0/16", text)
		}
		if slices.Contains(families, cidr.Addr().Is4()) {
			return key.ItemErrorf(path+"clusterCIDRs", i, "%q is a second range of its family; give one of each", text)
		}
		families = append(families, cidr.Addr().Is4())
		if d.Mode == ClusterCIDR {
			made.Table.Pods.CIDRs = append(made.Table.Pods.CIDRs, cidr.Masked())
		}
	}
	byInterface := d.Mode == BridgeInterface || d.Mode == InterfaceNamePrefix
	const longest = 15 // linux/if.h, IFNAMSIZ less the zero
	switch {
	case byInterface && d.Interface == "":
		return key.Errorf(path+"interface", "is empty; the mode %s needs the name of an interface", d.Mode)
	case len(d.Interface) > longest:
		return key.Errorf(path+"interface", "%q has more than %d characters", d.Interface, longest)
	case d.Mode == BridgeInterface:
		made.Table.Pods.Interface = d.Interface
	case d.Mode == InterfaceNamePrefix:
		made.Table.Pods.InterfacePrefix = d.Interface
	}
	made.PodCIDRs = d.Mode == NodeCIDR
	return nil
}
