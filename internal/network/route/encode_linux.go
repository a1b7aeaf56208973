package route

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// fate is what becomes of an object of the kernel.
type fate uint8

const (
	create  fate = iota // and there must be none
	replace             // create, or replace what has the same key
	remove              // or it is gone
)

// request returns a request about an object, whose kind to create one is create, and to remove one follows.
func (f fate) request(create uint16, data []byte, what string) request {
	r := request{kind: create, data: data, what: what}
	switch f {
	case remove:
		r.kind++ // RTM_DELROUTE follows RTM_NEWROUTE, and so on
		r.fine = []unix.Errno{unix.ESRCH, unix.ENOENT, unix.ENODEV}
	case replace:
		r.flags = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	default:
		r.flags = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	}
	return r
}

// routeRequest encodes a route (rtnetlink(7), struct rtmsg). The kernel has those of IPv6 with priority 1024 unless
// another is given.
func routeRequest(r Route, device, priority int, f fate) request {
	flags := uint32(0)
	if r.OnLink {
		flags = unix.RTNH_F_ONLINK
	}
	table := cmp.Or(r.Table, mainTable)
	data := []byte{
		addressFamily(r.To.Addr()), byte(r.To.Bits()), 0, 0, byte(table), Protocol, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST,
	}
	data = binary.NativeEndian.AppendUint32(data, flags)
	data = nfnetlink.AppendAttribute(data, unix.RTA_DST, string(r.To.Addr().AsSlice()))
	if r.Via.Is4() == r.To.Addr().Is4() {
		data = nfnetlink.AppendAttribute(data, unix.RTA_GATEWAY, string(r.Via.AsSlice()))
	} else { // struct rtvia
		via := binary.NativeEndian.AppendUint16(nil, uint16(addressFamily(r.Via)))
		data = nfnetlink.AppendAttribute(data, unix.RTA_VIA, string(append(via, r.Via.AsSlice()...)))
	}
	if device > 0 {
		data = nfnetlink.AppendAttribute(data, unix.RTA_OIF, native(uint32(device)))
	}
	if priority > 0 {
		data = nfnetlink.AppendAttribute(data, unix.RTA_PRIORITY, native(uint32(priority)))
	}
	if r.Source.IsValid() && f != remove {
		data = nfnetlink.AppendAttribute(data, unix.RTA_PREFSRC, string(r.Source.AsSlice()))
	}
	return f.request(unix.RTM_NEWROUTE, data, fmt.Sprintf("route %s via %s dev %s", r.To, r.Via, r.Device))
}

// neighborRequest encodes a neighbor (rtnetlink(7), struct ndmsg).
func neighborRequest(n Neighbor, device int, f fate) request {
	data := ndmsg(addressFamily(n.Addr), device, unix.NUD_PERMANENT, 0)
	data = nfnetlink.AppendAttribute(data, unix.NDA_DST, string(n.Addr.AsSlice()))
	data = nfnetlink.AppendAttribute(data, unix.NDA_LLADDR, string(n.MAC[:]))
	return f.request(unix.RTM_NEWNEIGH, data, fmt.Sprintf("neighbor %s lladdr %s dev %s", n.Addr, n.MAC, n.Device))
}

// forwardRequest encodes an entry of a device's forwarding table (bridge(8)).
func forwardRequest(e Forward, device int, f fate) request {
	data := ndmsg(unix.AF_BRIDGE, device, unix.NUD_PERMANENT|unix.NUD_NOARP, unix.NTF_SELF)
	data = nfnetlink.AppendAttribute(data, unix.NDA_LLADDR, string(e.MAC[:]))
	data = nfnetlink.AppendAttribute(data, unix.NDA_DST, string(e.To.AsSlice()))
	return f.request(unix.RTM_NEWNEIGH, data, fmt.Sprintf("forwarding entry %s dst %s dev %s", e.MAC, e.To, e.Device))
}

func ndmsg(family byte, device int, state uint16, flags byte) []byte {
	data := []byte{family, 0, 0, 0}
	data = binary.NativeEndian.AppendUint32(data, uint32(device))
	data = binary.NativeEndian.AppendUint16(data, state)
	return append(data, flags, 0)
}

func addressFamily(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func native(n uint32) string { return string(binary.NativeEndian.AppendUint32(nil, n)) }
