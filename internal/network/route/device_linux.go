package route

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// noAddresses is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h: the kernel generates no address of IPv6.
const noAddresses = 1

// syncDevices has the kernel have the devices of tunnels that are wanted, and returns how many it made, changed or
// removed.
func (r *Router) syncDevices() (changed int, err error) {
	var failed []error
	for _, name := range []string{Device4, Device6} {
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
	v, ok := link.(*netlink.Vxlan)
	return ok && v.VxlanId == int(d.VNI) && v.Port == int(d.Port) && addrOf(v.SrcAddr) == d.Local && !v.Learning &&
		v.Group == nil && !v.FlowBased && v.VtepDevIndex == 0
}

func (r *Router) makeDevice(d *Device) (netlink.Link, error) {
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.HardwareAddr, attributes.MTU = d.Name, d.MAC[:], d.MTU
	err := r.handle.LinkAdd(&netlink.Vxlan{
		LinkAttrs: attributes,
		VxlanId:   int(d.VNI), Port: int(d.Port), SrcAddr: d.Local.AsSlice(),
	})
	if err != nil {
		return nil, err
	}
	link, err := r.handle.LinkByName(d.Name)
	if err == nil {
		_ = r.handle.LinkSetIP6AddrGenMode(link, noAddresses) // a kernel without IPv6 generates none
	}
	return link, err
}

// adjustDevice sets what can be changed, and reports whether it was not so.
func (r *Router) adjustDevice(d *Device, link netlink.Link) (changed bool, err error) {
	is := link.Attrs()
	if is.MTU != d.MTU {
		changed = true
		if err := r.handle.LinkSetMTU(link, d.MTU); err != nil {
			return changed, fmt.Errorf("MTU %d: %w", d.MTU, err)
		}
	}
	if !slices.Equal(is.HardwareAddr, d.MAC[:]) {
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
	// Answers to packets of Pods to the node's address come through the tunnel, though the route to it does not.
	const loose = "2"
	return changed, setSysctl("ipv4/conf/"+d.Name+"/rp_filter", loose)
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
	return errors.Join(err4, err6)
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
	for _, none := range []string{"all", "default", "lo", Device4, Device6} {
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
