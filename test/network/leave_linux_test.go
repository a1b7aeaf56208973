package network

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/network/nft"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// TestOutside: what Pods send out of the cluster has their node's address, and what stays inside has their own.
func TestOutside(t *testing.T) {
	w := newWorld(t)
	if w == nil {
		return
	}
	for _, n := range w.nodes {
		link := "near"
		if n == w.nodes[2] {
			link = "far"
		}
		for f, router := range subnets[link] {
			for _, protocol := range []string{"tcp", "udp", "icmp"} {
				source, err := exchange(n.pod, protocol, router.Addr())
				if err != nil || protocol != "icmp" && source != n.addrs[f].String() {
					t.Errorf("the Pod of %s outside by %s: %q, %v, want to be seen as %s", n.name, protocol, source, err, n.addrs[f])
				}
			}
		}
	}
	w.checkAll() // without NAT
}

// TestHostPortOfAnotherNode: a Pod that another node's Pod, node, and a host outside of the cluster reach by the address
// of its node.
func TestHostPortOfAnotherNode(t *testing.T) {
	w := newWorld(t)
	if w == nil {
		return
	}
	far := w.nodes[2]
	const hostPort = 8000
	var all []nft.Port
	for _, pod := range far.pods {
		for _, protocol := range []nft.Protocol{nft.TCP, nft.UDP} {
			all = append(all, nft.Port{Protocol: protocol, HostPort: hostPort, To: netip.AddrPortFrom(pod, port)})
		}
	}
	far.tell(t, command{Ports: all})
	for _, from := range append(w.ends(), end{name: "outside", addrs: []netip.Addr{subnets["far"][0].Addr(), subnets["far"][1].Addr()}}) {
		for f, to := range far.addrs {
			for protocol, exchange := range map[string]func() (string, error){
				"tcp": func() (string, error) { return exchangeTCP(netip.AddrPortFrom(to, hostPort)) },
				"udp": func() (string, error) { return exchangeUDP(netip.AddrPortFrom(to, hostPort), 100) },
			} {
				err := from.ns.Do(func() error {
					source, err := exchange()
					hairpin := from.name == "the Pod of node-3"
					if err == nil && !hairpin && source != from.addrs[f].String() {
						err = fmt.Errorf("seen as %s", source)
					}
					return err
				})
				if err != nil {
					t.Errorf("%s to the hostPort at %s by %s: %v", from.name, to, protocol, err)
				}
			}
		}
	}
}

// TestRemove: all that agents programmed is gone afterwards, and nothing else.
func TestRemove(t *testing.T) {
	w := newWorld(t)
	if w == nil {
		return
	}
	n := w.nodes[0]
	pods := n.ip("route show dev pod") + n.ip("-6 route show dev pod")
	n.kill()
	n.start(t) // a process that programs nothing
	var removed answer
	must(t, n.process.enc.Encode(command{Remove: true}))
	must(t, n.process.dec.Decode(&removed))
	for _, want := range []string{
		"rule from 10.244.1.0/24 lookup 80", "rule from fd00:244:1::/64 lookup 80", "route 10.244.2.0/24", "route unreachable 10.244.1.0/24", "route unreachable fd00:244:1::/64", "route fd00:244:3::/64",
		"route 198.51.100.3/32", "device portolan-vxlan", "table inet portolan-network",
	} {
		if !strings.Contains(strings.Join(removed.Removed, "\n")+"\n", want+"\n") {
			t.Errorf("%q is not among what was removed: %q", want, removed.Removed)
		}
	}
	if removed.Err != "" {
		t.Error(removed.Err)
	}
	left := n.ip("route show table all proto 80") + n.ip("-6 route show table all proto 80")
	if rules := n.ip("rule") + n.ip("-6 rule"); left != "" || strings.Contains(rules, "lookup 80") {
		t.Errorf("left: %s\n%s", left, rules)
	}
	if is := n.ip("route show dev pod") + n.ip("-6 route show dev pod"); is != pods {
		t.Errorf("routes to the Pod: %s, want %s", is, pods)
	}
}

// TestAdvertisements: a host that begins to forward goes on to accept router advertisements.
func TestAdvertisements(t *testing.T) {
	w := newWorld(t)
	if w == nil {
		return
	}
	n := w.nodes[0]
	sysctl := func(name string) (value string) {
		must(t, n.ns.Do(func() error {
			text, err := os.ReadFile("/proc/sys/net/" + name)
			value = strings.TrimSpace(string(text))
			return err
		}))
		return value
	}
	for name, want := range map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv6/conf/eth0/accept_ra": "2", "ipv4/conf/portolan-vxlan/rp_filter": "2",
		"ipv4/conf/eth0/rp_filter": "2",
	} {
		if is := sysctl(name); is != want {
			t.Errorf("net/%s is %s, want %s", name, is, want)
		}
	}
	// What refuses them on purpose goes on to do so.
	n.kill()
	namespacetest.Do(t, n.ns, func() {
		namespacetest.SetSysctl(t, "net/ipv6/conf/all/forwarding", "0")
		namespacetest.SetSysctl(t, "net/ipv6/conf/eth0/accept_ra", "0")
	})
	w.restart(n)
	if forwarding, accept := sysctl("ipv6/conf/all/forwarding"), sysctl("ipv6/conf/eth0/accept_ra"); forwarding != "1" || accept != "0" {
		t.Errorf("%v", errors.Join(fmt.Errorf("forwarding is %s, want 1", forwarding), fmt.Errorf("accept_ra is %s, want 0", accept)))
	}
}
