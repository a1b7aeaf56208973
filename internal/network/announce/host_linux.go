package announce

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/network/announce/frame"
	"portolan.dev/portolan/internal/network/announce/handover"
)

// host is the host's interfaces.
type host struct{}

// interfaces returns the interfaces with an Ethernet address that are up.
func (host) interfaces() (all []iface, err error) {
	found, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	prefixes, err := prefixesOf()
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		const need = net.FlagUp | net.FlagRunning | net.FlagBroadcast
		if i.Flags&need != need || i.Flags&net.FlagLoopback != 0 || len(i.HardwareAddr) != len(frame.MAC{}) {
			continue
		}
		at := iface{index: i.Index, name: i.Name, mac: frame.MAC(i.HardwareAddr), prefixes: prefixes[i.Index]}
		slices.SortFunc(at.prefixes, netip.Prefix.Compare)
		all = append(all, at)
	}
	return all, nil
}

func (host) formerNodes() formerNodes { return handover.New() }

// maxReads is how often the addresses are read again while others change them.
const maxReads = 20

// prefixesOf returns the prefixes of links by the index of their interface.
func prefixesOf() (map[int][]netip.Prefix, error) {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for n := 0; n < maxReads && errors.Is(err, netlink.ErrDumpInterrupted); n++ {
		addrs, err = netlink.AddrList(nil, netlink.FAMILY_ALL)
	}
	if err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	prefixes := make(map[int][]netip.Prefix)
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.IPNet.String())
		if err == nil && !p.IsSingleIP() && !p.Addr().IsLinkLocalUnicast() {
			prefixes[a.LinkIndex] = append(prefixes[a.LinkIndex], p.Masked())
		}
	}
	return prefixes, nil
}

// watch tells of changes of interfaces and addresses (rtnetlink(7)).
func (host) watch(ctx context.Context, changed chan<- struct{}) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	stop := context.AfterFunc(ctx, socket.Close)
	defer func() {
		if stop() {
			socket.Close()
		}
	}()
	for {
		_, _, err := socket.Receive()
		if ctx.Err() != nil {
			return nil
		}
		// ENOBUFS: the kernel's buffer overflowed.
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("netlink: %w", err)
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}
