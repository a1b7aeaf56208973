package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

func init() {
	const peer = "peers: [{address: 127.0.0.1, asn: 65000, port: 1790%s}]"
	bgp := func(nodes, of string) string {
		return "bgp: {asn: " + nodes + ", " + fmt.Sprintf(peer, of) + "}"
	}
	plain := bgp("65001", "")
	maps.Copy(effects, map[string]func(*testing.T){
		"network.announce.enabled": func(t *testing.T) { wantARP(t, "enabled: false", "enabled: true") },
		"network.announce.interfaces": func(t *testing.T) {
			wantARP(t, "enabled: true, interfaces: [lan]", "enabled: true, interfaces: [uplink]")
		},
		"network.announce.nodeSelector": func(t *testing.T) {
			wantARP(t, "enabled: true, nodeSelector: rack=b", "enabled: true")
		},
		"network.announce.bgp.asn": func(t *testing.T) { wantBGP(t, plain, bgp("65009", ""), "fdf1", 0) },
		"network.announce.bgp.routerID": func(t *testing.T) {
			wantBGP(t, plain, strings.Replace(plain, "bgp: {", "bgp: {routerID: 192.0.2.77, ", 1), "c000024d", 0)
		},
		"network.announce.bgp.holdTime": func(t *testing.T) {
			wantBGP(t, plain, strings.Replace(plain, "bgp: {", "bgp: {holdTime: 4660s, ", 1), "fde91234", 0)
		},
		"network.announce.bgp.peers.address": func(t *testing.T) {
			wantBGP(t, strings.Replace(plain, "127.0.0.1", "127.0.0.2", 1), plain, "fde9", 0)
		},
		"network.announce.bgp.peers.asn": func(t *testing.T) {
			wantBGP(t, strings.Replace(plain, "asn: 65000", "asn: 65005", 1), plain, "20c00002c8", 1) // else it is refused
		},
		"network.announce.bgp.peers.port": func(t *testing.T) {
			wantBGP(t, strings.Replace(plain, "1790", "1791", 1), plain, "fde9", 0)
		},
		"network.announce.bgp.peers.passwordFile": func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "password") // which is not there: the agent does not connect without it
			wantBGP(t, bgp("65001", ", passwordFile: "+file), plain, "fde9", 0)
		},
		"network.announce.bgp.peers.communities": func(t *testing.T) {
			wantBGP(t, plain, bgp("65001", ", communities: ['65001:100']"), "fde90064", 1)
		},
		"network.announce.bgp.peers.localPreference": func(t *testing.T) {
			wantBGP(t, bgp("65000", ""), bgp("65000", ", localPreference: 287454020"), "11223344", 1)
		},
		"network.announce.bgp.peers.gracefulRestart": func(t *testing.T) {
			wantBGP(t, plain, bgp("65001", ", gracefulRestart: 291s"), "8123", 0)
		},
		"network.announce.bgp.peers.nodeSelector": func(t *testing.T) {
			wantBGP(t, bgp("65001", ", nodeSelector: rack=b"), plain, "fde9", 0)
		},
	})
}

// wantARP checks that a host on the node's link gets no answer to ARP requests for the address of a load balancer
// with the first settings of the section announce, and one with the others.
func wantARP(t *testing.T, without, with string) {
	t.Helper()
	answered := func(setting string) func() error {
		n := startNetwork(t, "announce: {"+setting+"}")
		host := namespacetest.New(t)
		inNetworkOf(t, n.process, func() {
			link, err := netlink.LinkByName("switch")
			if err == nil {
				err = netlink.LinkSetNsFd(link, host.Fd())
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		namespacetest.Do(t, host, func() { namespacetest.SetUp(t, "switch", netip.MustParsePrefix("192.0.2.9/24")) })
		return func() error {
			return host.Do(func() error {
				c, err := net.DialTimeout("tcp", "192.0.2.200:80", 500*time.Millisecond) // nobody accepts it
				if err == nil {
					c.Close()
				}
				link, err := netlink.LinkByName("switch")
				if err != nil {
					return err
				}
				all, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
				if err != nil {
					return err
				}
				for _, neighbor := range all {
					if neighbor.IP.String() == "192.0.2.200" && len(neighbor.HardwareAddr) > 0 {
						return nil
					}
				}
				return fmt.Errorf("%s: no answer: %v", setting, all)
			})
		}
	}
	yes, no := answered(with), answered(without)
	await.NoError(t, yes)
	if no() == nil {
		t.Errorf("announce: {%s}: the node answers", without)
	}
}

// wantBGP checks that what the agent sends a router, in the messages of a type up to which it is read (0 is OPEN, 1 are
// UPDATEs), has a text in hexadecimal digits with the second settings of the section announce, and not with the first.
func wantBGP(t *testing.T, without, with, want string, messages int) {
	t.Helper()
	for _, test := range []struct {
		setting string
		has     bool
	}{{with, true}, {without, false}} {
		got, err := routerReads(t, test.setting, messages)
		if has := strings.Contains(got, want); has != test.has {
			t.Errorf("announce: {%s}: the router reads %s, %v; has %s: %t, want the other", test.setting, got, err, want, has)
		}
	}
}

// routerReads starts a router and an agent, and returns what the agent sends in its OPEN, or in that and in the UPDATEs
// until it has told of its addresses.
func routerReads(t *testing.T, setting string, messages int) (text string, err error) {
	t.Helper()
	n := startNetwork(t, "announce: {enabled: true, "+setting+"}")
	var l *net.TCPListener
	inNetworkOf(t, n.process, func() {
		if l, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1790}); err != nil {
			t.Fatal(err)
		}
	})
	defer l.Close()
	const quiet = 3 * time.Second // an agent that does not connect
	if err := l.SetDeadline(time.Now().Add(quiet)); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(quiet))
	open, err := readBGP(c)
	if err != nil || messages == 0 {
		return hex.EncodeToString(open), err
	}
	// OPEN of AS 65000 with a hold time of 90 s, and KEEPALIVE (RFC 4271, sections 4.2 and 4.4).
	own := []byte{4, 0xfd, 0xe8, 0, 90, 192, 0, 2, 254, 8, 2, 6, 65, 4, 0, 0, 0xfd, 0xe8}
	if _, err := c.Write(append(bgpMessage(1, own), bgpMessage(4, nil)...)); err != nil {
		return "", err
	}
	for {
		message, err := readBGP(c)
		text += hex.EncodeToString(message)
		if strings.Contains(text, "20c00002c8") || errors.Is(err, io.EOF) || err != nil { // 192.0.2.200/32
			return text, err
		}
	}
}

// bgpMessage returns a message with its header (RFC 4271, section 4.1).
func bgpMessage(kind byte, body []byte) []byte {
	m := append(make([]byte, 0, 19+len(body)), []byte(strings.Repeat("\xff", 16))...)
	m = binary.BigEndian.AppendUint16(m, uint16(19+len(body)))
	return append(append(m, kind), body...)
}

func readBGP(c net.Conn) ([]byte, error) {
	header := make([]byte, 19)
	if _, err := io.ReadFull(c, header); err != nil {
		return nil, err
	}
	body := make([]byte, int(binary.BigEndian.Uint16(header[16:]))-19)
	_, err := io.ReadFull(c, body)
	return append(header[16:], body...), err
}
