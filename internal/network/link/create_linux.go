package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/netns"
)

// noAddresses is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h: the kernel generates no IPv6 address.
const noAddresses = 1

// loopback is the index of the device lo in every namespace (LOOPBACK_IFINDEX of net/flow.h).
const loopback = 1

// Create makes a Pod's link, down, with what the kernel takes of its addresses, neighbors and limits by then. A
// link that an attempt before left is replaced. If it fails, nothing is left. The error wraps
// ErrInterfaceExists where the Pod has another device of the name, ErrNoIPv6 where it lacks IPv6, and
// fs.ErrNotExist where its namespace is gone. It returns the index of the host's end.
func Create(cfg Config, pod Pod) (index int, err error) {
	if err := pod.validate(); err != nil {
		return 0, err
	}
	if pod.wants6() && cfg.MTU != 0 && cfg.MTU < minMTU6 {
		return 0, fmt.Errorf("the Pod has an IPv6 address, for which the MTU is at least %d, not %d", minMTU6, cfg.MTU)
	}
	ns, err := openNamespace(pod.NetNS)
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return 0, fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	host, err := add(h, cfg, pod, ns)
	if err != nil {
		return 0, err
	}
	err = prepareHost(h, host, &pod)
	if err == nil {
		err = preparePod(ns, &pod)
	}
	if err == nil {
		err = limit(h, host, &pod)
	}
	if err == nil {
		return host.Index, nil
	}
	return 0, errors.Join(err, Delete(pod.Host))
}

// add makes the pair, in place of one that an attempt before left.
func add(h *netlink.Handle, cfg Config, pod Pod, ns *netns.Namespace) (*netlink.Veth, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = pod.Host, cfg.MTU, HostMAC()
	// The kernel would make a queue for each processor, and then use one, for which it waits for all processors.
	attrs.NumTxQueues, attrs.NumRxQueues = 1, 1
	pair := &netlink.Veth{
		LinkAttrs: attrs, PeerName: pod.Interface, PeerHardwareAddr: PodMAC(pod.Addresses),
		PeerNamespace: netlink.NsFd(ns.File().Fd()), PeerTxQLen: -1,
		PeerNumTxQueues: 1, PeerNumRxQueues: 1,
	}
	err := h.LinkAdd(pair)
	if errors.Is(err, unix.EEXIST) {
		if err := Delete(pod.Host); err != nil {
			return nil, err
		}
		err = h.LinkAdd(pair)
	}
	if errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("device %s in %s: %w", pod.Interface, pod.NetNS, ErrInterfaceExists)
	}
	if err != nil {
		return nil, fmt.Errorf("make the devices %s and %s of the Pod in %s: %w", pod.Host, pod.Interface, pod.NetNS, err)
	}
	return pair, nil
}

// prepareHost sets up what the host's end has beside routes. It takes no part in ARP, for which nobody has a use:
// otherwise each request of the Pod would be a neighbor of the node, whose table has room for a thousand in all. Before
// the neighbors, since the kernel removes these with the change.
func prepareHost(h *netlink.Handle, host *netlink.Veth, pod *Pod) error {
	if err := h.LinkSetARPOff(host); err != nil {
		return fmt.Errorf("switch ARP of device %s off: %w", host.Name, err)
	}
	alias := pod.Alias[:min(len(pod.Alias), maxAlias)]
	if err := h.LinkSetAlias(host, alias); err != nil {
		return fmt.Errorf("alias of device %s: %w", host.Name, err)
	}
	present, err := refuseRouters(h, host)
	if err != nil {
		return err
	}
	if pod.wants6() {
		disabled := !present
		if present {
			disabled, err = isDisabled6(host)
		}
		if err != nil {
			return err
		}
		if disabled {
			return fmt.Errorf("device %s: %w (sysctl net.ipv6.conf.default.disable_ipv6 of the node)", host.Name, ErrNoIPv6)
		}
	}
	for _, addr := range pod.Addresses {
		if err := h.NeighSet(neighbor(host.Index, addr, PodMAC(pod.Addresses))); err != nil {
			return fmt.Errorf("neighbor %s of device %s: %w", addr, host.Name, err)
		}
	}
	return nil
}

// preparePod sets up what the Pod's end has beside routes, and the loopback device.
func preparePod(ns *netns.Namespace, pod *Pod) error {
	err := ns.Do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		own, err := h.LinkByName(pod.Interface)
		if err != nil {
			return fmt.Errorf("device %s: %w", pod.Interface, err)
		}
		if _, err := refuse6(h, own); err != nil {
			return err
		}
		lo := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: loopback}}
		if err := h.LinkSetUp(lo); err != nil {
			return fmt.Errorf("device lo: %w", err)
		}
		return addAddresses(h, own, pod)
	})
	if err != nil {
		return fmt.Errorf("in %s: %w", pod.NetNS, err)
	}
	return nil
}

// addAddresses adds the Pod's addresses and gateways to its end. There is nobody else on the link who could have an
// address, and nothing to detect (RFC 4862, section 5.4).
func addAddresses(h *netlink.Handle, own netlink.Link, pod *Pod) error {
	for _, a := range pod.Addresses {
		addr := &netlink.Addr{IPNet: single(a)}
		if a.Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		err := h.AddrAdd(own, addr)
		if a.Is6() && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)) {
			return fmt.Errorf("device %s: %w (sysctl net.ipv6.conf.%s.disable_ipv6): %w",
				pod.Interface, ErrNoIPv6, pod.Interface, err)
		}
		if err != nil {
			return fmt.Errorf("address %s of device %s: %w", addr.IPNet, pod.Interface, err)
		}
	}
	for _, gateway := range pod.gateways() {
		if err := h.NeighSet(neighbor(own.Attrs().Index, gateway, HostMAC())); err != nil {
			return fmt.Errorf("neighbor %s of device %s: %w", gateway, pod.Interface, err)
		}
	}
	return nil
}

// gateways returns those of the families of which the Pod has addresses.
func (p *Pod) gateways() (all []netip.Addr) {
	for _, a := range p.Addresses {
		if a.Is4() {
			all = append(all, Gateway4)
			break
		}
	}
	if p.wants6() {
		all = append(all, Gateway6)
	}
	return all
}

func neighbor(index int, addr netip.Addr, mac net.HardwareAddr) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac}
}

// single returns the network that has an address only.
func single(addr netip.Addr) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
}
