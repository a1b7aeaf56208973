package settings

import (
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/network/announce/bgp"
)

// whole returns a section with all keys.
func whole() Announce {
	a := Default()
	a.Enabled = true
	a.Interfaces, a.NodeSelector = []string{"lan"}, "uplink=yes"
	a.BGP.ASN, a.BGP.RouterID = 65001, "192.0.2.1"
	a.BGP.Peers = []Peer{{
		Address: "192.0.2.250", ASN: 65002, Port: 1790, PasswordFile: "/run/secrets/bgp",
		Communities: []string{"65001:100", "no-export"}, LocalPreference: 200,
		GracefulRestart: key.Duration(2 * time.Minute), NodeSelector: "rack=a, edge==yes,bare=",
	}}
	return a
}

func TestCompile(t *testing.T) {
	t.Parallel()
	a := Default()
	if made, err := a.Compile(); err != nil || made.Enabled || made.BGP != nil {
		t.Errorf("Default().Compile() = %+v, %v", made, err)
	}
	a = whole()
	made, err := a.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(made.NodeSelector, map[string]string{"uplink": "yes"}) {
		t.Errorf("NodeSelector is %v", made.NodeSelector)
	}
	b, p := made.BGP, made.BGP.Peers[0]
	if b.ASN != 65001 || b.HoldTime != bgp.DefaultHoldTime || b.RouterID != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("BGP is %+v", b)
	}
	labels := map[string]string{"rack": "a", "edge": "yes", "bare": ""}
	if p.Address != netip.MustParseAddr("192.0.2.250") || p.ASN != 65002 || p.Port != 1790 || p.LocalPreference != 200 ||
		p.GracefulRestart != 2*time.Minute || !slices.Equal(p.Communities, []uint32{65001<<16 | 100, 0xffffff01}) ||
		!maps.Equal(p.NodeSelector, labels) {
		t.Errorf("the peer is %+v", p)
	}
}

// TestRefusals: what is wrong with a section is named with its key.
func TestRefusals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*Announce)
		want   string
	}{
		"an interface without a name": {func(a *Announce) { a.Interfaces = []string{""} }, "network.announce.interfaces: is empty"},
		"nodes by a set of values": {
			func(a *Announce) { a.NodeSelector = "rack in (a,b)" },
			`network.announce.nodeSelector: "rack in (a,b)" is not labels, such as rack=a,edge=yes`,
		},
		"a label with two values": {
			func(a *Announce) { a.NodeSelector = "rack=a,rack=b" },
			`network.announce.nodeSelector: "rack=a,rack=b" has the label rack twice: a node has one value of it`,
		},
		"a name that no label has": {
			func(a *Announce) { a.NodeSelector = "top rack=a" },
			`network.announce.nodeSelector: "top rack=a" is not labels, such as rack=a,edge=yes`,
		},
		"a value that no label has": {
			func(a *Announce) { a.BGP.Peers[0].NodeSelector = "rack=a b" },
			`network.announce.bgp.peers.nodeSelector: "rack=a b" is not labels, such as rack=a,edge=yes`,
		},
		"peers without announcements": {
			func(a *Announce) { a.Enabled = false },
			"network.announce.enabled: is false: peers of network.announce.bgp need true",
		},
		"an ID of IPv6": {
			func(a *Announce) { a.BGP.RouterID = "::1" }, `network.announce.bgp.routerID: "::1" is not an address of IPv4`,
		},
		"no number of the nodes": {
			func(a *Announce) { a.BGP.ASN = 0 }, "network.announce.bgp.asn: is missing: peers need the nodes' AS number",
		},
		"no address": {
			func(a *Announce) { a.BGP.Peers[0].Address = "tor" },
			`network.announce.bgp.peers.address: "tor" is not the address of a router`,
		},
		"no number of the router": {func(a *Announce) { a.BGP.Peers[0].ASN = 0 }, "network.announce.bgp.peers.asn: is missing"},
		"a community too large": {
			func(a *Announce) { a.BGP.Peers[0].Communities = []string{"65536:1"} },
			`network.announce.bgp.peers.communities: "65536:1" is not a community, such as 65001:100 or no-export`,
		},
		"many communities": {
			func(a *Announce) { a.BGP.Peers[0].Communities = slices.Repeat([]string{"1:1"}, 65) },
			"network.announce.bgp.peers.communities: 65 are more than 64",
		},
		"a selector with an operator": {
			func(a *Announce) { a.BGP.Peers[0].NodeSelector = "rack!=a" },
			`network.announce.bgp.peers.nodeSelector: "rack!=a" is not labels, such as rack=a,edge=yes`,
		},
		"a relative file": {
			func(a *Announce) { a.BGP.Peers[0].PasswordFile = "bgp" },
			`network.announce.bgp.peers.passwordFile: "bgp" is not an absolute path`,
		},
		"a router twice": {
			func(a *Announce) { a.BGP.Peers = append(a.BGP.Peers, a.BGP.Peers[0]) },
			"network.announce.bgp.peers.address: 192.0.2.250 is given twice",
		},
	}
	for claim, test := range tests {
		a := whole()
		test.change(&a)
		_, err := a.Compile()
		var of *key.Error
		if !errors.As(err, &of) || err.Error() != test.want {
			t.Errorf("%s: Compile() = %v, want %s", claim, err, test.want)
		} else if _, known := Keys.Find(of.Path); !known {
			t.Errorf("%s: there is no key %s", claim, of.Path)
		}
	}
}

// TestPassword: the password is read for each connection, without the line feed at its end.
func TestPassword(t *testing.T) {
	t.Parallel()
	a := whole()
	file := filepath.Join(t.TempDir(), "password")
	a.BGP.Peers[0].PasswordFile = file
	made, err := a.Compile()
	if err != nil {
		t.Fatal(err)
	}
	read := made.BGP.Peers[0].Password
	if _, err := read(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	for text, want := range map[string]string{"secret\n": "secret", "with spaces \r\n": "with spaces "} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := read(); got != want || err != nil {
			t.Errorf("of %q: %q, %v", text, got, err)
		}
	}
	if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); err == nil || !strings.HasSuffix(err.Error(), "is empty") {
		t.Errorf("of an empty line: %v", err)
	}
}
