// Package hostnet configures the node's network for a DNS agent on the node: the addresses
// on which it listens, and an nftables table that exempts packets to and from them from
// connection tracking.
//
// The kernel removes both when the process ends, even if it is killed:
//   - a non-persistent TUN device (without TUNSETPERSIST) is removed when its file is
//     closed; see Documentation/networking/tuntap.rst of Linux;
//   - a table with the owner flag (NFT_TABLE_F_OWNER, Linux 5.12) is removed when the
//     netlink socket that created it is closed.
//
// If the kernel does not support one of them, the package uses a dummy device or a table
// without an owner, which the next agent takes over.
//
// Untracked packets skip NAT, so the agent receives queries for a cluster DNS IP that is
// one of its addresses, whatever kube-proxy's rules are. When the table is removed,
// kube-proxy's rules apply again. The rules are those of NodeLocal DNSCache in the raw
// table of iptables (Kubernetes Enhancement Proposal 1024).
package hostnet

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"
)

// Config configures the network of an agent.
type Config struct {
	// Addresses are those on which the agent listens: 1 to MaxAddresses unique unicast
	// addresses of either family, without a zone.
	Addresses []netip.Addr
	// Port is the port of DNS, UDP and TCP.
	Port uint16
	// Prefix is the prefix of the names of device and table: a letter, then letters,
	// digits and "-", at most MaxPrefix octets.
	Prefix string
	Log    *slog.Logger

	fallback fallback
}

// fallback lets tests simulate other kernels.
type fallback struct {
	tun   string // the path of the TUN driver, "/dev/net/tun" if empty
	kind  string // the kind of the persistent device, "dummy" if empty
	plain bool   // create the table without the owner flag
}

// The limits of a Config.
const (
	MaxAddresses = 16
	// MaxPrefix leaves space for a number in the name of the device, in octets.
	MaxPrefix = 12
)

// CheckEvery is the interval of checks. Changes of the device and its addresses are
// detected at once.
const CheckEvery = 5 * time.Second

// RepairEvery is the minimum time between two repairs, so that repeated changes by others
// do not keep the agent busy.
const RepairEvery = time.Second

// Validate returns an error if the Config is invalid.
func (c Config) Validate() error {
	if len(c.Addresses) == 0 || len(c.Addresses) > MaxAddresses {
		return fmt.Errorf("%d addresses: must be from 1 to %d", len(c.Addresses), MaxAddresses)
	}
	seen := make(map[netip.Addr]bool)
	for _, a := range c.Addresses {
		switch {
		case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Zone() != "" || a.Is4In6() ||
			a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
			return fmt.Errorf("address %s: must be a unicast address, without a zone, and not of loopback", a)
		case a.Is6() && a.IsLinkLocalUnicast():
			return fmt.Errorf("address %s: a link-local IPv6 address can't be reached from other links: take a unique "+
				"local one such as fd00::a (RFC 4193)", a)
		case seen[a]:
			return fmt.Errorf("address %s: is there twice", a)
		}
		seen[a] = true
	}
	if c.Port == 0 {
		return errors.New("port 0: must be from 1 to 65535")
	}
	return CheckPrefix(c.Prefix)
}

// CheckPrefix returns an error if a Prefix is invalid.
func CheckPrefix(prefix string) error {
	letter := func(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }
	other := func(r rune) bool { return !letter(r) && ('0' > r || r > '9') && r != '-' }
	if prefix == "" || len(prefix) > MaxPrefix || !letter(rune(prefix[0])) || strings.ContainsFunc(prefix, other) {
		return fmt.Errorf("prefix %q: must be a letter, then letters, digits and \"-\", at most %d", prefix, MaxPrefix)
	}
	return nil
}
