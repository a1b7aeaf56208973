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

// noAddresses is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h: the kernel makes no
// IPv6 address up.
const noAddresses = 1

// device has the addresses. Nothing is routed to it but them, and the kernel
// delivers those by itself, so no packet ever comes to the device; what somebody
// sends by it on purpose fills the kernel's queue of 500 packets, and no more.
type device struct {
	prefix string
	addrs  []netip.Addr
	id     string // the agent's, on a lasting device
	path   string // of TUN devices
	kind   string // of a lasting device

	tun   *os.File // nil: a lasting device
	why   error    // there is no TUN device
	name  string
	index atomic.Int32
}

func newDevice(cfg Config, id string) *device {
	return &device{
		prefix: cfg.Prefix, addrs: slices.Clone(cfg.Addresses), id: id,
		path: cmp.Or(cfg.fallback.tun, "/dev/net/tun"), kind: cmp.Or(cfg.fallback.kind, "dummy"),
	}
}

// install makes the device, and all that belongs to it.
func (d *device) install() error {
	if err := d.create(); err != nil {
		return err
	}
	_, err := d.mend()
	return err
}

// create makes a TUN device, or a lasting one where there is none.
func (d *device) create() error {
	d.closeTUN()
	if d.why = d.createTUN(); d.why == nil {
		return nil
	}
	d.closeTUN()
	if err := d.createLasting(); err != nil {
		return both(d.why, err)
	}
	return nil
}

// createTUN makes a device that lives as long as its file is open. The kernel
// puts the first number that is free behind its prefix.
func (d *device) createTUN() error {
	fd, err := unix.Open(d.path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w (give the agent the node's: a hostPath volume in its Pod; the kernel needs the module tun)", d.path, err)
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

// createLasting makes a device that has to be removed, or takes over the one
// that another agent left, or still has.
func (d *device) createLasting() error {
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
		return fmt.Errorf("device %s is there, of kind %s: remove it, or take another prefix", d.name, link.Type())
	}
	if err := netlink.LinkSetAlias(link, d.id); err != nil {
		return fmt.Errorf("alias of device %s: %w", d.name, err)
	}
	if err := d.prepare(link); err != nil {
		return err
	}
	return d.dropOthers(link)
}

// prepare keeps the kernel from giving the device addresses of its own, and from
// sending multicast by it.
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

// mend makes what is missing, and tells what was. A lasting device that another
// agent took over is its affair.
func (d *device) mend() (missing []string, err error) {
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
	more, err := d.mendAddresses(link)
	if missing = append(missing, more...); err == nil && len(missing) > 0 {
		err = both(d.awaitRoutes(link), d.dropMulticast(link))
	}
	return missing, err
}

// takenOver tells whether another agent has the lasting device.
func (d *device) takenOver(link netlink.Link) bool {
	return d.tun == nil && link != nil && link.Attrs().Alias != "" && link.Attrs().Alias != d.id
}

// dropMulticast removes the route of IPv6 multicast that the kernel makes for
// every device that comes up; packets that name no device could take it.
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
		return err // none, or not ours
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

// linkByName gives nil when there is none.
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
