// Package hostnet installs what a node's DNS agent needs of its node's network:
// the addresses that it listens on, and one nftables table that keeps packets to
// and from them off connection tracking.
//
// The addresses are on a device that goes with the process, and so does the
// table, also when the process is killed:
//   - a TUN device that is not persistent (TUNSETPERSIST is not set) goes when its
//     file is closed; see Documentation/networking/tuntap.rst of Linux;
//   - a table with the flag owner (NFT_TABLE_F_OWNER, Linux 5.12) goes when the
//     netlink socket that made it is closed.
//
// Where one can't be had there are a dummy device and a plain table, which the
// next agent takes over.
//
// Packets that are not tracked skip NAT, so a cluster DNS IP that is among the
// addresses is answered here, whatever kube-proxy has it lead to; when the table
// goes, kube-proxy's rules apply again. The rules are those that NodeLocal
// DNSCache has in iptables' table raw (Kubernetes Enhancement Proposal 1024).
package hostnet

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"
)

// Config of an agent's network.
type Config struct {
	// Addresses that the agent listens on: unicast, of either family, without a
	// zone; from 1 to MaxAddresses, each once.
	Addresses []netip.Addr
	// Port of DNS, UDP and TCP.
	Port uint16
	// Prefix of the device's and the table's name: a letter, then letters,
	// digits and "-", at most MaxPrefix.
	Prefix string
	Log    *slog.Logger

	fallback fallback
}

// fallback is what tests make of the kernel they have.
type fallback struct {
	tun   string // its path, "/dev/net/tun" if empty
	kind  string // of the lasting device, "dummy" if empty
	plain bool   // a table without the flag owner
}

// Limits of a Config.
const (
	MaxAddresses = 16
	// MaxPrefix octets leave room for a number in a device's name.
	MaxPrefix = 12
)

// CheckEvery is how often all is looked at. What happens to the device and its
// addresses is known at once.
const CheckEvery = 5 * time.Second

// RepairEvery is the least time between two repairs: somebody who removes things
// again and again does not keep the agent busy.
const RepairEvery = time.Second

// Validate tells what is wrong with the Config.
func (c Config) Validate() error {
	if len(c.Addresses) == 0 || len(c.Addresses) > MaxAddresses {
		return fmt.Errorf("%d addresses: must be from 1 to %d", len(c.Addresses), MaxAddresses)
	}
	seen := make(map[netip.Addr]bool)
	for _, a := range c.Addresses {
		switch {
		case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Zone() != "" || a.Is4In6() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
			return fmt.Errorf("address %s: must be a unicast address, without a zone, and not of loopback", a)
		case a.Is6() && a.IsLinkLocalUnicast():
			return fmt.Errorf("address %s: a link-local IPv6 address can't be reached from other links: take a unique local one such as fd00::a (RFC 4193)", a)
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

// CheckPrefix tells what is wrong with a Prefix.
func CheckPrefix(prefix string) error {
	letter := func(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }
	other := func(r rune) bool { return !letter(r) && ('0' > r || r > '9') && r != '-' }
	if prefix == "" || len(prefix) > MaxPrefix || !letter(rune(prefix[0])) || strings.ContainsFunc(prefix, other) {
		return fmt.Errorf("prefix %q: must be a letter, then letters, digits and \"-\", at most %d", prefix, MaxPrefix)
	}
	return nil
}
