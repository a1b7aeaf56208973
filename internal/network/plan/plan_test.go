package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/route"
)

// theHost has a link with node-2, and none with node-3.
var theHost = route.Host{Interfaces: []route.Interface{
	{Name: "lo", Index: 1, MTU: 65536, Up: true, Addresses: prefixList("127.0.0.1/8")},
	{Name: "eth0", Index: 2, MTU: 1500, Up: true, Addresses: prefixList("192.0.2.1/24", "2001:db8::1/64")},
}}

// bridged is theHost with a bridge of another network.
func bridged() route.Host {
	docker := route.Interface{Name: "docker0", Index: 3, MTU: 1500, Addresses: prefixList("172.17.0.1/16")}
	return route.Host{Interfaces: append(slices.Clone(theHost.Interfaces), docker)}
}

// TestPeers: how the Pods of other Nodes are reached.
func TestPeers(t *testing.T) {
	t.Parallel()
	near := node2("192.0.2.2", "2001:db8::2")
	far := node2("198.51.100.2", "2001:db8:1::2")
	mac, via := route.MACOf("node-2"), route.MACOf("node-2").LinkLocal()
	const direct = "10.244.2.0/24 via 192.0.2.2 dev eth0 src 192.0.2.1\nfd02::/64 via 2001:db8::2 dev eth0 src 2001:db8::1\n"
	tunneled := fmt.Sprintf(`10.244.2.0/24 via 198.51.100.2 dev portolan-vxlan onlink src 192.0.2.1
198.51.100.2/32 via 198.51.100.2 dev portolan-vxlan onlink src 192.0.2.1 table 80
fd02::/64 via %[2]s dev portolan-vxlan onlink src 2001:db8::1
2001:db8:1::2/128 via %[2]s dev portolan-vxlan onlink src 2001:db8::1 table 80
198.51.100.2 lladdr %[1]s dev portolan-vxlan
%[2]s lladdr %[1]s dev portolan-vxlan
%[1]s dst 198.51.100.2 dev portolan-vxlan
rules 10.244.1.0/24 fd01::/64
`, mac, via)
	for claim, test := range map[string]struct {
		change func(*Config, *cluster.Node) // of the configuration and the other Node
		other  cluster.Node
		want   string
	}{
		"a node on the same link is reached directly": {nil, near, direct},
		"one elsewhere by a tunnel":                   {nil, far, tunneled},
		"each family by its own way": {nil, node2("192.0.2.2", "2001:db8:1::2"), fmt.Sprintf(`10.244.2.0/24 via 192.0.2.2 dev eth0 src 192.0.2.1
fd02::/64 via %[2]s dev portolan-vxlan onlink src 2001:db8::1
2001:db8:1::2/128 via %[2]s dev portolan-vxlan onlink src 2001:db8::1 table 80
%[2]s lladdr %[1]s dev portolan-vxlan
%[1]s dst 192.0.2.2 dev portolan-vxlan
rules fd01::/64
`, mac, via)},
		"the outer packets are of a family that both have": {nil, node2("2001:db8:1::2"), fmt.Sprintf(`10.244.2.0/24 via %[2]s dev portolan-vxlan6 onlink src 192.0.2.1
fd02::/64 via %[2]s dev portolan-vxlan6 onlink src 2001:db8::1
2001:db8:1::2/128 via %[2]s dev portolan-vxlan6 onlink src 2001:db8::1 table 80
%[2]s lladdr %[1]s dev portolan-vxlan6
%[1]s dst 2001:db8:1::2 dev portolan-vxlan6
rules fd01::/64
`, mac, via)},
		"never a tunnel": {
			func(c *Config, _ *cluster.Node) { c.Encapsulation = Never }, far,
			"verdict podCIDR 10.244.2.0/24: the node is on no link of the host, and network.encapsulation is never\n" +
				"verdict podCIDR fd02::/64: the node is on no link of the host, and network.encapsulation is never\n",
		},
		"never a tunnel, on the same link": {func(c *Config, _ *cluster.Node) { c.Encapsulation = Never }, near, direct},
		"always a tunnel": {
			func(c *Config, n *cluster.Node) { c.Encapsulation = Always; n.PodCIDRs = n.PodCIDRs[:1] }, node2("192.0.2.2"),
			strings.NewReplacer("MAC", mac.String()).Replace(`10.244.2.0/24 via 192.0.2.2 dev portolan-vxlan onlink src 192.0.2.1
192.0.2.2/32 via 192.0.2.2 dev portolan-vxlan onlink src 192.0.2.1 table 80
192.0.2.2 lladdr MAC dev portolan-vxlan
MAC dst 192.0.2.2 dev portolan-vxlan
rules 10.244.1.0/24
`),
		},
		"a tunnel, but not to the node itself": {
			func(c *Config, n *cluster.Node) { c.NodesOutside = true; n.PodCIDRs = n.PodCIDRs[:1] }, far,
			strings.NewReplacer("MAC", mac.String()).Replace(`10.244.2.0/24 via 198.51.100.2 dev portolan-vxlan onlink src 192.0.2.1
198.51.100.2 lladdr MAC dev portolan-vxlan
MAC dst 198.51.100.2 dev portolan-vxlan
`),
		},
		"encrypted, on the same link": {
			func(c *Config, n *cluster.Node) { encrypting(c, n, Unreachable) }, near, encrypted("192.0.2.2", "2001:db8::2", via),
		},
		"encrypted, elsewhere, without tunnels of VXLAN": {
			func(c *Config, n *cluster.Node) { encrypting(c, n, Unencrypted); c.Encapsulation = Never }, far,
			encrypted("198.51.100.2", "2001:db8:1::2", via),
		},
		"encrypted packets to nodes never go outside of the tunnel": {
			func(c *Config, n *cluster.Node) { encrypting(c, n, Unreachable); c.NodesOutside = true }, near,
			encrypted("192.0.2.2", "2001:db8::2", via),
		},
		"without a key, nothing leaves unencrypted": {
			func(c *Config, n *cluster.Node) { encrypting(c, n, Unreachable); n.WireGuardKey = [32]byte{} }, near,
			"unreachable 10.244.2.0/24\nunreachable fd02::/64\nverdict podCIDR 10.244.2.0/24: the node has no key for an encrypted tunnel\n" +
				"verdict podCIDR fd02::/64: the node has no key for an encrypted tunnel\n",
		},
		"without a key, as without encryption, where that is allowed": {
			func(c *Config, n *cluster.Node) { encrypting(c, n, Unencrypted); n.WireGuardKey = [32]byte{} }, far, tunneled,
		},
		"the key of an older Node is none": {
			func(c *Config, n *cluster.Node) { encrypting(c, n, Unreachable); n.WireGuardKey = [32]byte{1} }, node2("192.0.2.2"),
			"unreachable 10.244.2.0/24\nunreachable fd02::/64\n" +
				"verdict podCIDR 10.244.2.0/24: Node node-1 has the same key for encrypted tunnels\n" +
				"verdict podCIDR fd02::/64: Node node-1 has the same key for encrypted tunnels\n",
		},
		"no range": {func(_ *Config, n *cluster.Node) { n.PodCIDRs = nil }, near, "verdict no podCIDR\n"},
		"no address": {
			nil, node2("127.0.0.1", "169.254.1.1", "fe80::1"), "verdict no usable InternalIP\n",
		},
		"a range in which the host is": {
			func(_ *Config, n *cluster.Node) { n.PodCIDRs[0] = prefixList("192.0.2.0/24")[0] }, near,
			"fd02::/64 via 2001:db8::2 dev eth0 src 2001:db8::1\n" +
				"verdict podCIDR 192.0.2.0/24 has 192.0.2.1, an address of the host\n",
		},
		"a range that takes everything": {
			func(_ *Config, n *cluster.Node) { n.PodCIDRs[0], n.Created = prefixList("0.0.0.0/0")[0], -1 }, near,
			"fd02::/64 via 2001:db8::2 dev eth0 src 2001:db8::1\n" +
				"verdict podCIDR 0.0.0.0/0 is no range of a node: it has less than 8 bits\n",
		},
		"the range of an older Node": {
			func(_ *Config, n *cluster.Node) { n.PodCIDRs[0], n.Created = prefixList("10.244.0.0/16")[0], 9 }, near,
			"fd02::/64 via 2001:db8::2 dev eth0 src 2001:db8::1\n" +
				"verdict podCIDR 10.244.0.0/16 overlaps one of Node node-1, which has it\n",
		},
		"the address of an older Node": {
			func(_ *Config, n *cluster.Node) { n.Created = 9 }, node2("192.0.2.1"),
			"verdict Node node-1 has the InternalIP 192.0.2.1\n",
		},
		"the MAC of another Node": {
			func(c *Config, _ *cluster.Node) { c.mac = func(string) route.MAC { return route.MAC{2} } }, far,
			"verdict podCIDR 10.244.2.0/24: Node node-1 has the same MAC in tunnels\n" +
				"verdict podCIDR fd02::/64: Node node-1 has the same MAC in tunnels\n",
		},
	} {
		cfg, other := Config{Node: "node-1", Encapsulation: CrossSubnet, VNI: 80, Port: 4789}, other(test.other)
		if test.change != nil {
			test.change(&cfg, other)
		}
		c := NewCompiler(cfg)
		own := node1()
		own.WireGuardKey = [32]byte{1}
		if got := text(compiled(t, c, theHost, own, other), c.Verdicts("node-2")); got != test.want {
			t.Errorf("%s: (-want +got)\n%s", claim, cmp.Diff(test.want, got))
		}
	}
}

// encrypting has nodes encrypt, and gives one a key.
func encrypting(c *Config, n *cluster.Node, k Keyless) {
	c.Encryption, c.WireGuardPort, c.Keyless = WireGuard, 51820, k
	n.WireGuardKey = [32]byte{2}
}

// encrypted is how a node with these addresses is reached.
func encrypted(addr4, addr6 string, via netip.Addr) string {
	return strings.NewReplacer("ADDR4", addr4, "ADDR6", addr6, "VIA", via.String()).Replace(
		`10.244.2.0/24 via ADDR4 dev portolan-wg onlink src 192.0.2.1
ADDR4/32 via ADDR4 dev portolan-wg onlink src 192.0.2.1 table 80
fd02::/64 via VIA dev portolan-wg onlink src 2001:db8::1
ADDR6/128 via VIA dev portolan-wg onlink src 2001:db8::1 table 80
unreachable 10.244.2.0/24
unreachable fd02::/64
peer AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= at ADDR4:51820 from 10.244.2.0/24 fd02::/64 ADDR4/32 ADDR6/128
rules 10.244.1.0/24 fd01::/64
`)
}

// other is a copy of a Node that can be changed.
func other(n cluster.Node) *cluster.Node {
	n.PodCIDRs = slices.Clone(n.PodCIDRs)
	return &n
}

// TestLocal: what the own node has.
func TestLocal(t *testing.T) {
	t.Parallel()
	near, far6 := node2("192.0.2.2"), node2("2001:db8:1::2")
	for claim, test := range map[string]struct {
		cfg     Config
		own     *cluster.Node
		other   cluster.Node
		want    string
		verdict string
	}{
		"the MTU is the uplink's less encapsulation": {Config{Encapsulation: CrossSubnet}, node1(), near, "1450 portolan-vxlan 192.0.2.1 1450", ""},
		"without encapsulation all of it":            {Config{Encapsulation: Never}, node1(), near, "1500", ""},
		"or as configured":                           {Config{Encapsulation: CrossSubnet, MTU: 1280}, node1(), near, "1280 portolan-vxlan 192.0.2.1 1280", ""},
		"outer packets of IPv6 take more": {
			Config{Encapsulation: CrossSubnet}, &cluster.Node{Name: "node-1", InternalIPs: addrList("2001:db8::1"), PodCIDRs: prefixList("fd01::/64")},
			near, "1430 portolan-vxlan6 2001:db8::1 1430", "",
		},
		"a device of each family, if a Node has IPv6 alone": {
			Config{Encapsulation: CrossSubnet}, node1(), far6, "1450 portolan-vxlan 192.0.2.1 1450 portolan-vxlan6 2001:db8::1 1430", "",
		},
		"encryption takes more": {Config{Encryption: WireGuard}, node1(), near, "1440 portolan-wg 1440", ""},
		"and yet more with outer packets of IPv6": {
			Config{Encryption: WireGuard}, node1(), keyed(far6), "1440 portolan-wg 1420", "",
		},
		"both kinds of tunnels, while nodes move to encryption": {
			Config{Encapsulation: Always, Encryption: WireGuard, Keyless: Unencrypted}, node1(), near,
			"1440 portolan-vxlan 192.0.2.1 1440 portolan-wg 1440", "",
		},
		"the device of encryption stays without an address": {
			Config{Encryption: WireGuard}, &cluster.Node{Name: "node-1", InternalIPs: addrList("192.0.2.9"), PodCIDRs: prefixList("10.244.1.0/24")},
			near, "0 portolan-wg 0", "no interface of the host has the InternalIP 192.0.2.9",
		},
		"an address that the host does not have": {
			Config{Encapsulation: CrossSubnet}, &cluster.Node{Name: "node-1", InternalIPs: addrList("192.0.2.9"), PodCIDRs: prefixList("10.244.1.0/24")},
			near, "0", "no interface of the host has the InternalIP 192.0.2.9",
		},
		"the own Node is missing": {
			Config{Encapsulation: CrossSubnet}, &cluster.Node{Name: "node-9"}, near, "0", "the own Node is not in the cluster",
		},
	} {
		test.cfg.Node = "node-1"
		c := NewCompiler(test.cfg)
		l := compiled(t, c, theHost, test.own, other(test.other)).Routes.Local
		words := []string{strconv.Itoa(l.MTU)}
		for _, d := range l.Devices {
			words = append(words, d.Name)
			if d.Local.IsValid() {
				words = append(words, d.Local.String())
			}
			words = append(words, strconv.Itoa(d.MTU))
		}
		got := strings.Join(words, " ")
		var verdict []string
		for _, v := range c.Verdicts("node-1") {
			verdict = append(verdict, v.String())
		}
		if got != test.want || strings.Join(verdict, "; ") != test.verdict {
			t.Errorf("%s: %q, verdicts %q, want %q, %q", claim, got, verdict, test.want, test.verdict)
		}
	}
}

func keyed(n cluster.Node) cluster.Node {
	n.WireGuardKey = [32]byte{2}
	return n
}

// TestUnreachable: which own ranges are unreachable but for their Pods.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		change func(own *cluster.Node)
		want   []netip.Prefix
	}{
		"the node's": {func(*cluster.Node) {}, prefixList("10.244.1.0/24", "fd01::/64")},
		"not what an older Node has": {
			func(own *cluster.Node) { own.PodCIDRs, own.Created = prefixList("10.244.0.0/16", "fd01::/64"), 9 }, prefixList("fd01::/64"),
		},
		"but what a younger Node claims, too": {
			func(own *cluster.Node) { own.PodCIDRs = prefixList("10.244.0.0/16") }, prefixList("10.244.0.0/16"),
		},
		"not what other hosts of a link may have": {
			func(own *cluster.Node) { own.PodCIDRs = prefixList("192.0.2.128/25", "2001:db8::/64", "fd01::/64") }, prefixList("fd01::/64"),
		},
		"not what has a whole link of the host, which the route would cut off": {
			func(own *cluster.Node) { own.PodCIDRs = prefixList("192.0.0.0/8", "fd01::/64") }, prefixList("fd01::/64"),
		},
		"not what has any address of the host": {
			func(own *cluster.Node) { own.PodCIDRs = prefixList("172.17.0.0/24", "fd01::/64") }, prefixList("fd01::/64"),
		},
	} {
		own, other := node1(), node2("192.0.2.2")
		test.change(own)
		c := NewCompiler(Config{Node: "node-1", Encapsulation: CrossSubnet})
		if got := compiled(t, c, bridged(), own, &other).Routes.Local.Unreachable; !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", claim, got, test.want)
		}
	}
}

// TestOwnRange: the own Node's range is refused if a Pod could get an address of the node, or if it is too wide.
func TestOwnRange(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"192.0.2.0/25":    "podCIDR 192.0.2.0/25 has 192.0.2.1, an address of the host",
		"192.0.2.128/25":  "",
		"198.51.100.0/24": "podCIDR 198.51.100.0/24 has 198.51.100.7, an address of the host",
		"172.17.0.0/24":   "podCIDR 172.17.0.0/24 has 172.17.0.1, an address of the host",
		"0.0.0.0/7":       "podCIDR 0.0.0.0/7 is no range of a node: it has less than 8 bits",
		"11.0.0.0/8":      "",
		"fd00::/31":       "podCIDR fd00::/31 is no range of a node: it has less than 32 bits",
		"fd00::/32":       "",
	} {
		own := node1()
		own.PodCIDRs[0] = netip.MustParsePrefix(text)
		own.InternalIPs = append(own.InternalIPs, netip.MustParseAddr("198.51.100.7")) // outside of the host, as by NAT
		c := NewCompiler(Config{Node: "node-1", Encapsulation: CrossSubnet})
		compiled(t, c, bridged(), own)
		var said []string
		for _, v := range c.Verdicts("node-1") {
			said = append(said, v.String())
		}
		if got := strings.Join(said, "; "); got != want {
			t.Errorf("Verdicts of a Node with %s: %q, want %q", text, got, want)
		}
	}
}

// TestRanges: Pods keep their address to Pods, Services and nodes, whatever contains what.
func TestRanges(t *testing.T) {
	t.Parallel()
	c := NewCompiler(Config{Node: "node-1", NonMasquerade: prefixList("10.244.2.0/23", "172.16.0.0/12")})
	n := node2("192.0.2.2", "10.244.1.9")
	got := compiled(t, c, theHost, node1(), &n, &cluster.ServiceCIDR{Name: "kubernetes", CIDRs: prefixList("10.96.0.0/16")}).Ranges
	want := prefixList(
		"10.96.0.0/16", "10.244.1.0/24", "10.244.2.0/23", "172.16.0.0/12", "192.0.2.1/32", "192.0.2.2/32",
		"2001:db8::1/128", "fd01::/64", "fd02::/64",
	)
	if !slices.Equal(got.Cluster, want) || !slices.Equal(got.Pods, prefixList("10.244.1.0/24", "fd01::/64")) {
		t.Errorf("Ranges: %v, want those of the cluster to be %v", got, want)
	}
}

// BenchmarkNode: a Node changes among 5,000.
func BenchmarkNode(b *testing.B) {
	store := cluster.NewStore()
	many := func(i int) *cluster.Node {
		return &cluster.Node{
			Name:        fmt.Sprintf("node-%d", i),
			InternalIPs: []netip.Addr{netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})},
			PodCIDRs: []netip.Prefix{
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24),
				netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 6: byte(i >> 8), 7: byte(i)}), 64),
			},
		}
	}
	store.Update(func(tx *cluster.Tx) {
		for i := range 5000 {
			tx.Put(many(i))
		}
	})
	host := route.Host{Interfaces: []route.Interface{{Name: "eth0", Index: 2, MTU: 1500, Up: true, Addresses: prefixList("172.16.0.0/22")}}}
	c := NewCompiler(Config{Node: "node-0", Encapsulation: CrossSubnet, VNI: 80, Port: 4789})
	store.View(func(v *cluster.View) { c.All(v, host) })
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			store.View(func(v *cluster.View) { c.All(v, host) })
		}
	})
	b.Run("one", func(b *testing.B) {
		i := 0
		for b.Loop() {
			b.StopTimer()
			n := many(2500)
			n.InternalIPs[0] = netip.AddrFrom4([4]byte{172, 17, 0, byte(i)})
			i++
			store.Update(func(tx *cluster.Tx) { tx.Put(n) })
			b.StartTimer()
			store.View(func(v *cluster.View) {
				if len(c.Apply(v, slices.Values([]string{n.Name})).Routes.Put) != 1 {
					b.Fatal("no change")
				}
			})
		}
	})
}

func compiled(t *testing.T, c *Compiler, h route.Host, objects ...cluster.Object) (s *State) {
	t.Helper()
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for _, o := range objects {
			tx.Put(o)
		}
	})
	store.View(func(v *cluster.View) { s = c.All(v, h) })
	return s
}

func node1() *cluster.Node {
	return &cluster.Node{
		Name: "node-1", InternalIPs: addrList("192.0.2.1", "2001:db8::1"), PodCIDRs: prefixList("10.244.1.0/24", "fd01::/64"), Created: 1,
	}
}

func node2(addrs ...string) cluster.Node {
	return cluster.Node{Name: "node-2", InternalIPs: addrList(addrs...), PodCIDRs: prefixList("10.244.2.0/24", "fd02::/64"), Created: 2}
}

// text is a state in the words of ip(8), and verdicts.
func text(s *State, verdicts []Verdict) string {
	var b strings.Builder
	for _, p := range s.Routes.Peers {
		for _, r := range p.Routes {
			fmt.Fprintf(&b, "%s via %s dev %s", r.To, r.Via, r.Device)
			if r.OnLink {
				b.WriteString(" onlink")
			}
			if r.Source.IsValid() {
				fmt.Fprintf(&b, " src %s", r.Source)
			}
			if r.Table != 0 {
				fmt.Fprintf(&b, " table %d", r.Table)
			}
			b.WriteString("\n")
		}
		for _, n := range p.Neighbors {
			fmt.Fprintf(&b, "%s lladdr %s dev %s\n", n.Addr, n.MAC, n.Device)
		}
		for _, f := range p.Forwards {
			fmt.Fprintf(&b, "%s dst %s dev %s\n", f.MAC, f.To, f.Device)
		}
		for _, u := range p.Unreachable {
			fmt.Fprintf(&b, "unreachable %s\n", u)
		}
	}
	for _, p := range s.Tunnels {
		fmt.Fprintf(&b, "peer %s at %s from %s\n", p.Key, p.Endpoint, strings.Trim(fmt.Sprint(p.Allowed), "[]"))
	}
	if rules := s.Routes.Local.Rules; len(rules) > 0 {
		fmt.Fprintf(&b, "rules %s\n", strings.Trim(fmt.Sprint(rules), "[]"))
	}
	for _, v := range verdicts {
		fmt.Fprintf(&b, "verdict %s\n", v)
	}
	return b.String()
}

func prefixList(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func addrList(texts ...string) (all []netip.Addr) {
	for _, s := range texts {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}
