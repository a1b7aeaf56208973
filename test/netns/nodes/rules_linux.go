package nodes

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// proxyRules are what kube-proxy does for the Services of DNS servers: packets to
// their addresses go to a server, from Pods and from the node.
const proxyRules = `table ip proxy {}
delete table ip proxy
table ip proxy {
	map servers { type ipv4_addr : ipv4_addr; elements = { %s : %s, %s : %s } }
	chain prerouting {
		type nat hook prerouting priority -100
		meta l4proto { tcp, udp } th dport 53 dnat to ip daddr map @servers
	}
	chain output {
		type nat hook output priority -100
		meta l4proto { tcp, udp } th dport 53 dnat to ip daddr map @servers
	}
}
`

// Lead points the Services' addresses to a server, on all nodes. As kube-proxy does, it
// deletes the conntrack entries of UDP (pkg/proxy/conntrack/cleanup.go).
func (w *World) Lead(to netip.Addr) error {
	rules := fmt.Sprintf(proxyRules, DNSService, to, ServerService, to)
	for _, node := range w.Nodes {
		if err := node.Rules(rules); err != nil {
			return err
		}
		if err := node.Do(forgetUDP); err != nil {
			return fmt.Errorf("connection tracking: %w", err)
		}
	}
	return nil
}

func forgetUDP() error {
	filter := new(netlink.ConntrackFilter)
	if err := filter.AddProtocol(unix.IPPROTO_UDP); err != nil {
		return err
	}
	_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.FAMILY_V4, filter)
	return err
}

// lossTable and lossChain drop incoming packets of a device at random.
const (
	lossTable = `table netdev loss {}
delete table netdev loss
table netdev loss {%s
}
`
	lossChain = `
	chain %[1]s {
		type filter hook ingress device "%[1]s" priority 0
		%[2]s
	}`
)

func lossOf(device string, perMille int) string {
	const all = 1000
	rule := fmt.Sprintf("numgen random mod %d < %d drop", all, perMille)
	if perMille == all {
		rule = "drop"
	}
	return fmt.Sprintf(lossChain, device, rule)
}

// Loss drops so many of 1,000 packets between each node and the server's, in each
// direction.
func (w *World) Loss(perMille int) error {
	var server strings.Builder
	for i, node := range w.Nodes {
		if err := node.Rules(fmt.Sprintf(lossTable, lossOf("server", perMille))); err != nil {
			return err
		}
		server.WriteString(lossOf(nodeDevice(i), perMille))
	}
	return w.Server.Rules(fmt.Sprintf(lossTable, &server))
}

// countRules count the DNS packets that a node exchanges with its Pod and with the
// server.
const countRules = `table netdev count {}
delete table netdev count
table netdev count {
	counter queries {}
	counter answers {}
	counter up {}
	counter down {}
	chain pod_in {
		type filter hook ingress device "pod" priority -10
		meta l4proto { tcp, udp } th dport 53 counter name queries
	}
	chain pod_out {
		type filter hook egress device "pod" priority -10
		meta l4proto { tcp, udp } th sport 53 counter name answers
	}
	chain server_out {
		type filter hook egress device "server" priority -10
		meta l4proto { tcp, udp } th dport 53 counter name up
	}
	chain server_in {
		type filter hook ingress device "server" priority -10
		meta l4proto { tcp, udp } th sport 53 counter name down
	}
}
`

// Packets and their octets, those of IP and its headers.
type Packets struct{ Packets, Bytes int }

// Traffic is the packets of DNS at a node: of its Pod and to it, and to the server
// and from it. Over TCP these are segments, those without data among them.
type Traffic struct{ Queries, Answers, Up, Down Packets }

// ethernetHeader is as many octets (IEEE 802.3, without the checksum).
const ethernetHeader = 14

// StartCount resets the counters on all nodes.
func (w *World) StartCount() error {
	for _, node := range w.Nodes {
		if err := node.Rules(countRules); err != nil {
			return err
		}
	}
	return nil
}

// Counted returns the counters of a node.
func (w *World) Counted(node int) (t Traffic, err error) {
	out, err := w.Nodes[node].nft("", "--json", "list", "counters")
	if err != nil {
		return t, err
	}
	var list struct {
		Nftables []struct {
			Counter *struct {
				Name           string
				Packets, Bytes int
			}
		}
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return t, fmt.Errorf("counters: %w", err)
	}
	counters := map[string]*Packets{"queries": &t.Queries, "answers": &t.Answers, "up": &t.Up, "down": &t.Down}
	for _, o := range list.Nftables {
		if o.Counter != nil && counters[o.Counter.Name] != nil {
			*counters[o.Counter.Name] = Packets{o.Counter.Packets, o.Counter.Bytes}
		}
	}
	// What goes out is counted with its Ethernet header, what comes in without.
	for _, out := range []*Packets{&t.Answers, &t.Up} {
		out.Bytes -= ethernetHeader * out.Packets
	}
	return t, nil
}
