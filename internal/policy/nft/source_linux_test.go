package nft_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/ruleset/rulesettest"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// withDevices is rules with the devices of Pods a and b.
func (w *world) withDevices(ingress, egress []ruleset.Rule) *rulesettest.State {
	s := rules(ingress, egress)
	chains, _ := s.Pod(podA[0])
	s.PutDevice(w.devices[podA[0]], ruleset.Device{Addrs: podA[:], Egress: chains.Egress})
	s.PutDevice(w.devices[podB[0]], ruleset.Device{Addrs: podB[:]})
	return s
}

// TestForgedSources: what comes by the device of a Pod has one of its addresses, whoever it is for.
func TestForgedSources(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	l, table := newLab(w), w.table()
	must(t, table.Sync(w.withDevices(nil, []ruleset.Rule{{Peers: "outer"}, deny})))
	for _, test := range []struct {
		claim            string
		sender, from, to [2]netip.Addr
		want             bool
	}{
		{"its own address", podA, podA, outside, true},
		{"its own address, to what its policies deny", podA, podA, podB, false},
		{"that of another Pod, which may", podA, podB, outside2, false},
		{"that of another Pod, to the node", podA, podB, nodeInside, false},
		{"that of another Pod, to the same Pod", podA, podC, podB, false},
		{"that of a host outside", podA, outside2, podB, false},
		{"that of the node", podA, nodeInside, podB, false},
		{"that of no Pod", podA, unknown, podB, false},
		{"the other Pod's own address", podB, podB, podA, true},
		{"a Pod whose device is not known", podC, podB, outside, true},
		{"a host outside", outside, outside2, podB, true},
		{"the node", nodeInside, nodeInside, podA, true},
	} {
		for i, family := range []string{"IPv4", "IPv6"} {
			for _, protocol := range protocols {
				p := packet{sender: test.sender[i], from: test.from[i], to: test.to[i], protocol: protocol, port: 80}
				if got := l.pass([]packet{p}, []bool{test.want}); got[0] != test.want {
					t.Errorf("%s, %s: %s passed: %v", test.claim, family, p, got[0])
				}
			}
		}
	}
	counters, err := table.Counters()
	must(t, err)
	var forged uint64
	for _, c := range counters {
		if c.Event == nft.Forged {
			forged += c.Packets
		}
	}
	if want := uint64(11 * len(protocols)); forged != want { // the kernel drops IPv4 packets from itself
		t.Errorf("%d packets with addresses of others were counted, want %d", forged, want)
	}
}

// TestForgedFlow: a Pod cannot send packets of the established flow of another.
func TestForgedFlow(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	l, table := newLab(w), w.table()
	for i, network := range []string{"udp4", "udp6"} {
		listen := func(a netip.Addr, port uint16) (conn *net.UDPConn) {
			namespacetest.Do(t, w.hosts[a], func() {
				var err error
				conn, err = net.ListenUDP(network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, port)))
				must(t, err)
			})
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		server, client := listen(podB[i], 5000), listen(outside[i], 6000)
		to := client.LocalAddr().(*net.UDPAddr).AddrPort()
		receive := func(c *net.UDPConn) string {
			t.Helper()
			buf := make([]byte, 100)
			must(t, c.SetReadDeadline(time.Now().Add(patience)))
			n, _, err := c.ReadFrom(buf)
			must(t, err)
			return string(buf[:n])
		}
		_, err := client.WriteToUDPAddrPort([]byte("question"), server.LocalAddr().(*net.UDPAddr).AddrPort())
		must(t, err)
		receive(server)
		forge := func() {
			const fromPort5000 = 5000 - 1024 // see encodePacket
			data := encodePacket(packet{from: podB[i], to: outside[i], protocol: ruleset.UDP, port: 6000}, fromPort5000)
			var sockaddr unix.Sockaddr = &unix.SockaddrInet4{Addr: netip.AddrFrom4([4]byte(outside[0].AsSlice())).As4()}
			if i == 1 {
				sockaddr = &unix.SockaddrInet6{Addr: outside[1].As16()}
			}
			must(t, unix.Sendto(l.senders[w.hosts[podA[i]]][i], data, 0, sockaddr))
		}
		answer := func(text string) {
			_, err := server.WriteToUDPAddrPort([]byte(text), to)
			must(t, err)
		}
		answer("first")
		if got := receive(client); got != "first" {
			t.Fatalf("%s: the client received %q", network, got)
		}
		_, err = nft.Cleanup(nft.DefaultName)
		must(t, err)
		forge()
		if got := receive(client); len(got) != 4 {
			t.Fatalf("%s: without a table the client received %q, not what another Pod sent", network, got)
		}
		must(t, table.Sync(w.withDevices(nil, nil)))
		forge()
		answer("second")
		if got := receive(client); got != "second" {
			t.Errorf("%s: the client received %q, of another Pod", network, got)
		}
	}
}

// TestLinkLocal: what a Pod sends from its address of the link is judged, and neighbor discovery works.
func TestLinkLocal(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	table := w.table()
	node, err := net.ListenTCP("tcp6", &net.TCPAddr{Port: 7000})
	must(t, err)
	defer node.Close()
	linkLocal := func(device string) (addr netip.Addr) {
		link, err := netlink.LinkByName(device)
		must(t, err)
		w.until("the device has an address of the link", func() bool {
			all, err := netlink.AddrList(link, netlink.FAMILY_V6)
			must(t, err)
			for _, a := range all {
				if ip, _ := netip.AddrFromSlice(a.IP); ip.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0 {
					addr = ip
				}
			}
			return addr.IsValid()
		})
		return addr
	}
	to := linkLocal("pod-a")
	var own netip.Addr
	namespacetest.Do(t, w.hosts[podA[0]], func() { own = linkLocal("eth0") })
	connects := func(from netip.Addr, limit time.Duration) (connected bool) {
		namespacetest.Do(t, w.hosts[podA[0]], func() {
			local := &net.TCPAddr{IP: from.AsSlice()}
			if from.IsLinkLocalUnicast() {
				local.Zone = "eth0"
			}
			dialer := net.Dialer{LocalAddr: local, Timeout: limit}
			conn, err := dialer.DialContext(t.Context(), "tcp6", netip.AddrPortFrom(to.WithZone("eth0"), 7000).String())
			if connected = err == nil; connected {
				conn.Close()
			}
		})
		return connected
	}
	toNode := ruleset.Rule{Where: ruleset.ToNode}
	for claim, test := range map[string]struct {
		egress []ruleset.Rule
		want   bool
	}{
		"nothing restricts the Pod": {nil, true},
		"the node is allowed":       {[]ruleset.Rule{toNode, deny}, true},
		"the node is not allowed":   {[]ruleset.Rule{deny}, false},
	} {
		must(t, table.Sync(w.withDevices(nil, test.egress)))
		limit := time.Second
		if test.want {
			limit = patience
		}
		for _, from := range []netip.Addr{own, podA[1]} {
			if got := connects(from, limit); got != test.want {
				t.Errorf("%s: a connection from %s to %s was made: %v", claim, from, to, got)
			}
		}
	}
	if v, err := nft.Judge("", ruleset.Egress, ruleset.Packet{Source: own, Destination: to, Protocol: ruleset.TCP, Device: w.devices[podA[0]], ToNode: true}); err != nil {
		t.Error(v, err)
	}

	// Nothing but neighbor discovery passes now.
	must(t, table.Sync(w.withDevices([]ruleset.Rule{deny}, []ruleset.Rule{deny})))
	gateway, err := netlink.LinkByName("pod-a")
	must(t, err)
	all, err := netlink.AddrList(gateway, netlink.FAMILY_V6)
	must(t, err)
	namespacetest.Do(t, w.hosts[podA[0]], func() {
		namespacetest.SetSysctl(t, "net/ipv6/conf/eth0/accept_dad", "1")
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		for _, taken := range all { // RFC 4862, section 5.4: from the unspecified address
			must(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: taken.IP, Mask: net.CIDRMask(64, 128)}}))
			w.until("the Pod notices that the node has an address", func() bool {
				own, err := netlink.AddrList(link, netlink.FAMILY_V6)
				must(t, err)
				for _, a := range own {
					if a.IP.Equal(taken.IP) && a.Flags&unix.IFA_F_DADFAILED != 0 {
						return true
					}
				}
				return false
			})
		}
	})
	must(t, netlink.NeighDel(&netlink.Neigh{LinkIndex: gateway.Attrs().Index, Family: netlink.FAMILY_V6, IP: podA[1].AsSlice()}))
	w.until("the node finds the Pod", func() bool {
		conn, err := net.DialTimeout("tcp6", netip.AddrPortFrom(podA[1], 9).String(), time.Second)
		if err == nil {
			conn.Close()
		}
		list, err := netlink.NeighList(gateway.Attrs().Index, netlink.FAMILY_V6)
		must(t, err)
		for _, n := range list {
			if n.IP.Equal(podA[1].AsSlice()) && n.State&(netlink.NUD_REACHABLE|netlink.NUD_STALE|netlink.NUD_DELAY) != 0 {
				return true
			}
		}
		return false
	})
}

// until waits for a condition.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	for begin := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			w.t.Fatalf("not in time: %s", what)
		}
	}
}
