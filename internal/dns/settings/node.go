package settings

import (
	"crypto/tls"
	"net/netip"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/secondary"
	"portolan.dev/portolan/internal/dns/transfer"
	"portolan.dev/portolan/internal/node/hostnet"
)

// Node is the section of the agent on each node.
type Node struct {
	// Parts are what the agent does. The following fields are for dns.
	Parts []string `yaml:"parts"`
	// Mode is secondary or cache.
	Mode string `yaml:"mode"`
	// Addresses are set on the node, and the agent listens on them at Port instead of
	// DNS.Listen. If empty, the node is not changed.
	Addresses []string `yaml:"addresses"`
	Port      int      `yaml:"port"`
	// Device is the prefix of the name of the device with the addresses.
	Device string `yaml:"device"`
	// Servers are the cluster's servers, see forward.ParseUpstream. The default
	// transport is TCP.
	Servers []string `yaml:"servers"`
	// Option is the form of the EDNS option with the search paths in cache mode: paths
	// or compact. The following fields are for secondary mode.
	Option string `yaml:"option"`
	// Primaries are the servers that transfer the zones: addresses, or names of
	// Services, which Servers resolve. If empty, Servers are used.
	Primaries []string `yaml:"primaries"`
	// Key is the name of the key in Transfer.Keys that signs transfers; empty is none.
	// CA is a file with the CAs of the primaries' certificates; empty means the
	// system's.
	Key string `yaml:"key"`
	CA  string `yaml:"ca"`
	// Notify is an additional address and port at which primaries send NOTIFY; empty is
	// none.
	Notify string `yaml:"notify"`
	// File stores the zones for the next start; empty is none.
	File string `yaml:"file"`
	// Name is the node's name, by which agents prefer different primaries. If empty, it
	// is the host name.
	Name string `yaml:"name"`
	// Check is the interval between queries to a primary for changes. Stale is the time
	// without an answer of a primary after which the zones are stale.
	Check key.Duration `yaml:"check"`
	Stale key.Duration `yaml:"stale"`
}

// DefaultNode returns the section of a file that lacks it.
func DefaultNode() Node {
	return Node{
		Parts: []string{PartDNS},
		Mode:  string(NodeSecondary), Port: 53, Device: "portolan", Option: optionPaths,
		Check: key.Duration(secondary.DefaultCheckInterval), Stale: key.Duration(secondary.DefaultStaleAfter),
	}
}

// The parts of the agent on a node.
const (
	PartDNS     = "dns"     // answers Pods
	PartProxy   = "proxy"   // delivers packets for Services, see package proxy/settings
	PartNetwork = "network" // connects Pods, see package network/settings
	PartPolicy  = "policy"  // drops what policies do not allow, see package policy/settings
)

// Parts are all of them.
func Parts() []string { return []string{PartDNS, PartProxy, PartNetwork, PartPolicy} }

// ReadsCluster reports whether the agent has a part that reads the cluster from the API or from manifests.
func (n *Node) ReadsCluster() bool {
	return n.Has(PartProxy) || n.Has(PartNetwork) || n.Has(PartPolicy)
}

// Has reports whether the agent has a part.
func (n *Node) Has(part string) bool { return slices.Contains(n.Parts, part) }

// NodeMode is how an agent on a node answers queries for the cluster's names.
type NodeMode string

// The modes.
const (
	NodeSecondary NodeMode = "secondary" // from copies of the zones
	NodeCache     NodeMode = "cache"     // by forwarding to the cluster's servers
)

// These are the forms of the EDNS option with the search paths.
const (
	optionPaths   = "paths"
	optionCompact = "compact"
)

// CompiledNode is the section node in the types of the packages that use it.
type CompiledNode struct {
	Mode NodeMode
	// Network is the configuration of the node's network, without effect if it has no
	// addresses. Listen lists the addresses for queries.
	Network hostnet.Config
	Listen  []netip.AddrPort
	// Routes lead to the cluster's servers, for names without other configured routes.
	Routes []forward.Route
	Relay  respond.Relay
	// Secondary lacks a Finder for Named, the primaries given by name, and the function
	// for Key, which is nil if transfers are not signed.
	Secondary secondary.Config
	Key       *transfer.KeyFile
	Named     []NamedPrimary
	Notify    netip.AddrPort // invalid if not configured
}

// NamedPrimary is a Service whose endpoints are primaries.
type NamedPrimary struct {
	Name dnsname.Name
	// Like is a primary without its address.
	Like forward.Upstream
}

// Compile checks the section, except for the checks in NodeKeys, and returns it in the
// types of the packages that use it. dns is the section dns. Its error is a *key.Error.
func (n *Node) Compile(dns *Compiled) (CompiledNode, error) {
	node := CompiledNode{Mode: NodeMode(n.Mode), Relay: respond.RelayPaths}
	if n.Option == optionCompact {
		node.Relay = respond.RelayCompact
	}
	for _, step := range []func(*CompiledNode, *Compiled) error{
		n.compileParts, n.compileAddresses, n.compileServers, n.compileSecondary, n.compileZones, n.compilePrimaries,
	} {
		if err := step(&node, dns); err != nil {
			return CompiledNode{}, err
		}
	}
	return node, nil
}

func (n *Node) compileParts(*CompiledNode, *Compiled) error {
	if len(n.Parts) == 0 {
		return key.Errorf("node.parts", "no part; there are %s", strings.Join(Parts(), ", "))
	}
	for i, part := range n.Parts {
		switch {
		case !slices.Contains(Parts(), part):
			return key.ItemErrorf("node.parts", i, "%q is not one of %s", part, strings.Join(Parts(), ", "))
		case slices.Contains(n.Parts[:i], part):
			return key.ItemErrorf("node.parts", i, "%s is given twice", part)
		}
	}
	return nil
}

func (n *Node) compileAddresses(node *CompiledNode, dns *Compiled) error {
	if err := hostnet.CheckPrefix(n.Device); err != nil {
		return key.Errorf("node.device", "%w", err)
	}
	node.Network = hostnet.Config{Port: uint16(n.Port), Prefix: n.Device}
	if len(n.Addresses) == 0 {
		node.Listen = dns.Listen
		return nil
	}
	for i, text := range n.Addresses {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return key.ItemErrorf("node.addresses", i, "%q is not an address, such as 169.254.20.10 or fd00::a", text)
		}
		addr = addr.Unmap()
		node.Network.Addresses = append(node.Network.Addresses, addr)
		node.Listen = append(node.Listen, netip.AddrPortFrom(addr, uint16(n.Port)))
	}
	if err := node.Network.Validate(); err != nil {
		return key.Errorf("node.addresses", "%w", err)
	}
	return nil
}

// compileServers makes the routes to the cluster's servers, for its zones and for all
// reverse names, except where the configuration has other routes.
func (n *Node) compileServers(node *CompiledNode, dns *Compiled) error {
	var servers []forward.Upstream
	for i, text := range n.Servers {
		server, err := forward.ParseUpstream(text)
		if err != nil {
			return key.ItemErrorf("node.servers", i, "%w", err)
		}
		if server.Transport == forward.UDP && !strings.Contains(text, "://") {
			server.Transport = forward.TCP
		}
		if slices.Contains(node.Listen, server.Addr) {
			return key.ItemErrorf(
				"node.servers", i,
				"%s is one of the agent's own addresses; servers need another one, such as that of a second Service",
				server.Addr,
			)
		}
		servers = append(servers, server)
	}
	if len(servers) == 0 {
		return nil
	}
	node.Secondary.Servers = servers
	for _, suffix := range dns.Served() {
		if !slices.ContainsFunc(dns.Routes, func(r forward.Route) bool { return r.Suffix == suffix }) {
			node.Routes = append(node.Routes, forward.Route{
				Suffix: suffix, Upstreams: servers, Policy: forward.Fastest, Timeout: DefaultRouteTimeout,
			})
		}
	}
	return nil
}

// Served returns the zones that the cluster's servers have.
func (c *Compiled) Served() []dnsname.Name {
	all := append([]dnsname.Name{dnsname.ReverseIPv4, dnsname.ReverseIPv6}, c.Zone.Zones...)
	if m := c.Zone.Multicluster; !m.IsRoot() {
		all = append(all, m)
	}
	all = append(all, c.Zone.External.Zones...)
	for _, source := range c.LocalZones.Sources {
		all = append(all, source.Apex)
	}
	return all
}

// compileSecondary compiles the settings of secondary mode except zones and primaries.
func (n *Node) compileSecondary(node *CompiledNode, dns *Compiled) error {
	r := &node.Secondary
	r.File, r.Node, r.CheckInterval, r.StaleAfter = n.File, n.Name, time.Duration(n.Check), time.Duration(n.Stale)
	for _, d := range []struct {
		key         string
		value, than time.Duration
	}{{"node.check", r.CheckInterval, 0}, {"node.stale", r.StaleAfter, r.CheckInterval}} {
		if d.value <= d.than {
			return key.Errorf(d.key, "%s is not more than %s", d.value, d.than)
		}
	}
	if n.Notify != "" {
		addr, err := netip.ParseAddrPort(n.Notify)
		if err != nil || addr.Port() != 0 && slices.Contains(node.Listen, addr) {
			return key.Errorf(
				"node.notify", "%q is not an address and port, such as 0.0.0.0:9155, beside those for queries", n.Notify,
			)
		}
		node.Notify = addr
	}
	if n.Key != "" {
		name, err := dnsname.Parse(n.Key)
		i := slices.IndexFunc(dns.Transfer.Sender.Keys, func(k transfer.KeyFile) bool { return k.Name == name })
		if err != nil || i < 0 {
			return key.Errorf("node.key", "%q is not the name of one of dns.transfer.keys", n.Key)
		}
		node.Key = &dns.Transfer.Sender.Keys[i]
	}
	roots, err := (&Route{CA: n.CA}).roots()
	if err != nil {
		return key.Errorf("node.ca", "%w", err)
	}
	if roots != nil {
		r.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return nil
}

// compileZones sets the zones to transfer: those of a server with the same
// configuration.
func (n *Node) compileZones(node *CompiledNode, dns *Compiled) error {
	zones := slices.Clone(dns.Zone.Zones)
	if m := dns.Zone.Multicluster; !m.IsRoot() {
		zones = append(zones, m)
	}
	for _, of := range dns.Zone.ReverseRanges {
		reverse, err := dnsname.ReverseZones(of)
		if err != nil {
			return err
		}
		for _, z := range reverse {
			if !slices.Contains(zones, z) {
				zones = append(zones, z)
			}
		}
	}
	node.Secondary.Zones = zones
	return nil
}

func (n *Node) compilePrimaries(node *CompiledNode, _ *Compiled) error {
	if len(n.Primaries) > 0 {
		node.Secondary.Servers = nil
	}
	for i, text := range n.Primaries {
		if primary, err := forward.ParseUpstream(text); err == nil {
			if primary.Transport == forward.HTTPS {
				return key.ItemErrorf("node.primaries", i, "%q: zones come over TCP or TLS", text)
			}
			node.Secondary.Servers = append(node.Secondary.Servers, primary)
			continue
		}
		named, err := parseNamed(text)
		if err != nil {
			return key.ItemErrorf(
				"node.primaries", i,
				"%q is not a server, such as 10.0.0.2 or tls://10.0.0.2, nor a name, such as servers.dns.svc.cluster.local:53",
				text,
			)
		}
		node.Named = append(node.Named, named)
	}
	return nil
}

// parseNamed parses a name in place of a server's address, see forward.ParseUpstream.
func parseNamed(text string) (named NamedPrimary, err error) {
	rest, isTLS := strings.CutPrefix(text, "tls://")
	rest, of, _ := strings.Cut(strings.TrimPrefix(rest, "tcp://"), "#")
	name, port, hasPort := strings.Cut(rest, ":")
	if !hasPort {
		port = "53"
		if isTLS {
			port = "853"
		}
	}
	stands := "192.0.2.1:" + port
	if isTLS {
		stands = "tls://" + stands
	}
	if of != "" {
		stands += "#" + of
	}
	if named.Like, err = forward.ParseUpstream(stands); err != nil {
		return named, err
	}
	if isTLS && of == "" {
		named.Like.ServerName = name
	}
	named.Name, err = dnsname.Parse(name)
	return named, err
}
