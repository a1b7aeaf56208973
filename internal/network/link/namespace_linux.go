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

// openNamespace opens the file of a network namespace, which is another one than the node's. Other files are not even
// opened: that may take forever, or have an effect.
func openNamespace(path string) (*os.File, error) {
	var in unix.Statfs_t
	err := unix.Statfs(path, &in)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no network namespace %s: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", path, err)
	}
	if in.Type != unix.NSFS_MAGIC {
		return nil, fmt.Errorf("%s is no network namespace", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	if err := checkNamespace(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// checkNamespace returns an error if a file is not that of a network namespace, or of the one of the caller.
func checkNamespace(f *os.File) error {
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		return fmt.Errorf("%s is no network namespace", f.Name())
	}
	pod, err := f.Stat()
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	own, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("the node's network namespace: %w", err)
	}
	if os.SameFile(pod, own) {
		return fmt.Errorf("%s is the network namespace of the node", f.Name())
	}
	return nil
}

// inNamespace runs f on a thread that is in the namespace. It is not the caller's: if the thread cannot leave the
// namespace, it ends.
func inNamespace(ns *os.File, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- onThread(ns, f) }()
	return <-done
}

// onThread runs f in the namespace on the thread of its goroutine.
func onThread(ns *os.File, f func() error) error {
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
