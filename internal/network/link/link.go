// Package link makes the links of a node's Pods: for each a pair of veth devices (veth(4)), one end on the host,
// the other one in the Pod's network namespace. There is no bridge: the Pod has its addresses alone (/32 and
// /128), and sends everything to the host, which routes it (Kubernetes, "The Kubernetes network model").
//
//	Pod: eth0, 0a:58:…              host: ptl…, ee:ee:ee:ee:ee:ee
//	  10.0.0.7/32, fd00::7/128        no address
//	  default via 169.254.1.1  ─────► 10.0.0.7 dev ptl… src NODE
//	  default via fe80::1      ◄───── fd00::7 dev ptl… src NODE
//
// The MAC addresses follow from rules, and each end has the other's as permanent neighbors: no ARP request
// (RFC 826) and no neighbor solicitation (RFC 4861) is ever sent. The gateways are on no device. Neither end has a
// link-local address of IPv6 (RFC 4291, section 2.1, asks for one): with one the kernel would look for routers.
//
// Create makes the pair with both ends down, so that no packet passes before the caller has its policies in the
// kernel; Up sets the ends up, and adds the routes, which the kernel takes only then.
package link

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Config is what the links of a node have in common.
type Config struct {
	// MTU is that of both ends; 0 is the kernel's choice.
	MTU int
	// Source4 and Source6 are the node's own addresses, with which it talks to its Pods. A zero one leaves the
	// choice to the kernel.
	Source4, Source6 netip.Addr
}

// source returns the node's address of the family of addr.
func (c Config) source(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return c.Source4
	}
	return c.Source6
}

// Pod is the link of a Pod.
type Pod struct {
	// NetNS is the path of the network namespace, and Interface the name of the Pod's end in it.
	NetNS, Interface string
	// Host is the name of the host's end, see HostName.
	Host string
	// Addresses are the Pod's, at least one. The MAC address of its end follows from the first.
	Addresses []netip.Addr
	// Alias describes the host's end to those who list devices (ifalias of ip-link(8)). It is cut to 255 octets.
	Alias string
	// Localnet has packets of the node's loopback, which were translated, reach the Pod (route_localnet of
	// ip-sysctl.rst). Whoever sets it sees to it that no others do.
	Localnet bool
	// Ingress limits what the Pod receives, Egress what it sends.
	Ingress, Egress Bandwidth
}

// Bandwidth is a limit, as runtimes pass it (CNI conventions, "bandwidth"). The zero value is none.
type Bandwidth struct {
	Rate  uint64 // bits per second
	Burst uint64 // bits; 0 is 10 ms of the rate, at least 64 KiB
}

// The prefixes of the host's ends, and of the devices through which the kernel shapes what Pods send.
const (
	hostPrefix  = "ptl"
	shapePrefix = "pti"
)

// digits is how many hexadecimal ones follow the prefix: with them a name has the 15 octets of IFNAMSIZ - 1.
const digits = 12

// maxAlias is how long an alias may be (IFALIASZ of linux/if.h, less one).
const maxAlias = 255

// Gateways of all Pods, on no device: addresses of the link (RFC 3927, RFC 4291).
var (
	Gateway4 = netip.AddrFrom4([4]byte{169, 254, 1, 1})
	Gateway6 = netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: 1})
)

// ErrInterfaceExists says that the Pod's namespace has a device with the name of Pod.Interface (CNI
// specification 1.1.0, "ADD": "If an interface of the requested name already exists in the container, the CNI
// plugin MUST return with an error").
var ErrInterfaceExists = errors.New("the Pod's network namespace has a device of this name already")

// ErrNoIPv6 says that the kernel has no IPv6 where a Pod needs it.
var ErrNoIPv6 = errors.New("the Pod has an IPv6 address, and IPv6 is disabled")

// HostName returns the name of the host's end for an attachment.
func HostName(containerID, ifname string) string {
	sum := sha256.Sum256([]byte(containerID + "," + ifname))
	return hostPrefix + hex.EncodeToString(sum[:digits/2])
}

// hostOf returns the name of the host's end to which a device of the node belongs.
func hostOf(device string) (host string, ok bool) {
	rest, ok := strings.CutPrefix(device, hostPrefix)
	if !ok {
		rest, ok = strings.CutPrefix(device, shapePrefix)
	}
	if !ok || len(rest) != digits || strings.Trim(rest, "0123456789abcdef") != "" {
		return "", false
	}
	return hostPrefix + rest, true
}

// shapeName returns the name of the device through which the kernel shapes what the Pod behind a host's end
// sends.
func shapeName(host string) string { return shapePrefix + strings.TrimPrefix(host, hostPrefix) }

// HostMAC returns the MAC address of the host's end of all Pods. It is locally administered (IEEE 802, clause 8.4).
func HostMAC() net.HardwareAddr { return net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee} }

// PodMAC returns the MAC address of the end of a Pod with these addresses, of which there is at least one: 0a:58,
// which is locally administered, and the last four octets of the first.
func PodMAC(addrs []netip.Addr) net.HardwareAddr {
	octets := addrs[0].AsSlice()
	return append(net.HardwareAddr{0x0a, 0x58}, octets[len(octets)-4:]...)
}

// minMTU6 is the smallest MTU with which a device has IPv6 (RFC 8200, section 5).
const minMTU6 = 1280

func (p *Pod) validate() error {
	if host, ok := hostOf(p.Host); !ok || host != p.Host {
		return fmt.Errorf("%q is not the name of the host's end of a Pod's link", p.Host)
	}
	if len(p.Addresses) == 0 {
		return errors.New("the Pod has no address")
	}
	return nil
}

// wants6 reports whether the Pod has an IPv6 address.
func (p *Pod) wants6() bool {
	for _, a := range p.Addresses {
		if a.Is6() {
			return true
		}
	}
	return false
}
