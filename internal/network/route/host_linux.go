package route

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Host reads the own host's interfaces. HostChanged tells when it may return something else.
func (r *Router) Host() (Host, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, err := r.readHost()
	if err != nil {
		return h, err
	}
	clear(r.host)
	for _, i := range h.Interfaces {
		r.host[i.Index] = true
	}
	return h, nil
}

func (r *Router) readHost() (h Host, err error) {
	addrs, err := listed(func() ([]netlink.Addr, error) { return r.handle.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return h, fmt.Errorf("reading addresses: %w", err)
	}
	found := make(map[int]*Interface)
	for i := range addrs {
		p, ok := usable(&addrs[i])
		if !ok {
			continue
		}
		index := addrs[i].LinkIndex
		if found[index] == nil {
			link, err := r.handle.LinkByIndex(index)
			if err != nil {
				continue // it went, and HostChanged tells so
			}
			is := link.Attrs()
			if slices.Contains(devices, is.Name) {
				continue
			}
			found[index] = &Interface{Name: is.Name, Index: index, MTU: is.MTU, Up: is.Flags&net.FlagUp != 0}
		}
		found[index].Addresses = append(found[index].Addresses, p)
	}
	for _, index := range slices.Sorted(maps.Keys(found)) {
		i := found[index]
		slices.SortFunc(i.Addresses, func(a, b netip.Prefix) int {
			return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
		})
		h.Interfaces = append(h.Interfaces, *i)
	}
	return h, nil
}

// usable returns an address that matters: none that is link-local or that duplicate address detection has not
// finished with, since the kernel refuses it as a source (RFC 4862, section 5.4).
func usable(a *netlink.Addr) (p netip.Prefix, ok bool) {
	addr := addrOf(a.IP)
	bits, _ := a.Mask.Size()
	tentative := a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 && a.Flags&unix.IFA_F_OPTIMISTIC == 0
	return netip.PrefixFrom(addr, bits), addr.IsValid() && !tentative && (addr.Is4() || !addr.IsLinkLocalUnicast())
}
