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
	// Mode is secondary or cache.
	Mode string `yaml:"mode"`
	// Addresses are put on the node, and listened on at Port instead of DNS.Listen. With
	// none, nothing is put on the node.
	Addresses []string `yaml:"addresses"`
	Port      int      `yaml:"port"`
	// Device is the prefix of the name of the device that has them.
	Device string `yaml:"device"`
	// Servers are the cluster's, see forward.ParseUpstream; over TCP unless the scheme
	// says otherwise.
	Servers []string `yaml:"servers"`
	// Option is how the EDNS option tells servers the search paths, in the mode cache:
	// paths or compact. The fields below are for the mode secondary.
	Option string `yaml:"option"`
	// Primaries are the servers that transfer the zones: addresses, or names of Services
	// whose addresses Servers resolve; Servers when empty.
	Primaries []string `yaml:"primaries"`
	// Key is one of Transfer.Keys that signs transfers; none when empty. CA is a file
	// with the authorities that sign the primaries' certificates; the system's when
	// empty.
	Key string `yaml:"key"`
	CA  string `yaml:"ca"`
	// Notify is an address and port where primaries notify of changes, beside those for
	// queries; nowhere when empty.
	Notify string `yaml:"notify"`
	// File keeps the zones for the next start; none does when empty.
	File string `yaml:"file"`
	// Name is the node's: each prefers other primaries. The host's when empty.
	Name string `yaml:"name"`
	// Check is how often a primary is asked for changes, and Stale how long no primary
	// may answer before the zones count as stale.
	Check key.Duration `yaml:"check"`
	Stale key.Duration `yaml:"stale"`
}

// DefaultNode returns the section of a file that lacks it.
func DefaultNode() Node {
	return Node{
		Mode: string(NodeSecondary), Port: 53, Device: "portolan", Option: optionPaths,
		Check: key.Duration(secondary.DefaultCheckInterval), Stale: key.Duration(secondary.DefaultStaleAfter),
	}
}

// NodeMode is how the agent on a node knows the cluster's names.
type NodeMode string

// The modes.
const (
	NodeSecondary NodeMode = "secondary" // it keeps copies of the zones
	NodeCache     NodeMode = "cache"     // it forwards to the cluster's servers
)

// How the EDNS option tells the cluster's servers the search paths.
const (
	optionPaths   = "paths"
	optionCompact = "compact"
)

// CompiledNode is the section node in the types of the packages that use it.
type CompiledNode struct {
	Mode NodeMode
	// Network is what is put on the node; nothing when it has no addresses. Listen
	// is where queries are answered.
	Network hostnet.Config
	Listen  []netip.AddrPort
	// Routes lead to the cluster's servers, where no others are configured.
	Routes []forward.Route
	Relay  respond.Relay
	// Secondary lacks the resolver of Named, which are primaries by name, and the signer
	// of Key, which is nil where transfers are not signed.
	Secondary secondary.Config
	Key       *transfer.KeyFile
	Named     []NamedPrimary
	Notify    netip.AddrPort // not valid when there is none
}

// NamedPrimary is a Service whose endpoints are primaries.
type NamedPrimary struct {
	Name dnsname.Name
	// Like is a primary without its address.
	Like forward.Upstream
}

// Compile checks the section, but for what its NodeKeys say, and returns it in the types
// of the packages that use it. dns is the section dns. An error is a *key.Error.
func (n *Node) Compile(dns *Compiled) (CompiledNode, error) {
	node := CompiledNode{Mode: NodeMode(n.Mode), Relay: respond.RelayPaths}
	if n.Option == optionCompact {
		node.Relay = respond.RelayCompact
	}
	for _, step := range []func(*CompiledNode, *Compiled) error{
		n.compileAddresses, n.compileServers, n.compileSecondary, n.compileZones, n.compilePrimaries,
	} {
		if err := step(&node, dns); err != nil {
			return CompiledNode{}, err
		}
	}
	return node, nil
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

// compileServers makes the routes to the cluster's servers: for its zones, and
// for all reverse names, but where the configuration has routes of its own.
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
	for _, suffix := range append([]dnsname.Name{dnsname.ReverseIPv4, dnsname.ReverseIPv6}, dns.Zone.Zones...) {
		if !slices.ContainsFunc(dns.Routes, func(r forward.Route) bool { return r.Suffix == suffix }) {
			node.Routes = append(node.Routes, forward.Route{
				Suffix: suffix, Upstreams: servers, Policy: forward.Fastest, Timeout: DefaultRouteTimeout,
			})
		}
	}
	return nil
}

// compileSecondary compiles what the mode secondary needs beside zones and primaries.
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

// compileZones lists the zones that a server with the same configuration transfers.
func (n *Node) compileZones(node *CompiledNode, dns *Compiled) error {
	zones := slices.Clone(dns.Zone.Zones)
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

// parseNamed reads a name in the place of a server's address, see
// forward.ParseUpstream.
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
