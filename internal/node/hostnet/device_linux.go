package hostnet

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// noAddresses is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h: the kernel generates no IPv6
// address.
const noAddresses = 1

// device is the network device with the addresses. Only they are routed to it, and the
// kernel delivers packets for them locally, so the device receives none. Packets that are
// sent through it explicitly fill the kernel's queue of 500 packets, and are dropped then.
type device struct {
	prefix string
	addrs  []netip.Addr
	id     string // the ID of the agent, on a persistent device
	path   string // the path of the TUN driver
	kind   string // the kind of a persistent device

	tun   *os.File // nil for a persistent device
	why   error    // why there is no TUN device
	name  string
	index atomic.Int32
}

func newDevice(cfg Config, id string) *device {
	return &device{
		prefix: cfg.Prefix, addrs: slices.Clone(cfg.Addresses), id: id,
		path: cmp.Or(cfg.fallback.tun, "/dev/net/tun"), kind: cmp.Or(cfg.fallback.kind, "dummy"),
	}
}

// install creates the device with its addresses.
func (d *device) install() error {
	if err := d.create(); err != nil {
		return err
	}
	_, err := d.repair()
	return err
}

// create creates a TUN device, or a persistent one if the kernel has no TUN.
func (d *device) create() error {
	d.closeTUN()
	if d.why = d.createTUN(); d.why == nil {
		return nil
	}
	d.closeTUN()
	if err := d.createPersistent(); err != nil {
		return joinErrors(d.why, err)
	}
	return nil
}

// createTUN creates a device that exists as long as its file is open. The kernel appends
// the first free number to its prefix.
func (d *device) createTUN() error {
	fd, err := unix.Open(d.path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w (give the agent the node's: a hostPath volume in its Pod; "+
			"the kernel needs the module tun)", d.path, err)
	}
	ifreq, err := unix.NewIfreq(d.prefix + "%d")
	if err != nil {
		unix.Close(fd)
		return err
	}
	ifreq.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifreq); err != nil {
		unix.Close(fd)
		return fmt.Errorf("TUN device: %w", err)
	}
	d.tun, d.name = os.NewFile(uintptr(fd), d.path), ifreq.Name()
	link, err := netlink.LinkByName(d.name)
	if err != nil {
		return fmt.Errorf("device %s: %w", d.name, err)
	}
	return d.prepare(link)
}

// createPersistent creates a device that must be removed, or takes over the one that
// another agent left or uses.
func (d *device) createPersistent() error {
	d.name = d.prefix
	link, err := linkByName(d.name)
	if err != nil {
		return err
	}
	if link == nil {
		made := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: d.name}, LinkType: d.kind}
		if err := netlink.LinkAdd(made); err != nil {
			return fmt.Errorf("device %s of kind %s: %w", d.name, d.kind, err)
		}
		if link, err = netlink.LinkByName(d.name); err != nil {
			return fmt.Errorf("device %s: %w", d.name, err)
		}
	} else if link.Type() != d.kind {
		return fmt.Errorf("device %s exists, of kind %s: remove it, or use another prefix", d.name, link.Type())
	}
	if err := netlink.LinkSetAlias(link, d.id); err != nil {
		return fmt.Errorf("alias of device %s: %w", d.name, err)
	}
	if err := d.prepare(link); err != nil {
		return err
	}
	return d.removeOldAddresses(link)
}

// prepare disables the generation of addresses and multicast on the device.
func (d *device) prepare(link netlink.Link) error {
	d.index.Store(int32(link.Attrs().Index))
	err := netlink.LinkSetIP6AddrGenMode(link, noAddresses)
	if err != nil && slices.ContainsFunc(d.addrs, netip.Addr.Is6) {
		return fmt.Errorf("device %s: %w: %w", d.name, errNoIPv6, err)
	}
	if err := netlink.LinkSetMulticastOff(link); err != nil {
		return fmt.Errorf("multicast of device %s: %w", d.name, err)
	}
	return nil
}

// repair creates what is missing, and returns what was. It leaves a persistent device that
// another agent took over.
func (d *device) repair() (missing []string, err error) {
	link, err := linkByName(d.name)
	switch {
	case err != nil:
		return nil, err
	case d.takenOver(link):
		return nil, nil
	case link == nil || int32(link.Attrs().Index) != d.index.Load():
		missing = append(missing, "device "+d.name)
		if err := d.create(); err != nil {
			return missing, err
		}
		if link, err = netlink.LinkByName(d.name); err != nil {
			return missing, fmt.Errorf("device %s: %w", d.name, err)
		}
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		missing = append(missing, "device is down")
		if err := netlink.LinkSetUp(link); err != nil {
			return missing, fmt.Errorf("device %s: up: %w", d.name, err)
		}
	}
	more, err := d.repairAddresses(link)
	if missing = append(missing, more...); err == nil && len(missing) > 0 {
		err = joinErrors(d.awaitRoutes(link), d.dropMulticast(link))
	}
	return missing, err
}

// takenOver reports whether another agent has the persistent device.
func (d *device) takenOver(link netlink.Link) bool {
	return d.tun == nil && link != nil && link.Attrs().Alias != "" && link.Attrs().Alias != d.id
}

// dropMulticast removes the IPv6 multicast route that the kernel adds for every device that
// is brought up; packets that are bound to no device could use it.
func (d *device) dropMulticast(link netlink.Link) error {
	err := netlink.RouteDel(&netlink.Route{
		LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_MULTICAST,
		Dst: &net.IPNet{IP: net.ParseIP("ff00::"), Mask: net.CIDRMask(8, 128)},
	})
	if err != nil && !errors.Is(err, unix.ESRCH) && slices.ContainsFunc(d.addrs, netip.Addr.Is6) {
		return fmt.Errorf("multicast route of device %s: %w", d.name, err)
	}
	return nil
}

// remove removes the device, unless another agent took it over.
func (d *device) remove() error {
	if d.tun != nil {
		d.closeTUN()
		return nil
	}
	link, err := linkByName(d.name)
	if err != nil || link == nil || link.Attrs().Alias != d.id {
		return err // there is none, or another agent has it
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("removing device %s: %w", d.name, err)
	}
	return nil
}

func (d *device) closeTUN() {
	if d.tun != nil {
		d.tun.Close()
		d.tun = nil
	}
}

// linkByName returns the device with a name, or nil if there is none.
func linkByName(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if none := (netlink.LinkNotFoundError{}); errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	return link, nil
}
