package policy

import (
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/internal/policy/droplog"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// TestForgedSources has a Pod send packets with the address of another, which policies allow: none passes, also
// after a restart of the agent, and the log names the Pod that sent them.
func TestForgedSources(t *testing.T) {
	s := withThree(t)
	if s == nil {
		return
	}
	db := listenUDP(t, s.db, port)
	namespacetest.Do(t, s.other.Network, func() {
		lo, err := netlink.LinkByName("lo")
		must(t, err)
		must(t, netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(s.web.Addr().AsSlice())}))
	})
	open := func(p *pod) (conn *net.UDPConn) {
		namespacetest.Do(t, p.Network, func() {
			var err error
			conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.web.Addr(), 0)))
			must(t, err)
		})
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	web, forging := open(s.web), open(s.other)
	check := func(when string) {
		t.Helper()
		for _, message := range []struct {
			from *net.UDPConn
			text string
		}{{forging, "forged"}, {web, "own"}} {
			_, err := message.from.WriteToUDPAddrPort([]byte(message.text), s.at())
			must(t, err)
		}
		buf := make([]byte, 100)
		n, _, err := db.ReadFrom(buf)
		must(t, err)
		if string(buf[:n]) != "own" {
			t.Errorf("%s: a Pod received a packet with the address of another Pod than sent it", when)
		}
	}
	check("at first")
	s.Replace(t, func() { check("without an agent") })
	check("after a restart")

	var got droplog.Record
	until(t, "the log has the packets", func() bool {
		_, err := forging.WriteToUDPAddrPort([]byte("forged"), s.at())
		must(t, err)
		for line := range strings.Lines(s.printed(t)) {
			must(t, json.Unmarshal([]byte(line), &got))
			if got.Event == "forged" {
				return true
			}
		}
		return false
	})
	if got.SourcePod != "shop/other" || got.Source != s.web.Addr() || got.DestinationPod != "shop/db" {
		t.Errorf("the line of the log is %+v", got)
	}

	// What a Pod had goes with it.
	if !strings.Contains(ruleset(t), s.other.Addr().String()) {
		t.Error("the rules lack the Pod's address")
	}
	s.Remove(t, s.other)
	until(t, "the rules lack the address of a Pod that ended", func() bool {
		return !strings.Contains(ruleset(t), s.other.Addr().String())
	})
}
