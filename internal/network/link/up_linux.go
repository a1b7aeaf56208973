package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/network/route"
	"portolan.dev/portolan/internal/support/netns"
)

// Up sets both ends of a link up that Create made, adds the routes of the host and of the Pod, and returns when
// packets pass. It may be called again, such as with another address of the node.
func Up(cfg Config, pod Pod) error {
	if err := pod.validate(); err != nil {
		return err
	}
	ns, err := openNamespace(pod.NetNS)
	if err != nil {
		return err
	}
	defer ns.Close()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	if err := upHost(h, cfg, &pod); err != nil {
		return err
	}
	if err := upPod(ns, &pod); err != nil {
		return fmt.Errorf("in %s: %w", pod.NetNS, err)
	}
	return awaitCarrier(h, pod.Host)
}

// readyTime is how long the kernel may take until a link works that is up; it takes a second at most.
const readyTime = 3 * time.Second

// await waits until a link works, which the kernel decides in another thread: it says nothing when it does.
func await(what string, ready func() (bool, error)) error {
	for deadline := time.Now().Add(readyTime); ; time.Sleep(time.Millisecond) {
		ok, err := ready()
		if ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s %s after it is up", what, readyTime)
		}
	}
}

// awaitCarrier waits until the end that was set up first has seen the carrier, which is there when the second is
// up: until then it drops what it should send. Linux 6.9 and later have it see it when the device is read.
func awaitCarrier(h *netlink.Handle, name string) error {
	return await("device "+name+" has no carrier", func() (bool, error) {
		device, err := h.LinkByName(name)
		if err != nil {
			return false, fmt.Errorf("device %s: %w", name, err)
		}
		return device.Attrs().OperState == netlink.OperUp, nil
	})
}

// awaitAddresses waits until the Pod receives packets for its IPv6 addresses. The kernel decides that as if it
// detected duplicates, although it does not (IFA_F_NODAD).
func awaitAddresses(h *netlink.Handle, pod *Pod) error {
	for _, addr := range pod.Addresses {
		if addr.Is4() {
			continue
		}
		err := await("address "+addr.String()+" is not usable", func() (bool, error) {
			routes, err := h.RouteGet(addr.AsSlice())
			if err != nil {
				return false, fmt.Errorf("route to the Pod's own address %s: %w", addr, err)
			}
			return len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// upHost sets the host's end up, with the routes to the Pod.
func upHost(h *netlink.Handle, cfg Config, pod *Pod) error {
	host, err := setUp(h, pod.Host)
	if err != nil {
		return err
	}
	if pod.Localnet {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+pod.Host+"/route_localnet", []byte("1"), 0); err != nil {
			return fmt.Errorf("have packets of loopback reach %s: %w", pod.Host, err)
		}
	}
	return addRoutes(h, host, cfg, pod)
}

// Refresh adds the routes of the host to a Pod whose link is up, which the kernel removes with the node's address that
// is their source. It does nothing to other links.
func Refresh(cfg Config, pod Pod) error {
	if err := pod.validate(); err != nil {
		return err
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	device, err := h.LinkByName(pod.Host)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return nil
	}
	if err != nil {
		return fmt.Errorf("device %s: %w", pod.Host, err)
	}
	if device.Attrs().Flags&net.FlagUp == 0 {
		return nil
	}
	err = addRoutes(h, device.Attrs().Index, cfg, &pod)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENETDOWN) { // the Pod has ended meanwhile
		return nil
	}
	return err
}

// addRoutes adds the routes of the host to a Pod, in place of those of a Pod that had its addresses.
func addRoutes(h *netlink.Handle, host int, cfg Config, pod *Pod) error {
	for _, addr := range pod.Addresses {
		route := &netlink.Route{
			LinkIndex: host, Dst: single(addr), Scope: netlink.SCOPE_LINK, Protocol: route.Protocol, Table: unix.RT_TABLE_MAIN,
		}
		source := cfg.source(addr)
		if source.IsValid() {
			route.Src = source.AsSlice()
		}
		err := h.RouteReplace(route)
		if errors.Is(err, unix.EINVAL) && source.IsValid() {
			return fmt.Errorf("route to %s by %s from %s, which is an address of no device of this node: %w",
				addr, pod.Host, source, err)
		}
		if err != nil {
			return fmt.Errorf("route to %s by %s: %w", addr, pod.Host, err)
		}
	}
	return nil
}

// upPod sets the Pod's end up, with its routes. A Pod with several links keeps the default routes of the first.
func upPod(ns *netns.Namespace, pod *Pod) error {
	h, err := handleAt(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	own, err := setUp(h, pod.Interface)
	if err != nil {
		return err
	}
	for _, gateway := range pod.gateways() {
		if err := addDefault(h, own, gateway); err != nil {
			return err
		}
	}
	return awaitAddresses(h, pod)
}

// addDefault adds a default route, unless the Pod has one.
func addDefault(h *netlink.Handle, own int, gateway netip.Addr) error {
	present := false
	if gateway.Is4() { // a link-local address of IPv6 needs no route to be a gateway
		err := h.RouteAdd(&netlink.Route{LinkIndex: own, Dst: single(gateway), Scope: netlink.SCOPE_LINK})
		present = errors.Is(err, unix.EEXIST)
		if err != nil && !present {
			return fmt.Errorf("route to %s: %w", gateway, err)
		}
	}
	err := h.RouteAdd(&netlink.Route{LinkIndex: own, Gw: gateway.AsSlice()})
	if errors.Is(err, unix.EEXIST) || present && errors.Is(err, unix.ENETUNREACH) { // by another link
		return nil
	}
	if err != nil {
		return fmt.Errorf("default route via %s: %w", gateway, err)
	}
	return nil
}

// handleAt returns a netlink socket of a namespace.
func handleAt(ns *netns.Namespace) (h *netlink.Handle, err error) {
	err = ns.Do(func() error {
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	return h, err
}

// setUp sets a device up and returns its index.
func setUp(h *netlink.Handle, name string) (index int, err error) {
	device, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkSetUp(device)
	}
	if err != nil {
		return 0, fmt.Errorf("set device %s up: %w", name, err)
	}
	return device.Attrs().Index, nil
}
