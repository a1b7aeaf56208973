package route

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/retry"
)

// noticesSize is how many octets of notices the kernel keeps for Run.
const noticesSize = 8 << 20

// Run watches the kernel until ctx is done: it repairs what others change of what is programmed, repeats what
// failed, and tells HostChanged of changes of the host. It returns nil then, and an error if it cannot watch.
func (r *Router) Run(ctx context.Context) error {
	socket, err := nl.Subscribe(
		unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
	)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	_ = socket.SetReceiveBufferSize(noticesSize, true) // with a smaller one, everything is compared more often
	defer context.AfterFunc(ctx, socket.Close)()
	// What happened before is not known.
	notify(r.damaged)
	notify(r.hostChanged)
	repaired := make(chan struct{})
	go func() {
		defer close(repaired)
		r.repair(ctx)
	}()
	defer func() { <-repaired }()
	for {
		messages, _, err := socket.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			notify(r.damaged)
			notify(r.hostChanged)
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("netlink: %w", err)
		}
		for i := range messages {
			r.judge(&messages[i])
		}
	}
}

// repair compares the kernel with what is wanted when it may differ. It waits longer and longer while others change
// the same again and again, and while it fails.
func (r *Router) repair(ctx context.Context) {
	var failures retry.Backoff
	var repairs retry.Repairs
	problem, pause := "", retry.Gather
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.damaged:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		changed, err := r.compareAll()
		switch {
		case err != nil:
			if err.Error() != problem {
				r.cfg.Log.Error("the kernel does not have all routes to other nodes", "err", err)
			}
			problem, pause = err.Error(), failures.Next()
			continue
		case changed > 0:
			r.cfg.Log.Info("routes to other nodes were not as they should be, and are again", "changed", changed)
			pause, _ = repairs.Next(time.Now())
		default:
			pause = retry.Gather
		}
		problem, failures = "", retry.Backoff{}
	}
}

// compareAll is Sync with what is wanted; nothing before the first Sync.
func (r *Router) compareAll() (changed int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.want == nil {
		return 0, nil
	}
	select { // what was told until now is compared
	case <-r.damaged:
	default:
	}
	return r.sync()
}

// judge decides what a notice of the kernel is about.
func (r *Router) judge(m *syscall.NetlinkMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Header.Pid == r.socket.port {
		return
	}
	damaged, changed := false, false
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		damaged, changed = r.judgeLink(m)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		// With an address, routes from it go.
		changed = r.concernsHost(m.Data)
		damaged = changed
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		damaged = r.concernsRoute(m)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		damaged = r.concernsTunnel(m)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		damaged = m.Header.Type == unix.RTM_DELRULE
	}
	if damaged && r.want != nil {
		notify(r.damaged)
	}
	if changed {
		notify(r.hostChanged)
	}
}

// index returns the interface that a notice is about: octet 4 of struct ifinfomsg, ifaddrmsg and ndmsg.
func index(data []byte) int {
	if len(data) < 8 {
		return 0
	}
	return int(int32(binary.NativeEndian.Uint32(data[4:])))
}

// judgeLink: a link of the host, or one that routes lead to, changed; or a device of tunnels.
func (r *Router) judgeLink(m *syscall.NetlinkMessage) (damaged, changed bool) {
	i := index(m.Data)
	changed = r.host[i]
	for _, known := range r.links {
		damaged = damaged || known == i
	}
	if r.want == nil || damaged || len(m.Data) < unix.SizeofIfInfomsg {
		return damaged || changed, changed
	}
	attributes, err := nl.ParseRouteAttr(m.Data[unix.SizeofIfInfomsg:])
	for _, a := range attributes { // a device that another program made in the place of one
		if a.Attr.Type == unix.IFLA_IFNAME && err == nil {
			name := nl.BytesToString(a.Value)
			damaged = damaged || slices.Contains(devices, name)
		}
	}
	return damaged || changed, changed
}

// concernsHost reports whether an address is one that matters.
func (r *Router) concernsHost(data []byte) bool {
	if len(data) < unix.SizeofIfAddrmsg {
		return false
	}
	attributes, err := nl.ParseRouteAttr(data[unix.SizeofIfAddrmsg:])
	if err != nil {
		return false
	}
	for _, a := range attributes {
		if a.Attr.Type == unix.IFA_ADDRESS {
			addr, _ := netip.AddrFromSlice(a.Value)
			return addr.Is4() || !addr.IsLinkLocalUnicast()
		}
	}
	return false
}

// concernsRoute reports whether a wanted route was removed or replaced.
func (r *Router) concernsRoute(m *syscall.NetlinkMessage) bool {
	if r.want == nil || len(m.Data) < unix.SizeofRtMsg {
		return false
	}
	attributes, err := nl.ParseRouteAttr(m.Data[unix.SizeofRtMsg:])
	if err != nil {
		return false
	}
	table, priority := int(m.Data[4]), uint32(0)
	var to, via netip.Addr
	for _, a := range attributes {
		switch {
		case a.Attr.Type == unix.RTA_DST:
			to, _ = netip.AddrFromSlice(a.Value)
		case a.Attr.Type == unix.RTA_GATEWAY:
			via, _ = netip.AddrFromSlice(a.Value)
		case a.Attr.Type == unix.RTA_VIA && len(a.Value) > 2:
			via, _ = netip.AddrFromSlice(a.Value[2:])
		case a.Attr.Type == unix.RTA_TABLE && len(a.Value) == 4:
			table = int(binary.NativeEndian.Uint32(a.Value))
		case a.Attr.Type == unix.RTA_PRIORITY && len(a.Value) == 4:
			priority = binary.NativeEndian.Uint32(a.Value)
		}
	}
	dst := netip.PrefixFrom(to, int(m.Data[1]))
	ours := m.Data[5] == Protocol
	refuses := ours && m.Data[7] == unix.RTN_UNREACHABLE
	wanted := table == mainTable && priority == unreachablePriority && r.want.isUnreachable(dst)
	if refuses || wanted {
		return wanted != (refuses && m.Header.Type == unix.RTM_NEWROUTE)
	}
	want, ok := r.want.routes[routeKey{table, dst}]
	if !ok {
		return ours && via.IsValid() && m.Header.Type == unix.RTM_NEWROUTE
	}
	return m.Header.Type == unix.RTM_DELROUTE || !ours || via != want.Via
}

// concernsTunnel reports whether a neighbor or a forwarding entry of a device of tunnels is not as it should be. The
// kernel does not say who changed an entry.
func (r *Router) concernsTunnel(m *syscall.NetlinkMessage) bool {
	if r.want == nil || len(m.Data) < unix.SizeofNdMsg {
		return false
	}
	device := ""
	for _, d := range r.want.local.Devices {
		if i, ok := r.links[d.Name]; ok && i == index(m.Data) {
			device = d.Name
		}
	}
	attributes, err := nl.ParseRouteAttr(m.Data[unix.SizeofNdMsg:])
	if err != nil || device == "" {
		return false
	}
	var addr netip.Addr
	var mac MAC
	for _, a := range attributes {
		switch {
		case a.Attr.Type == unix.NDA_DST:
			addr, _ = netip.AddrFromSlice(a.Value)
		case a.Attr.Type == unix.NDA_LLADDR && len(a.Value) == len(mac):
			mac = MAC(a.Value)
		}
	}
	var same bool
	permanent := binary.NativeEndian.Uint16(m.Data[8:])&unix.NUD_PERMANENT != 0
	if m.Data[0] == unix.AF_BRIDGE {
		is := Forward{device, mac, addr}
		same = r.want.forwards[is.key()] == is
	} else {
		is := Neighbor{device, addr, mac}
		want, ok := r.want.neighbors[is.key()]
		if !ok && !permanent {
			return false // such as one for a multicast address
		}
		same = want == is && permanent
	}
	return same == (m.Header.Type == unix.RTM_DELNEIGH)
}
