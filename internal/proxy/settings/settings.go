// Package settings declares the section of the configuration file for the service proxy:
// its keys, its defaults and what it compiles to.
package settings

import (
	"net/netip"
	"slices"
	"time"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/proxy/conntrack"
	"portolan.dev/portolan/internal/proxy/frontend"
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
	// SlowStart is for how long endpoints that became ready get fewer connections, of Services
	// that do not say so.
	SlowStart key.Duration `yaml:"slowStart"`
	// EndpointChoice is how endpoints are chosen of Services that do not say so.
	EndpointChoice string `yaml:"endpointChoice"`
	Table          string `yaml:"table"`
	// Counters counts the connections to each port of a Service.
	Counters bool `yaml:"counters"`
	// ReplaceKubeProxy removes the rules of kube-proxy when those of the proxy are there.
	ReplaceKubeProxy bool `yaml:"replaceKubeProxy"`
	// Healthz is the address and port of the probes; empty turns them off.
	Healthz string `yaml:"healthz"`
	// HealthLimit is how long a change may wait before the proxy is not healthy.
	HealthLimit key.Duration `yaml:"healthLimit"`
	Conntrack   Conntrack    `yaml:"conntrack"`
}

// Conntrack is the section of connection tracking. Settings of the kernel that are 0 stay as
// they are.
type Conntrack struct {
	MaxPerCore     int          `yaml:"maxPerCore"`
	Min            int          `yaml:"min"`
	TCPEstablished key.Duration `yaml:"tcpEstablishedTimeout"`
	TCPCloseWait   key.Duration `yaml:"tcpCloseWaitTimeout"`
	TCPBeLiberal   bool         `yaml:"tcpBeLiberal"`
	UDP            key.Duration `yaml:"udpTimeout"`
	UDPStream      key.Duration `yaml:"udpStreamTimeout"`
	// ResetTCP ends TCP connections to endpoints that were removed.
	ResetTCP bool `yaml:"resetTCP"`
}

// DetectLocal says how packets from Pods on the node are recognized.
type DetectLocal struct {
	Mode         string   `yaml:"mode"`
	ClusterCIDRs []string `yaml:"clusterCIDRs"`
	Interface    string   `yaml:"interface"`
}

// Default returns the section of a file that lacks it.
func Default() Proxy {
	c := conntrack.DefaultSettings()
	return Proxy{
		Healthz:     "0.0.0.0:10256",
		HealthLimit: key.Duration(time.Minute),
		Conntrack: Conntrack{
			MaxPerCore: c.MaxPerCore, Min: c.Min, TCPBeLiberal: c.TCPBeLiberal,
			TCPEstablished: key.Duration(c.TCPEstablished), TCPCloseWait: key.Duration(c.TCPCloseWait),
			UDP: key.Duration(c.UDP), UDPStream: key.Duration(c.UDPStream),
		},
		DetectLocal: DetectLocal{
			Mode: ClusterCIDR,
		},
		MasqueradeBit:     14,
		NodePortAddresses: []string{primary},
		EndpointChoice:    frontend.Random.String(),
		Table:             nft.DefaultName,
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
	// Choice is how endpoints are chosen of Services that do not say so, and SlowStart for how
	// long those that became ready get fewer connections.
	Choice    frontend.Choice
	SlowStart time.Duration
	// Healthz is not valid if the probes are off.
	Healthz     netip.AddrPort
	HealthLimit time.Duration
	Conntrack   conntrack.Settings
	ResetTCP    bool
	// ReplaceKubeProxy removes the rules of kube-proxy when those of the proxy are there.
	ReplaceKubeProxy bool
}

// Compile checks the section, except for the checks in Keys, and returns it in the types of
// the packages that use it. Its error is a *key.Error.
func (p *Proxy) Compile() (Compiled, error) {
	made := Compiled{NodeName: p.NodeName, ReplaceKubeProxy: p.ReplaceKubeProxy, Table: nft.Config{
		Name: p.Table, Mark: 1 << p.MasqueradeBit, MasqueradeAll: p.MasqueradeAll, Counters: p.Counters,
	}}
	made.HealthLimit, made.ResetTCP = time.Duration(p.HealthLimit), p.Conntrack.ResetTCP
	made.Conntrack = p.Conntrack.compile()
	if p.Healthz != "" {
		addr, err := netip.ParseAddrPort(p.Healthz)
		if err != nil {
			return made, key.Errorf("proxy.healthz", "%q is not an address and port, such as 0.0.0.0:10256", p.Healthz)
		}
		made.Healthz = addr
	}
	choice, err := frontend.ParseChoice(p.EndpointChoice)
	if err != nil {
		return made, key.Errorf("proxy.endpointChoice", "%v", err)
	}
	made.Choice, made.SlowStart = choice, time.Duration(p.SlowStart)
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
			return made, key.ItemErrorf(
				"proxy.nodePortAddresses",
				i,
				"%q is not a range such as 192.0.2.0/24, nor primary alone",
				text,
			)
		}
		made.NodePorts = append(made.NodePorts, cidr.Masked())
	}
	return made, nil
}

func (c *Conntrack) compile() conntrack.Settings {
	return conntrack.Settings{
		MaxPerCore: c.MaxPerCore, Min: c.Min, TCPBeLiberal: c.TCPBeLiberal,
		TCPEstablished: time.Duration(c.TCPEstablished), TCPCloseWait: time.Duration(c.TCPCloseWait),
		UDP: time.Duration(c.UDP), UDPStream: time.Duration(c.UDPStream),
	}
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
