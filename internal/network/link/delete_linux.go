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

// List returns the names of the host's ends of which a device is left, sorted.
func List() ([]string, error) {
	devices, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var hosts []string
	for _, d := range devices {
		if host, ok := hostOf(d.Attrs().Name); ok {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts), nil
}
