package link

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Delete removes the link of a Pod by the name of the host's end, with its routes, neighbors and limits. One that
// is not there was removed before, as by the end of the Pod's namespace.
func Delete(host string) error {
	if of, ok := hostOf(host); !ok || of != host {
		return fmt.Errorf("%q is not the name of the host's end of a Pod's link", host)
	}
	for _, name := range []string{host, shapeName(host)} {
		if err := remove(name); err != nil {
			return fmt.Errorf("remove device %s: %w", name, err)
		}
	}
	return nil
}

// remove removes the device with a name, if there is one.
func remove(name string) error {
	request := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// List returns the names of the host's ends that there are, sorted.
func List() ([]string, error) {
	hosts, _, err := list()
	return hosts, err
}

// Prune removes what limited links that are gone: a Pod's namespace takes the link with it, and nothing else.
func Prune() error {
	hosts, shaped, err := list()
	errs := []error{err}
	for _, host := range shaped {
		if _, there := slices.BinarySearch(hosts, host); !there {
			errs = append(errs, Delete(host))
		}
	}
	return errors.Join(errs...)
}

// maxReads is how often the devices are read again while others change them.
const maxReads = 50

// list returns the names of the host's ends, sorted, and of those that have a device for what their Pod sends, which
// they need not have any more themselves.
func list() (hosts, shaped []string, err error) {
	devices, err := netlink.LinkList()
	for n := 0; n < maxReads && errors.Is(err, netlink.ErrDumpInterrupted); n++ { // links changed meanwhile
		devices, err = netlink.LinkList()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list devices: %w", err)
	}
	for _, d := range devices {
		host, ok := hostOf(d.Attrs().Name)
		switch {
		case !ok:
		case host == d.Attrs().Name:
			hosts = append(hosts, host)
		default:
			shaped = append(shaped, host)
		}
	}
	slices.Sort(hosts)
	return hosts, shaped, nil
}
