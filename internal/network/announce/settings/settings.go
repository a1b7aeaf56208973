// Package settings declares the part of the configuration file for announcing the addresses of load balancers: its
// keys, its defaults and what it compiles to.
package settings

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/network/announce/bgp"
	"portolan.dev/portolan/internal/support/deadline"
)

// Announce is the section network.announce.
type Announce struct {
	Enabled bool `yaml:"enabled"`
	// Interfaces are the names of those on which addresses are announced; none are those whose prefix contains the
	// address.
	Interfaces []string `yaml:"interfaces"`
	// NodeSelector is labels of the nodes that announce addresses, as in a=b,c=d; empty is all nodes.
	NodeSelector string `yaml:"nodeSelector"`
	BGP          BGP    `yaml:"bgp"`
}

// BGP is the section of routers. Without peers, none is told.
type BGP struct {
	ASN      int          `yaml:"asn"`
	RouterID string       `yaml:"routerID"`
	HoldTime key.Duration `yaml:"holdTime"`
	Peers    []Peer       `yaml:"peers"`
}

// Peer is a router.
type Peer struct {
	Address string `yaml:"address"`
	ASN     int    `yaml:"asn"`
	Port    int    `yaml:"port"` // 0 is bgp.Port
	// PasswordFile has the password of TCP MD5 signatures; empty is none.
	PasswordFile    string       `yaml:"passwordFile"`
	Communities     []string     `yaml:"communities"`
	LocalPreference int          `yaml:"localPreference"` // 0 is 100
	GracefulRestart key.Duration `yaml:"gracefulRestart"`
	// NodeSelector is labels of the nodes that connect to the router, as in a=b,c=d; empty is all nodes.
	NodeSelector string `yaml:"nodeSelector"`
}

// Default returns the section of a file that lacks it.
func Default() Announce {
	return Announce{BGP: BGP{HoldTime: key.Duration(bgp.DefaultHoldTime)}}
}

// Compiled is the section in the types of the packages that use it.
type Compiled struct {
	Enabled    bool
	Interfaces []string
	// NodeSelector are labels; nil is all nodes.
	NodeSelector map[string]string
	// BGP is nil without peers. It has no Log.
	BGP *bgp.Config
}

const peersKey = "network.announce.bgp.peers"

// Compile checks the section, except for the checks in Keys. Its error is a *key.Error.
func (a *Announce) Compile() (made Compiled, err error) {
	made = Compiled{Enabled: a.Enabled, Interfaces: a.Interfaces}
	if i := slices.Index(a.Interfaces, ""); i >= 0 {
		return made, key.ItemErrorf("network.announce.interfaces", i, "is empty")
	}
	if made.NodeSelector, err = parseLabels(a.NodeSelector); err != nil {
		return made, key.Errorf("network.announce.nodeSelector", "%w", err)
	}
	b := &a.BGP
	config := &bgp.Config{ASN: uint32(b.ASN), HoldTime: time.Duration(b.HoldTime)}
	if b.RouterID != "" {
		id, err := netip.ParseAddr(b.RouterID)
		if config.RouterID = id; err != nil || !id.Is4() || id.IsUnspecified() {
			return made, key.Errorf("network.announce.bgp.routerID", "%q is not an address of IPv4", b.RouterID)
		}
	}
	if len(b.Peers) == 0 {
		return made, nil
	}
	if b.ASN == 0 {
		return made, key.Errorf("network.announce.bgp.asn", "is missing: peers need the nodes' AS number")
	}
	for i := range b.Peers {
		p, field, err := b.Peers[i].compile()
		if err != nil {
			return made, key.ItemErrorf(peersKey+"."+field, i, "%w", err)
		}
		if slices.ContainsFunc(config.Peers, func(o bgp.Peer) bool { return o.Address == p.Address && o.Port == p.Port }) {
			return made, key.ItemErrorf(peersKey+".address", i, "%s is given twice", p.Address)
		}
		config.Peers = append(config.Peers, p)
	}
	if !a.Enabled {
		return made, key.Errorf("network.announce.enabled", "is false: peers of network.announce.bgp need true")
	}
	made.BGP = config
	return made, nil
}

// compile returns the peer, or the name of the key that is wrong.
func (p *Peer) compile() (made bgp.Peer, field string, err error) {
	if field, err := p.checkRanges(); err != nil {
		return made, field, err
	}
	made = bgp.Peer{
		ASN: uint32(p.ASN), Port: uint16(p.Port), LocalPreference: uint32(p.LocalPreference),
		GracefulRestart: time.Duration(p.GracefulRestart),
	}
	made.Address, err = netip.ParseAddr(p.Address)
	if err != nil || made.Address.IsUnspecified() || made.Address.IsMulticast() {
		return made, "address", fmt.Errorf("%q is not the address of a router", p.Address)
	}
	if p.ASN == 0 {
		return made, "asn", errors.New("is missing")
	}
	for _, text := range p.Communities {
		c, err := parseCommunity(text)
		if err != nil {
			return made, "communities", err
		}
		made.Communities = append(made.Communities, c)
	}
	if len(p.Communities) > maxCommunities {
		return made, "communities", fmt.Errorf("%d are more than %d", len(p.Communities), maxCommunities)
	}
	if made.NodeSelector, err = parseLabels(p.NodeSelector); err != nil {
		return made, "nodeSelector", err
	}
	if p.PasswordFile == "" {
		return made, "", nil
	}
	if !filepath.IsAbs(p.PasswordFile) {
		return made, "passwordFile", fmt.Errorf("%q is not an absolute path", p.PasswordFile)
	}
	made.Password = func() (string, error) { return readPassword(p.PasswordFile) }
	return made, "", nil
}

// checkRanges checks the numbers as Keys says, which is not checked in lists.
func (p *Peer) checkRanges() (field string, err error) {
	for _, n := range []struct {
		field string
		value int
		most  int
	}{
		{"asn", p.ASN, math.MaxUint32}, {"port", p.Port, math.MaxUint16},
		{"localPreference", p.LocalPreference, math.MaxUint32},
	} {
		if n.value < 0 || n.value > n.most {
			return n.field, fmt.Errorf("%d is not between 0 and %d", n.value, n.most)
		}
	}
	const longest = 4095 * time.Second // RFC 4724, section 3: 12 bits
	if d := time.Duration(p.GracefulRestart); d < 0 || d > longest {
		return "gracefulRestart", fmt.Errorf("%s is not between 0s and 4095s", d)
	}
	return "", nil
}

// maxCommunities is how many communities routes have at most, so that a message has room for them.
const maxCommunities = 64

// wellKnown are the communities with names (RFC 1997, RFC 3765, RFC 7999, RFC 8326).
var wellKnown = map[string]uint32{
	"no-export": 0xffffff01, "no-advertise": 0xffffff02, "no-export-subconfed": 0xffffff03, "no-peer": 0xffffff04,
	"blackhole": 0xffff029a, "graceful-shutdown": 0xffff0000,
}

func parseCommunity(text string) (uint32, error) {
	if c, known := wellKnown[text]; known {
		return c, nil
	}
	high, low, _ := strings.Cut(text, ":")
	h, errHigh := strconv.ParseUint(high, 10, 16)
	l, errLow := strconv.ParseUint(low, 10, 16)
	if errHigh != nil || errLow != nil {
		return 0, fmt.Errorf("%q is not a community, such as 65001:100 or no-export", text)
	}
	return uint32(h<<16 | l), nil
}

// parseLabels reads labels. Their names and values are as in the API.
func parseLabels(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	labels := make(map[string]string)
	for term := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(term), "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(strings.TrimPrefix(value, "="))
		if !found || len(validation.IsQualifiedName(name))+len(validation.IsValidLabelValue(value)) > 0 {
			return nil, fmt.Errorf("%q is not labels, such as rack=a,edge=yes", text)
		}
		if _, twice := labels[name]; twice {
			return nil, fmt.Errorf("%q has the label %s twice: a node has one value of it", text, name)
		}
		labels[name] = value
	}
	return labels, nil
}

// readTime is how long the file of a password may take to be read.
const readTime = 5 * time.Second

func readPassword(path string) (string, error) {
	b, err := deadline.ReadFile(path, readTime, deadline.Small)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(b), "\r\n")
	if password == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return password, nil
}
