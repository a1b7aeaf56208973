package node

import (
	"fmt"
	"net/netip"
	"strings"

	"portolan.dev/portolan/test/netns/nodes"
)

// way is a way in which a Pod resolves names: the servers, the configuration of the
// nodes, and the Pod's resolv.conf.
type way struct {
	name, title string
	// server starts a server at an address, and agent starts an agent on a node; agent
	// is nil if there is none.
	server  func(*bench, netip.Addr) (*nodes.Process, error)
	agent   func(*bench, int) (*nodes.Process, error)
	resolv  func(namespace string, servers ...netip.Addr) string
	service netip.Addr // the server of Pods
	// given means that the agent expects its address to exist.
	given bool
	// settled is the log message of an agent that has loaded everything; "" if it has
	// everything at once.
	settled string
}

// These are the ways.
const (
	direct       = "portolan"
	coreDNS      = "coredns"
	coreDNSPath  = "coredns-autopath"
	coreDNSCache = "coredns-cache"
	kepCache     = "cache"
	replica      = "replica"
)

func ways() []way {
	return []way{
		{direct, "Portolan", (*bench).portolanServer, nil, nodes.ClusterFirst, nodes.DNSService, false, ""},
		{coreDNS, "CoreDNS", coreDNSServer(""), nil, nodes.ClusterFirst, nodes.DNSService, false, ""},
		{coreDNSPath, "CoreDNS, `autopath`", coreDNSServer("autopath @kubernetes"), nil, nodes.ClusterFirst,
			nodes.DNSService, false, ""},
		{coreDNSCache, "CoreDNS, and a cache on the node", coreDNSServer(""), (*bench).coreDNSAgent, nodes.ClusterFirst,
			nodes.Local, true, ""},
		{kepCache, "Portolan, agent as cache", (*bench).portolanServer, agent(cacheMode), nodes.WithSearch,
			nodes.DNSService, false, ""},
		{replica, "Portolan, agent as replica", replicaServer, agent(replicaMode), nodes.WithSearch, nodes.DNSService,
			false, "zone is followed"},
	}
}

func wayNames() (names []string) {
	for _, w := range ways() {
		names = append(names, w.name)
	}
	return names
}

// elsewhere has the settings of Portolan that all ways share. It ends in the section
// dns.
var elsewhere = fmt.Sprintf("admin: {listen: ''}\ndns:\n  forward: {routes: [{upstreams: [%s]}]}\n", nodes.Upstream)

func (b *bench) portolanServer(at netip.Addr) (*nodes.Process, error) { return b.serve(at, "") }

// sendingServer starts a server that transfers its zones to replicas. more has further
// settings of transfers.
func (b *bench) sendingServer(at netip.Addr, more string) (*nodes.Process, error) {
	var notify []string
	for _, node := range b.world.NodeAddrs {
		notify = append(notify, fmt.Sprintf("'%s:%d'", node, notifyPort))
	}
	return b.serve(at, fmt.Sprintf("  transfer: {%s, allow: [{key: replica}], notify: [%s], %s}\n",
		b.keys(serverSecret), strings.Join(notify, ", "), more))
}

func replicaServer(b *bench, at netip.Addr) (*nodes.Process, error) { return b.sendingServer(at, "") }

// notifyPort is the port for NOTIFY of agents, on their nodes.
const notifyPort = 9155

// These are the files of the key of servers and agents.
const (
	serverSecret = "server.secret"
	agentSecret  = "agent.secret"
)

func (b *bench) keys(file string) string {
	return fmt.Sprintf("keys: [{name: replica, algorithm: hmac-sha256, secretFile: '%s'}]", b.file(file))
}

// serve starts Portolan as the cluster's server. more has further keys of the section
// dns.
func (b *bench) serve(at netip.Addr, more string) (*nodes.Process, error) {
	file := "serve-" + at.String() + ".yaml"
	config := elsewhere + fmt.Sprintf("  listen: ['%s:53']\n", at) + more
	return b.start(b.world.Server, file, config, b.portolan.Path(), "serve", "--kubeconfig", b.file("kubeconfig"),
		"--config", b.file(file))
}

// agentMode is the mode of an agent.
type agentMode string

const (
	cacheMode   agentMode = "cache"
	replicaMode agentMode = "secondary"
)

// zonesOf returns the name of the file for an agent's zones.
func (b *bench) zonesOf(node int) string { return b.file(fmt.Sprintf("zones-%d", node)) }

// agentConfig returns the configuration of an agent with the addresses on a node.
func (b *bench) agentConfig(m agentMode, node int, addrs ...netip.Addr) string {
	var quoted []string
	for _, a := range addrs {
		quoted = append(quoted, fmt.Sprintf("'%s'", a))
	}
	settings := fmt.Sprintf("mode: %s, servers: ['%s'], addresses: [%s]",
		m, nodes.ServerService, strings.Join(quoted, ", "))
	keys := ""
	if m == replicaMode {
		settings += fmt.Sprintf(", primaries: ['%s', '%s'], key: replica, notify: '0.0.0.0:%d', file: '%s'",
			nodes.Servers[0], nodes.Servers[1], notifyPort, b.zonesOf(node))
		keys = fmt.Sprintf("  transfer: {%s}\n", b.keys(agentSecret))
	}
	return fmt.Sprintf("node: {%s}\n", settings) + elsewhere + keys
}

// agent returns a function that starts Portolan's agent on a node.
func agent(m agentMode) func(*bench, int) (*nodes.Process, error) {
	return func(b *bench, node int) (*nodes.Process, error) {
		return b.startAgent(node, b.agentConfig(m, node, nodes.Local, nodes.DNSService))
	}
}

func (b *bench) startAgent(node int, config string) (*nodes.Process, error) {
	file := fmt.Sprintf("node-%d.yaml", node)
	return b.start(b.world.Nodes[node], file, config, b.portolan.Path(), "node", "--config", b.file(file))
}

// coreDNSConfig is the configuration of kubeadm, except that pods are verified, as
// autopath requires, and that the TTL is CoreDNS' default.
const coreDNSConfig = `.:53 {
	bind %s
	%s
	cache 30
	kubernetes cluster.local in-addr.arpa ip6.arpa {
		kubeconfig %s
		pods verified
	}
	forward . %s
	loadbalance
}
`

func coreDNSServer(plugin string) func(*bench, netip.Addr) (*nodes.Process, error) {
	return func(b *bench, at netip.Addr) (*nodes.Process, error) {
		file := "corefile-" + at.String()
		config := fmt.Sprintf(coreDNSConfig, at, plugin, b.file("kubeconfig"), nodes.Upstream)
		return b.start(b.world.Server, file, config, b.coreDNS.Path(), "-conf", b.file(file))
	}
}

// coreDNSAgentConfig has the settings of Kubernetes' NodeLocal DNSCache for these
// plugins (cluster/addons/dns/nodelocaldns/nodelocaldns.yaml).
const coreDNSAgentConfig = `cluster.local:53 {
	bind %[1]s
	cache {
		success 9984 30
		denial 9984 5
	}
	forward . %[2]s {
		force_tcp
	}
}
in-addr.arpa:53 ip6.arpa:53 {
	bind %[1]s
	cache 30
	forward . %[2]s {
		force_tcp
	}
}
.:53 {
	bind %[1]s
	cache 30
	forward . %[3]s
}
`

func (b *bench) coreDNSAgent(node int) (*nodes.Process, error) {
	file := fmt.Sprintf("corefile-node-%d", node)
	config := fmt.Sprintf(coreDNSAgentConfig, nodes.Local, nodes.ServerService, nodes.Upstream)
	return b.start(b.world.Nodes[node], file, config, b.coreDNS.Path(), "-conf", b.file(file))
}

// searches reports whether Pods have the search domain of the KEP DNS Autopath.
func (w way) searches() bool { return w.name == kepCache || w.name == replica }
