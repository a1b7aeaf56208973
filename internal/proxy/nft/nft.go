// Package nft programs frontends into nftables maps of the kernel.
//
// There is a table of the same name for each family. It has nat chains only, so that packets
// of established connections meet no rule. The first packet of a connection looks up its
// destination in the map services, which names a chain by the number of endpoints, and that
// chain looks up one of them in the map endpoints:
//
//	chain services {
//		ip daddr . meta l4proto . th dport vmap @services    # 10.96.0.10 . tcp . 80 : goto endpoints-3
//	}
//	chain endpoints-3 {
//		dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @endpoints
//	}
//
// Chains are created before the maps are filled, and never change: a change of the cluster
// changes a few elements of maps in one transaction, however large the maps are. Replacing an
// element of a map removes the old one at the commit, and a packet that began its lookup before
// finds neither; so each lookup is repeated.
//
//	layout.go   chains and rules
//	slots.go    which endpoint is at which number
//	encode.go   Frontend ──► elements
//	table.go    elements ──► transactions
//	read.go     kernel ──► elements
package nft

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

// DefaultName is the name of the tables.
const DefaultName = "portolan-proxy"

// DefaultMark is the bit of the packet mark that kube-proxy uses.
const DefaultMark = 1 << 14

// Config configures a Table.
type Config struct {
	// Name is the name of the tables; empty is DefaultName.
	Name string
	// Mark is the bit of the packet mark that has a packet masqueraded; 0 is DefaultMark.
	Mark uint32
	// Families are the families that the node has.
	Families []Family
	// MasqueradeAll masquerades all connections to cluster IPs.
	MasqueradeAll bool
	// Pods recognizes packets from Pods on the node. Connections to cluster IPs from other
	// sources are masqueraded.
	Pods frontend.Pods
	// Counters counts the connections to each destination, see Connections.
	Counters bool
	Log      *slog.Logger
}

// Family is an IP family.
type Family uint8

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// String returns the family's name in nft.
func (f Family) String() string {
	if f == IPv4 {
		return "ip"
	}
	return "ip6"
}

// Notice is what Watch reports. Sync repairs the tables.
type Notice = nfnetlink.Notice

// The notices.
const (
	Changed = nfnetlink.Changed
	Lost    = nfnetlink.Lost
)

// ErrOwned is wrapped when another process owns the table.
var ErrOwned = errors.New("another process owns the nftables table")

// tableError is an error of a table, given its name, also with the family before it.
func tableError(name string, err error) error { return fmt.Errorf("nftables table %s: %w", name, err) }
