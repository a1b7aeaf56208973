package link

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/netns"
)

// openNamespace opens the file of a network namespace, which is another one than the node's.
func openNamespace(path string) (*netns.Namespace, error) {
	ns, err := netns.Open(path)
	if err != nil {
		return nil, err
	}
	own, err := ns.IsOwn()
	if err == nil && own {
		err = fmt.Errorf("%s is the network namespace of the node", path)
	}
	if err != nil {
		ns.Close()
		return nil, err
	}
	return ns, nil
}

// refuse6 leaves a device without IPv6 addresses of the kernel's making. It reports whether the device has IPv6.
func refuse6(h *netlink.Handle, device netlink.Link) (present bool, err error) {
	err = h.LinkSetIP6AddrGenMode(device, noAddresses)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("IPv6 addresses of device %s: %w", device.Attrs().Name, err)
	}
	return true, nil
}

// refuseRouters has the host's end, or another device of a Pod on the host, without addresses of its own, and
// believe no router: a Pod that claims to be one would get what the node sends (CVE-2020-10749).
func refuseRouters(h *netlink.Handle, device netlink.Link) (present bool, err error) {
	if present, err = refuse6(h, device); !present {
		return false, err
	}
	return true, os.WriteFile(sysctl6(device, "accept_ra"), []byte("0"), 0)
}

// isDisabled6 reports whether a device of the host that has IPv6 does not use it.
func isDisabled6(device netlink.Link) (bool, error) {
	value, err := os.ReadFile(sysctl6(device, "disable_ipv6"))
	return strings.TrimSpace(string(value)) != "0", err
}

// sysctl6 returns the path of a sysctl of a device. Those of Pods' namespaces are not touched: the kernel compares a
// path below /proc/sys/net with that of each namespace for which it was looked up.
func sysctl6(device netlink.Link, name string) string {
	return "/proc/sys/net/ipv6/conf/" + device.Attrs().Name + "/" + name
}
