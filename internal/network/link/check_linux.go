package link

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/netns"
)

// Check returns an error that names everything that a link lacks of what Create and Up make (CNI specification
// 1.1.0, "CHECK").
func Check(cfg Config, pod Pod) error {
	if err := pod.validate(); err != nil {
		return err
	}
	ns, err := openNamespace(pod.NetNS)
	if err != nil {
		return err
	}
	defer ns.Close()
	return errors.Join(checkHost(cfg, &pod), checkPod(ns, &pod))
}

// checkHost checks the host's end.
func checkHost(cfg Config, pod *Pod) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	device, err := checkDevice(h, pod.Host, HostMAC())
	if device == nil {
		return err
	}
	errs := []error{err, checkNeighbors(h, device, PodMAC(pod.Addresses), pod.Addresses)}
	for _, addr := range pod.Addresses {
		errs = append(errs, checkRoute(h, device, addr, cfg.source(addr)))
	}
	if pod.Ingress.Rate != 0 {
		errs = append(errs, checkLimit(h, device, pod.Ingress))
	}
	if pod.Egress.Rate != 0 {
		errs = append(errs, checkEgress(h, device, pod))
	}
	return errors.Join(errs...)
}

// checkDevice returns the device with a name, and an error for what is wrong with it.
func checkDevice(h *netlink.Handle, name string, mac net.HardwareAddr) (netlink.Link, error) {
	device, err := h.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	attrs := device.Attrs()
	switch {
	case device.Type() != "veth":
		return nil, fmt.Errorf("device %s is of kind %s, not veth", name, device.Type())
	case attrs.Flags&net.FlagUp == 0:
		err = fmt.Errorf("device %s is down", name)
	case !bytes.Equal(attrs.HardwareAddr, mac):
		err = fmt.Errorf("device %s has the MAC address %s, not %s", name, attrs.HardwareAddr, mac)
	}
	return device, err
}

// checkNeighbors checks that a device has permanent neighbors with a MAC address.
func checkNeighbors(h *netlink.Handle, device netlink.Link, mac net.HardwareAddr, want []netip.Addr) error {
	all, err := h.NeighList(device.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("neighbors of device %s: %w", device.Attrs().Name, err)
	}
	var errs []error
	for _, addr := range want {
		if !slices.ContainsFunc(all, func(n netlink.Neigh) bool {
			return n.IP.Equal(addr.AsSlice()) && n.State == netlink.NUD_PERMANENT && bytes.Equal(n.HardwareAddr, mac)
		}) {
			errs = append(errs, fmt.Errorf("device %s has no permanent neighbor %s with %s", device.Attrs().Name, addr, mac))
		}
	}
	return errors.Join(errs...)
}

// checkRoute checks the route to an address of the Pod.
func checkRoute(h *netlink.Handle, device netlink.Link, addr, source netip.Addr) error {
	name, want := device.Attrs().Name, single(addr)
	routes, err := h.RouteGetWithOptions(addr.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil && !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EHOSTUNREACH) {
		return fmt.Errorf("route to %s: %w", addr, err)
	}
	if len(routes) != 1 || routes[0].Dst == nil || routes[0].Dst.String() != want.String() ||
		routes[0].LinkIndex != device.Attrs().Index {
		return fmt.Errorf("there is no route to %s by device %s", addr, name)
	}
	if source.IsValid() && !routes[0].Src.Equal(source.AsSlice()) {
		return fmt.Errorf("the route to %s by device %s has the source %s, not %s", addr, name, routes[0].Src, source)
	}
	return nil
}

// checkLimit checks the rate and the burst with which a device sends.
func checkLimit(h *netlink.Handle, device netlink.Link, limit Bandwidth) error {
	attrs := device.Attrs()
	queues, err := h.QdiscList(device)
	if err != nil {
		return fmt.Errorf("queues of device %s: %w", attrs.Name, err)
	}
	want := shaper(attrs, limit)
	for _, q := range queues {
		got, ok := q.(*netlink.Tbf)
		switch {
		case !ok:
		case got.Rate == want.Rate && got.Buffer == want.Buffer:
			return nil
		default:
			return fmt.Errorf("device %s is limited to %s, not to %s", attrs.Name, describe(got), describe(want))
		}
	}
	return fmt.Errorf("device %s is not limited to %d bits per second", attrs.Name, limit.Rate)
}

// checkEgress checks the limit of what the Pod sends.
func checkEgress(h *netlink.Handle, host netlink.Link, pod *Pod) error {
	name := shapeName(pod.Host)
	ifb, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("device %s, which limits what the Pod sends: %w", name, err)
	}
	if ifb.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("device %s, which limits what the Pod sends, is down", name)
	}
	if err := checkLimit(h, ifb, pod.Egress); err != nil {
		return err
	}
	filters, err := h.FilterList(host, netlink.MakeHandle(0xffff, 0))
	if err != nil {
		return fmt.Errorf("filters of device %s: %w", pod.Host, err)
	}
	for _, f := range filters {
		u32, ok := f.(*netlink.U32)
		if !ok {
			continue
		}
		for _, a := range u32.Actions {
			if m, ok := a.(*netlink.MirredAction); ok && m.Ifindex == ifb.Attrs().Index {
				return nil
			}
		}
	}
	return fmt.Errorf("what device %s receives is not redirected to %s", pod.Host, name)
}

// checkPod checks the Pod's end.
func checkPod(ns *netns.Namespace, pod *Pod) error {
	h, err := handleAt(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	device, err := checkDevice(h, pod.Interface, PodMAC(pod.Addresses))
	if device == nil {
		return fmt.Errorf("in %s: %w", pod.NetNS, err)
	}
	err = errors.Join(
		err, checkAddresses(h, device, pod.Addresses),
		checkNeighbors(h, device, HostMAC(), pod.gateways()),
		checkDefaults(h, device, pod.gateways()),
	)
	if err != nil {
		return fmt.Errorf("in %s: %w", pod.NetNS, err)
	}
	return nil
}

func checkAddresses(h *netlink.Handle, device netlink.Link, want []netip.Addr) error {
	all, err := h.AddrList(device, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("addresses of device %s: %w", device.Attrs().Name, err)
	}
	var errs []error
	for _, addr := range want {
		if !slices.ContainsFunc(all, func(a netlink.Addr) bool { return a.IPNet.String() == single(addr).String() }) {
			errs = append(errs, fmt.Errorf("device %s has no address %s", device.Attrs().Name, single(addr)))
		}
	}
	return errors.Join(errs...)
}

// checkDefaults checks the default routes of a Pod.
func checkDefaults(h *netlink.Handle, device netlink.Link, gateways []netip.Addr) error {
	var errs []error
	for _, gateway := range gateways {
		family := netlink.FAMILY_V6
		if gateway.Is4() {
			family = netlink.FAMILY_V4
		}
		routes, err := h.RouteList(device, family)
		if err != nil {
			return fmt.Errorf("routes of device %s: %w", device.Attrs().Name, err)
		}
		if !slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Gw.Equal(gateway.AsSlice()) }) {
			errs = append(errs, fmt.Errorf("there is no default route via %s by device %s", gateway, device.Attrs().Name))
		}
	}
	return errors.Join(errs...)
}
