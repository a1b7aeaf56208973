package link

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// openNamespace opens the file of a network namespace.
func openNamespace(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no network namespace %s: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err == nil && kind == unix.CLONE_NEWNET {
		return f, nil
	}
	f.Close()
	return nil, fmt.Errorf("%s is no network namespace", path)
}

// inNamespace runs f on a thread that is in the namespace.
func inNamespace(ns *os.File, f func() error) error {
	runtime.LockOSThread()
	before, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer before.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", ns.Name(), err)
	}
	err = f()
	if unix.Setns(int(before.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // else the thread ends with the goroutine
	}
	return err
}

// Values of disable_ipv6, and the absence of IPv6, of a device.
type ipv6 int

const (
	ipv6Absent ipv6 = iota // the kernel has none
	ipv6Disabled
	ipv6Enabled
)

// ipv6Of returns whether a device of the thread's namespace has IPv6.
func ipv6Of(device string) (ipv6, error) {
	value, err := os.ReadFile(sysctl6(device, "disable_ipv6"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ipv6Absent, nil
	case err != nil:
		return ipv6Absent, err
	case strings.TrimSpace(string(value)) == "0":
		return ipv6Enabled, nil
	}
	return ipv6Disabled, nil
}

// ignoreRouters has a device of the thread's namespace neither ask for routers nor believe one.
func ignoreRouters(device string) error {
	return os.WriteFile(sysctl6(device, "accept_ra"), []byte("0"), 0)
}

func sysctl6(device, name string) string { return "/proc/sys/net/ipv6/conf/" + device + "/" + name }

// prepare6 leaves a device of the thread's namespace without addresses of its own making, if it has IPv6, which it
// must where the Pod has such an address.
func prepare6(h *netlink.Handle, device netlink.Link, pod *Pod) error {
	name := device.Attrs().Name
	state, err := ipv6Of(name)
	if err != nil {
		return fmt.Errorf("IPv6 of device %s: %w", name, err)
	}
	if state != ipv6Enabled && pod.wants6() {
		return fmt.Errorf("device %s: %w (sysctl net.ipv6.conf.%s.disable_ipv6)", name, ErrNoIPv6, name)
	}
	if state == ipv6Absent {
		return nil
	}
	if err := h.LinkSetIP6AddrGenMode(device, noAddresses); err != nil {
		return fmt.Errorf("IPv6 addresses of device %s: %w", name, err)
	}
	return ignoreRouters(name)
}
