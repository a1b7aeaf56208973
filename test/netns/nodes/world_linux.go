package nodes

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses.
var (
	// DNSService is the cluster DNS IP, ServerService that of a second Service of
	// the same servers, for agents, Local the agents' own.
	DNSService    = netip.MustParseAddr("10.96.0.10")
	ServerService = netip.MustParseAddr("10.96.0.11")
	Local         = netip.MustParseAddr("169.254.20.10")
	// Servers are where servers of the cluster may listen.
	Servers = []netip.Addr{netip.MustParseAddr("10.244.0.53"), netip.MustParseAddr("10.244.0.54")}
	// Upstream is outside.
	Upstream = netip.MustParseAddr("192.0.2.53")

	gateway = netip.MustParseAddr("10.255.255.1") // of Pods, on their nodes
)

// Count of nodes with Pods.
const Count = 2

// World is the cluster and the outside network.
type World struct {
	Server, Outside *Place
	Nodes, Pods     [Count]*Place
	// PodAddrs are the Pods' addresses, NodeAddrs those of their nodes.
	PodAddrs, NodeAddrs [Count]netip.Addr

	places []*Place
}

// New makes a World whose Pods have these addresses. Close it in any case.
func New(podAddrs [Count]netip.Addr) (*World, error) {
	w := &World{PodAddrs: podAddrs}
	places := []**Place{&w.Server, &w.Outside}
	for i := range Count {
		places = append(places, &w.Nodes[i], &w.Pods[i])
	}
	for _, at := range places {
		p, err := newPlace()
		if err != nil {
			return w, err
		}
		*at, w.places = p, append(w.places, p)
	}
	return w, w.connect()
}

// Close ends the World and all processes in it.
func (w *World) Close() {
	for _, p := range w.places {
		p.close()
	}
}

// connect links each node to the server's node, all three to the outside network, and
// each Pod to its node.
func (w *World) connect() error {
	err := errors.Join(
		w.Server.Do(func() error { return errors.Join(give("lo", Servers[0]), give("lo", Servers[1])) }),
		w.Outside.Do(func() error { return give("lo", Upstream) }),
		link(w.Server, "outside", subnet(10), w.Outside, "server"),
		w.Server.Do(func() error { return route(Upstream, subnet(10).of(1)) }),
	)
	for i, node := range w.Nodes {
		up, out := subnet(1+i), subnet(11+i)
		w.NodeAddrs[i] = up.of(0)
		err = errors.Join(err,
			link(node, "server", up, w.Server, nodeDevice(i)),
			link(node, "outside", out, w.Outside, nodeDevice(i)),
			node.Do(func() error { return errors.Join(routeAll(up.of(1)), route(Upstream, out.of(1))) }),
			w.Server.Do(func() error { return route(w.PodAddrs[i], up.of(0)) }),
			w.connectPod(i),
		)
	}
	return err
}

func nodeDevice(i int) string { return fmt.Sprintf("node%d", i) }

// connectPod routes the Pod's packets through its node, and gives it its own /etc.
func (w *World) connectPod(i int) error {
	node, pod := w.Nodes[i], w.Pods[i]
	return errors.Join(
		pair(node, "pod", pod, "eth0"),
		node.Do(func() error { return errors.Join(give("pod", gateway), routeTo("pod", w.PodAddrs[i])) }),
		pod.Do(func() error {
			return errors.Join(give("eth0", w.PodAddrs[i]), routeTo("eth0", gateway), routeAll(gateway))
		}),
		pod.ownEtc(map[string]string{"nsswitch.conf": "hosts: files dns\n", "hosts": "127.0.0.1 localhost\n"}),
	)
}

// Resolve gives a Pod its resolv.conf.
func (w *World) Resolve(pod int, text string) error {
	return w.Pods[pod].Do(func() error { return writeEtc(map[string]string{"resolv.conf": text}) })
}

// subnet is a subnet of two addresses.
type subnet byte

func (s subnet) of(end byte) netip.Addr { return netip.AddrFrom4([4]byte{172, 16, byte(s), 1 + end}) }

// link connects two places, with the subnet's first and second address.
func link(a *Place, aDevice string, s subnet, b *Place, bDevice string) error {
	return errors.Join(
		pair(a, aDevice, b, bDevice),
		a.Do(func() error { return errors.Join(give(aDevice, s.of(0)), routeTo(aDevice, s.of(1))) }),
		b.Do(func() error { return errors.Join(give(bDevice, s.of(1)), routeTo(bDevice, s.of(0))) }),
	)
}

// pair makes a veth pair.
func pair(a *Place, aDevice string, b *Place, bDevice string) error {
	err := a.Do(func() error {
		err := netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: aDevice},
			PeerName:  bDevice, PeerNamespace: netlink.NsFd(b.net.Fd()),
		})
		return errors.Join(err, up(aDevice))
	})
	return errors.Join(err, b.Do(func() error { return up(bDevice) }))
}

func up(device string) error {
	found, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("device %s: %w", device, err)
	}
	return netlink.LinkSetUp(found)
}

// give assigns an address to a device.
func give(device string, addr netip.Addr) error {
	found, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("device %s: %w", device, err)
	}
	return netlink.AddrAdd(found, &netlink.Addr{IPNet: netlink.NewIPNet(addr.AsSlice())})
}

// routeTo adds a route to an address behind a device.
func routeTo(device string, addr netip.Addr) error {
	found, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("device %s: %w", device, err)
	}
	return netlink.RouteAdd(
		&netlink.Route{LinkIndex: found.Attrs().Index, Scope: unix.RT_SCOPE_LINK, Dst: netlink.NewIPNet(addr.AsSlice())})
}

// route adds a route to an address through a gateway.
func route(addr, by netip.Addr) error {
	return netlink.RouteAdd(&netlink.Route{Dst: netlink.NewIPNet(addr.AsSlice()), Gw: by.AsSlice()})
}

// routeAll adds a default route.
func routeAll(by netip.Addr) error { return netlink.RouteAdd(&netlink.Route{Gw: by.AsSlice()}) }

// AddAddress assigns an address on which programs in the place can listen, until
// RemoveAddress.
func (p *Place) AddAddress(addr netip.Addr) error {
	return p.Do(func() error { return give("lo", addr) })
}

// RemoveAddress removes an address that AddAddress assigned.
func (p *Place) RemoveAddress(addr netip.Addr) error {
	return p.Do(func() error {
		found, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.AddrDel(found, &netlink.Addr{IPNet: netlink.NewIPNet(addr.AsSlice())})
	})
}

// DeleteDevices deletes the devices whose names have the prefix, and returns how many.
func (p *Place) DeleteDevices(prefix string) (n int, err error) {
	return n, p.Do(func() error {
		all, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range all {
			if strings.HasPrefix(l.Attrs().Name, prefix) {
				n++
				err = errors.Join(err, netlink.LinkDel(l))
			}
		}
		return err
	})
}
