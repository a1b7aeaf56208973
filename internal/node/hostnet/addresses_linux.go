package hostnet

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// errNoIPv6 is wrapped by errors of a kernel without IPv6.
var errNoIPv6 = errors.New("no IPv6")

// forever is the lifetime of an address that does not expire, see linux/if_addr.h.
const forever uint32 = math.MaxUint32

// routesWithin is the maximum time to wait for the routes of addresses.
const routesWithin = time.Second

// repairAddresses adds the addresses that the device lacks, and returns them.
func (d *device) repairAddresses(link netlink.Link) (missing []string, err error) {
	has, err := addresses(link)
	if err != nil {
		return nil, err
	}
	for _, a := range d.addrs {
		if slices.ContainsFunc(has, func(h netlink.Addr) bool { return addrOf(h) == a }) {
			continue
		}
		missing = append(missing, "address "+a.String())
		if err := netlink.AddrReplace(link, ownAddr(a)); err != nil {
			if a.Is6() && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)) {
				err = fmt.Errorf("%w: %w", errNoIPv6, err)
			}
			return missing, fmt.Errorf("address %s of device %s: %w", a, d.name, err)
		}
	}
	return missing, nil
}

// awaitRoutes waits for the routes of the IPv6 addresses, which the kernel adds shortly
// after the addresses. Until then it routes packets for them to other hosts.
func (d *device) awaitRoutes(link netlink.Link) error {
	if !slices.ContainsFunc(d.addrs, netip.Addr.Is6) {
		return nil
	}
	mine := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}
	for deadline := time.Now().Add(routesWithin); ; time.Sleep(time.Millisecond) {
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, mine,
			netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("routes of device %s: %w", d.name, err)
		}
		late := slices.IndexFunc(d.addrs, func(a netip.Addr) bool {
			return a.Is6() &&
				!slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Dst != nil && r.Dst.IP.Equal(a.AsSlice()) })
		})
		if late < 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("address %s of device %s: the kernel added no route within %v", d.addrs[late], d.name,
				routesWithin)
		}
	}
}

// ownAddr returns the address without a subnet, in a form that the kernel does not choose
// as the source address of other programs: an IPv4 address has scope host, an IPv6 address
// is deprecated (RFC 6724, section 5, rule 3). Duplicate address detection is off (RFC
// 4862, section 5.4).
func ownAddr(a netip.Addr) *netlink.Addr {
	own := &netlink.Addr{
		IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())},
		Scope: unix.RT_SCOPE_HOST,
	}
	if a.Is6() {
		own.Scope = unix.RT_SCOPE_UNIVERSE
		own.Flags = unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE
		valid := forever
		own.ValidLft, own.PreferedLft = int(valid), 0
	}
	return own
}

// removeOldAddresses removes the addresses of the previous agent.
func (d *device) removeOldAddresses(link netlink.Link) error {
	has, err := addresses(link)
	if err != nil {
		return err
	}
	for _, a := range has {
		if slices.Contains(d.addrs, addrOf(a)) {
			continue
		}
		if err := netlink.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("address %s of device %s: %w", a.IP, d.name, err)
		}
	}
	return nil
}

// addresses returns the addresses of the device. It retries a few times if they change
// while they are read.
func addresses(link netlink.Link) (has []netlink.Addr, err error) {
	for range 5 {
		if has, err = netlink.AddrList(link, netlink.FAMILY_ALL); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("addresses of device %s: %w", link.Attrs().Name, err)
	}
	return has, nil
}

func addrOf(a netlink.Addr) netip.Addr {
	addr, _ := netip.AddrFromSlice(a.IP)
	return addr.Unmap()
}
