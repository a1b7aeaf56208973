package route

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// noAddresses is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h: the kernel generates no address of IPv6.
const noAddresses = 1

// devices are the names of the devices of tunnels.
var devices = []string{Device4, Device6, DeviceWG}

// syncDevices has the kernel have the devices of tunnels that are wanted, and returns how many it made, changed or
// removed.
func (r *Router) syncDevices() (changed int, err error) {
	var failed []error
	for _, name := range devices {
		i := slices.IndexFunc(r.want.local.Devices, func(d Device) bool { return d.Name == name })
		var is bool
		if i >= 0 {
			is, err = r.syncDevice(&r.want.local.Devices[i])
		} else {
			is, err = removeDevice(r.handle, name)
		}
		if is {
			changed++
		}
		failed = append(failed, err)
	}
	return changed, errors.Join(failed...)
}

// removeDevice removes a device, and reports whether there was one.
func removeDevice(h *netlink.Handle, name string) (removed bool, err error) {
	link, err := h.LinkByName(name)
	if none := (netlink.LinkNotFoundError{}); errors.As(err, &none) {
		return false, nil
	}
	if err == nil {
		err = h.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return false, fmt.Errorf("removing device %s: %w", name, err)
	}
	return true, nil
}

// syncDevice has the kernel have a device, and reports whether it changed it. One whose parameters cannot be changed
// is made again.
func (r *Router) syncDevice(d *Device) (changed bool, err error) {
	link, err := r.link(d.Name)
	if err != nil {
		return false, err
	}
	if link != nil && !d.is(link) {
		if _, err := removeDevice(r.handle, d.Name); err != nil {
			return false, err
		}
		link = nil
	}
	if link == nil {
		changed = true
		if link, err = r.makeDevice(d); err != nil {
			return changed, fmt.Errorf("device %s: %w", d.Name, err)
		}
	}
	adjusted, err := r.adjustDevice(d, link)
	if err != nil {
		return true, fmt.Errorf("device %s: %w", d.Name, err)
	}
	return changed || adjusted, nil
}

// is reports whether a device of the kernel has the parameters that cannot be changed.
func (d *Device) is(link netlink.Link) bool {
	if d.Name == DeviceWG { // or one of a userspace implementation
		return link.Type() == wireguardType || link.Type() == userspaceType
	}
	v, ok := link.(*netlink.Vxlan)
	return ok && v.VxlanId == int(d.VNI) && v.Port == int(d.Port) && addrOf(v.SrcAddr) == d.Local && !v.Learning &&
		v.Group == nil && !v.FlowBased && v.VtepDevIndex == 0
}

// wireguardType and userspaceType are package netlink's types of the devices of the kernel's WireGuard, and of a
// program in its place.
const (
	wireguardType = "wireguard"
	userspaceType = "tuntap"
)

// errNoWireGuard is the error of a kernel without WireGuard.
var errNoWireGuard = errors.New("the kernel has no WireGuard: it needs Linux 5.6 or newer with the module wireguard")

func (r *Router) makeDevice(d *Device) (netlink.Link, error) {
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MTU = d.Name, d.MTU
	var link netlink.Link = &netlink.Wireguard{LinkAttrs: attributes}
	if d.Name != DeviceWG {
		attributes.HardwareAddr = d.MAC[:]
		link = &netlink.Vxlan{LinkAttrs: attributes, VxlanId: int(d.VNI), Port: int(d.Port), SrcAddr: d.Local.AsSlice()}
	}
	err := r.handle.LinkAdd(link)
	switch {
	case d.Name == DeviceWG && errors.Is(err, unix.EOPNOTSUPP):
		return nil, errNoWireGuard
	case err != nil:
		return nil, err
	case d.Name == DeviceWG:
		notify(r.hostChanged) // it has neither key nor peers
	}
	if link, err = r.handle.LinkByName(d.Name); err == nil {
		_ = r.handle.LinkSetIP6AddrGenMode(link, noAddresses) // a kernel without IPv6 generates none
	}
	return link, err
}

// adjustDevice sets what can be changed, and reports whether it was not so.
func (r *Router) adjustDevice(d *Device, link netlink.Link) (changed bool, err error) {
	is := link.Attrs()
	if d.MTU != 0 && is.MTU != d.MTU {
		changed = true
		if err := r.handle.LinkSetMTU(link, d.MTU); err != nil {
			return changed, fmt.Errorf("MTU %d: %w", d.MTU, err)
		}
	}
	if d.MAC != (MAC{}) && !slices.Equal(is.HardwareAddr, d.MAC[:]) {
		changed = true
		if err := r.handle.LinkSetHardwareAddr(link, d.MAC[:]); err != nil {
			return changed, fmt.Errorf("MAC %s: %w", d.MAC, err)
		}
	}
	if is.Flags&net.FlagUp == 0 {
		changed = true
		if err := r.handle.LinkSetUp(link); err != nil {
			return changed, fmt.Errorf("up: %w", err)
		}
	}
	readdressed, err := r.addressDevice(link)
	if err != nil {
		return true, err
	}
	return changed || readdressed, setSysctl("ipv4/conf/"+d.Name+"/rp_filter", looseFilter)
}

// looseFilter is the value of rp_filter with which the kernel takes a packet if it has any way to the source (RFC 3704,
// section 2.4).
const looseFilter = "2"

// addressDevice has a device have the own node's address of IPv4, alone, and reports whether it was not so. On a
// device without addresses the kernel takes no packet whose source it has another way to, not even with a loose
// rp_filter (net/ipv4/fib_frontend.c, __fib_validate_source); and what is masqueraded into a tunnel gets the
// address of the device.
func (r *Router) addressDevice(link netlink.Link) (changed bool, err error) {
	all, err := listed(func() ([]netlink.Addr, error) { return r.handle.AddrList(link, netlink.FAMILY_V4) })
	if err != nil {
		return false, fmt.Errorf("reading addresses: %w", err)
	}
	own := r.want.local.Source(netip.IPv4Unspecified())
	has := false
	for _, a := range all {
		if addr := addrOf(a.IP); addr == own && !has {
			has = true
			continue
		}
		changed = true
		if err := r.handle.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return changed, fmt.Errorf("removing address %s: %w", a.IP, err)
		}
	}
	if has || !own.IsValid() {
		return changed, nil
	}
	to := &net.IPNet{IP: own.AsSlice(), Mask: net.CIDRMask(own.BitLen(), own.BitLen())}
	if err := r.handle.AddrAdd(link, &netlink.Addr{IPNet: to}); err != nil {
		return true, fmt.Errorf("address %s: %w", own, err)
	}
	return true, nil
}

// setSysctls has the kernel forward packets of the families of Pods. A host that forwards IPv6 ignores router
// advertisements unless accept_ra is 2 (Linux, Documentation/networking/ip-sysctl.rst), and would lose the default
// route that it got by them.
func (r *Router) setSysctls() error {
	var err4, err6 error
	for _, p := range r.want.local.Pods {
		if p.Addr().Is4() {
			err4 = setSysctl("ipv4/ip_forward", "1")
		} else if err6 = r.keepAdvertisements(); err6 == nil {
			err6 = setSysctl("ipv6/conf/all/forwarding", "1")
		}
	}
	return errors.Join(err4, err6, r.loosenFilters())
}

// loosenFilters has uplinks take packets whose answers go through a tunnel, which a strict filter would drop: those of
// other nodes' Pods to the node, if they come outside of the tunnel, and else those of nodes to its address that are
// translated to one of a Pod, whose answers to nodes go through the tunnel. The greater value of all interfaces and of
// the interface counts.
func (r *Router) loosenFilters() error {
	if !r.want.local.Asymmetric {
		return nil
	}
	h, err := r.readHost()
	if err != nil {
		return err
	}
	i, ok := h.Holder(r.want.local.Source(netip.IPv4Unspecified()))
	if !ok {
		return nil
	}
	key := "ipv4/conf/" + i.Name + "/rp_filter"
	all, err := readSysctl("ipv4/conf/all/rp_filter")
	own, failed := readSysctl(key)
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("sysctls: %w", err)
	}
	if max(all, own) != "1" {
		return nil
	}
	r.cfg.Log.Info("rp_filter of the uplink is loose now: other nodes reach ports of Pods by it, and get answers by the "+
		"tunnel", "interface", i.Name)
	return setSysctl(key, looseFilter)
}

// keepAdvertisements has interfaces go on to accept router advertisements when the host forwards: all that do so
// until now, and the uplinks.
func (r *Router) keepAdvertisements() error {
	names := make(map[string]bool)
	if forwards, err := readSysctl("ipv6/conf/all/forwarding"); err == nil && forwards == "0" {
		entries, err := os.ReadDir(sysctls + "ipv6/conf")
		if err != nil {
			return fmt.Errorf("sysctls: %w", err)
		}
		for _, e := range entries {
			names[e.Name()] = true
		}
	}
	for _, route := range r.want.routes {
		names[route.Device] = true
	}
	h, err := r.readHost()
	if err != nil {
		return err
	}
	for _, a := range r.want.local.Sources {
		if i, ok := h.Holder(a); ok {
			names[i.Name] = true
		}
	}
	for _, none := range append([]string{"all", "default", "lo"}, devices...) {
		delete(names, none)
	}
	for name := range names {
		key := "ipv6/conf/" + name + "/accept_ra"
		if is, err := readSysctl(key); err == nil && is == "1" {
			if err := setSysctl(key, "2"); err != nil {
				return err
			}
		}
	}
	return nil
}

const sysctls = "/proc/sys/net/"

func readSysctl(name string) (string, error) {
	text, err := os.ReadFile(sysctls + name)
	return strings.TrimSpace(string(text)), err
}

// setSysctl sets a sysctl below net, unless it has the value.
func setSysctl(name, value string) error {
	is, err := readSysctl(name)
	if err == nil && is != value {
		err = os.WriteFile(sysctls+name, []byte(value), 0)
	}
	if err != nil {
		return fmt.Errorf("sysctl net/%s: %w", name, err)
	}
	return nil
}
