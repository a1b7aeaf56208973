package config

import (
	"crypto/tls"
	"net/netip"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/secondary"
	"portolan.dev/portolan/internal/dns/transfer"
	"portolan.dev/portolan/internal/node/hostnet"
)

// NodeMode is how the agent on a node knows the cluster's names.
type NodeMode string

// The modes.
const (
	NodeSecondary NodeMode = "secondary" // it keeps the zones
	NodeCache     NodeMode = "cache"     // it asks the cluster's servers
)

// How the cluster's servers are told what to search for a name in.
const (
	optionPaths   = "paths"
	optionCompact = "compact"
)

// NodeConfig is Node in the types of its users.
type NodeConfig struct {
	Mode NodeMode
	// Network is what is put on the node; nothing when it has no addresses. Listen
	// is where queries are answered.
	Network hostnet.Config
	Listen  []netip.AddrPort
	// Routes lead to the cluster's servers, where no others are configured.
	Routes []forward.Route
	Relay  respond.Relay
	// Secondary is what the zones are kept by, but for who finds primaries and what
	// signs transfers; Key is that, nil for none. Named are primaries by name.
	Secondary secondary.Config
	Notify    netip.AddrPort // not valid when it is nowhere
	Key       *transfer.KeyFile
	Named     []NamedPrimary
}

// NamedPrimary is a Service whose endpoints are primaries.
type NamedPrimary struct {
	Name dnsname.Name
	// Like is a primary but for the address.
	Like forward.Upstream
}

// compileNode comes behind the zones and the routes.
func (c *Config) compileNode(made *Compiled) error {
	n, node := &c.Node, &made.Node
	node.Mode = NodeMode(n.Mode)
	node.Relay = respond.RelayPaths
	if n.Option == optionCompact {
		node.Relay = respond.RelayCompact
	}
	if err := c.compileNodeAddresses(made); err != nil {
		return err
	}
	if err := c.compileNodeServers(made); err != nil {
		return err
	}
	return c.compileSecondary(made)
}

func (c *Config) compileNodeAddresses(made *Compiled) error {
	n, node := &c.Node, &made.Node
	if err := hostnet.CheckPrefix(n.Device); err != nil {
		return badValue("node.device", "%w", err)
	}
	node.Network = hostnet.Config{Port: uint16(n.Port), Prefix: n.Device}
	if len(n.Addresses) == 0 {
		node.Listen = made.DNS.Listen
		return nil
	}
	for i, text := range n.Addresses {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return badItem("node.addresses", i, "%q is not an address, such as 169.254.20.10 or fd00::a", text)
		}
		addr = addr.Unmap()
		node.Network.Addresses = append(node.Network.Addresses, addr)
		node.Listen = append(node.Listen, netip.AddrPortFrom(addr, uint16(n.Port)))
	}
	if err := node.Network.Validate(); err != nil {
		return badValue("node.addresses", "%w", err)
	}
	return nil
}

// compileNodeServers makes the routes to the cluster's servers: for its zones, and
// for all reverse names, but where the configuration has routes of its own.
func (c *Config) compileNodeServers(made *Compiled) error {
	var servers []forward.Upstream
	for i, text := range c.Node.Servers {
		server, err := forward.ParseUpstream(text)
		if err != nil {
			return badItem("node.servers", i, "%w", err)
		}
		if server.Transport == forward.UDP && !strings.Contains(text, "://") {
			server.Transport = forward.TCP
		}
		if slices.Contains(made.Node.Listen, server.Addr) {
			return badItem("node.servers", i, "%s is one of the agent's own addresses; servers need another one, such as that of a second Service", server.Addr)
		}
		servers = append(servers, server)
	}
	if len(servers) == 0 {
		return nil
	}
	made.Node.Secondary.Servers = servers
	for _, suffix := range append([]dnsname.Name{dnsname.ReverseIPv4, dnsname.ReverseIPv6}, made.DNS.Zone.Zones...) {
		if !slices.ContainsFunc(made.DNS.Routes, func(r forward.Route) bool { return r.Suffix == suffix }) {
			made.Node.Routes = append(made.Node.Routes, forward.Route{
				Suffix: suffix, Upstreams: servers, Policy: forward.Fastest, Timeout: DefaultRouteTimeout,
			})
		}
	}
	return nil
}

// compileSecondary comes behind servers and keys.
func (c *Config) compileSecondary(made *Compiled) error {
	n, node := &c.Node, &made.Node
	r := &node.Secondary
	r.File, r.Node, r.CheckInterval, r.StaleAfter = n.File, n.Name, time.Duration(n.Check), time.Duration(n.Stale)
	for _, d := range []struct {
		key         string
		value, than time.Duration
	}{{"node.check", r.CheckInterval, 0}, {"node.stale", r.StaleAfter, r.CheckInterval}} {
		if d.value <= d.than {
			return badValue(d.key, "%s is not more than %s", d.value, d.than)
		}
	}
	if err := c.compileSecondaryZones(made); err != nil {
		return err
	}
	if n.Notify != "" {
		addr, err := netip.ParseAddrPort(n.Notify)
		if err != nil || addr.Port() != 0 && slices.Contains(node.Listen, addr) {
			return badValue("node.notify", "%q is not an address and port, such as 0.0.0.0:9155, beside those for queries", n.Notify)
		}
		node.Notify = addr
	}
	if n.Key != "" {
		name, err := dnsname.Parse(n.Key)
		i := slices.IndexFunc(made.DNS.Transfer.Sender.Keys, func(k transfer.KeyFile) bool { return k.Name == name })
		if err != nil || i < 0 {
			return badValue("node.key", "%q is not the name of one of dns.transfer.keys", n.Key)
		}
		node.Key = &made.DNS.Transfer.Sender.Keys[i]
	}
	roots, err := (&Route{CA: n.CA}).roots()
	if err != nil {
		return badValue("node.ca", "%w", err)
	}
	if roots != nil {
		r.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return c.compilePrimaries(made)
}

// compileSecondaryZones names those that a server of this configuration sends.
func (c *Config) compileSecondaryZones(made *Compiled) error {
	zones := slices.Clone(made.DNS.Zone.Zones)
	for _, of := range made.DNS.Zone.ReverseRanges {
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
	made.Node.Secondary.Zones = zones
	return nil
}

func (c *Config) compilePrimaries(made *Compiled) error {
	node := &made.Node
	if len(c.Node.Primaries) > 0 {
		node.Secondary.Servers = nil
	}
	for i, text := range c.Node.Primaries {
		if primary, err := forward.ParseUpstream(text); err == nil {
			if primary.Transport == forward.HTTPS {
				return badItem("node.primaries", i, "%q: zones come over TCP or TLS", text)
			}
			node.Secondary.Servers = append(node.Secondary.Servers, primary)
			continue
		}
		named, err := parseNamed(text)
		if err != nil {
			return badItem("node.primaries", i, "%q is not a server, such as 10.0.0.2 or tls://10.0.0.2, nor a name, such as servers.dns.svc.cluster.local:53", text)
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
