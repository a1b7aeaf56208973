package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// noAddresses is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h: the kernel generates no IPv6 address.
const noAddresses = 1

// loopback is the index of the device lo in every namespace (LOOPBACK_IFINDEX of net/flow.h).
const loopback = 1

// Create makes a Pod's link, down, with what the kernel takes of its addresses, neighbors and limits by then. A
// link that an attempt before left is replaced. If it fails, nothing is left. The error wraps
// ErrInterfaceExists where the Pod has another device of the name, ErrNoIPv6 where it lacks IPv6, and
// fs.ErrNotExist where its namespace is gone.
func Create(cfg Config, pod Pod) error {
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
	host, err := add(h, cfg, pod, ns)
	if err != nil {
		return err
	}
	err = prepareHost(h, host, &pod)
	if err == nil {
		err = preparePod(ns, &pod)
	}
	if err == nil {
		err = limit(h, host, &pod)
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, Delete(pod.Host))
}

// add makes the pair, in place of one that an attempt before left.
func add(h *netlink.Handle, cfg Config, pod Pod, ns *os.File) (*netlink.Veth, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = pod.Host, cfg.MTU, HostMAC()
	// The kernel would make a queue for each processor, and then use one, for which it waits for all processors.
	attrs.NumTxQueues, attrs.NumRxQueues = 1, 1
	pair := &netlink.Veth{
		LinkAttrs: attrs, PeerName: pod.Interface, PeerHardwareAddr: PodMAC(pod.Addresses),
		PeerNamespace: netlink.NsFd(ns.Fd()), PeerTxQLen: -1,
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

// prepareHost sets up what the host's end has beside routes.
func prepareHost(h *netlink.Handle, host *netlink.Veth, pod *Pod) error {
	alias := pod.Alias[:min(len(pod.Alias), maxAlias)]
	if err := h.LinkSetAlias(host, alias); err != nil {
		return fmt.Errorf("alias of device %s: %w", host.Name, err)
	}
	if err := prepare6(h, host, pod); err != nil {
		return err
	}
	for _, addr := range pod.Addresses {
		if err := h.NeighSet(neighbor(host.Index, addr, PodMAC(pod.Addresses))); err != nil {
			return fmt.Errorf("neighbor %s of device %s: %w", addr, host.Name, err)
		}
	}
	return nil
}

// preparePod sets up what the Pod's end has beside routes, and the loopback device.
func preparePod(ns *os.File, pod *Pod) error {
	err := inNamespace(ns, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		own, err := h.LinkByName(pod.Interface)
		if err != nil {
			return fmt.Errorf("device %s: %w", pod.Interface, err)
		}
		if err := prepare6(h, own, pod); err != nil {
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

// addAddresses adds the Pod's addresses and gateways to its end. A device with an IPv6 address has a link-local
// one, too (RFC 4291, section 2.1). There is nobody else on the link who could have an address, and nothing to
// detect (RFC 4862, section 5.4).
func addAddresses(h *netlink.Handle, own netlink.Link, pod *Pod) error {
	nets := make([]netip.Prefix, 0, len(pod.Addresses)+1)
	for _, addr := range pod.Addresses {
		nets = append(nets, netip.PrefixFrom(addr, addr.BitLen()))
	}
	if pod.wants6() {
		nets = append(nets, netip.PrefixFrom(linkLocal(PodMAC(pod.Addresses)), 64))
	}
	for _, n := range nets {
		addr := &netlink.Addr{IPNet: ipNet(n)}
		if n.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := h.AddrAdd(own, addr); err != nil {
			return fmt.Errorf("address %s of device %s: %w", n, pod.Interface, err)
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

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func single(addr netip.Addr) *net.IPNet { return ipNet(netip.PrefixFrom(addr, addr.BitLen())) }
