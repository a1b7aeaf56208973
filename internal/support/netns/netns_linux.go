package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace. It lasts until it is closed, also without processes in it.
type Namespace struct{ file *os.File }

// Open opens the file of a network namespace. Other files are not even opened: that may take forever, or have an
// effect.
func Open(path string) (*Namespace, error) {
	var in unix.Statfs_t
	switch err := unix.Statfs(path, &in); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no network namespace %s: %w", path, fs.ErrNotExist)
	case err != nil:
		return nil, fmt.Errorf("network namespace %s: %w", path, err)
	case in.Type != unix.NSFS_MAGIC:
		return nil, fmt.Errorf("%s is no network namespace", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		f.Close()
		return nil, fmt.Errorf("%s is no network namespace", path)
	}
	return &Namespace{f}, nil
}

// Name is the path that it was opened with.
func (n *Namespace) Name() string { return n.file.Name() }

// File returns its file, which Close closes.
func (n *Namespace) File() *os.File { return n.file }

// Close closes it.
func (n *Namespace) Close() error { return n.file.Close() }

// IsOwn reports whether it is that of the caller.
func (n *Namespace) IsOwn() (bool, error) {
	it, err := n.file.Stat()
	if err != nil {
		return false, fmt.Errorf("network namespace: %w", err)
	}
	own, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		return false, fmt.Errorf("the network namespace of this process: %w", err)
	}
	return os.SameFile(it, own), nil
}

// Do runs f on a thread that is in the namespace; that of nil is the caller's. Sockets that f opens stay in it;
// goroutines that f starts are not in it. The thread is not the caller's: if it cannot leave the namespace, it ends.
func (n *Namespace) Do(f func() error) error {
	if n == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() { done <- n.onThread(f) }()
	return <-done
}

// onThread runs f in the namespace on the thread of its goroutine.
func (n *Namespace) onThread(f func() error) error {
	runtime.LockOSThread()
	before, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer before.Close()
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", n.file.Name(), err)
	}
	err = f()
	if unix.Setns(int(before.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // else the thread ends with the goroutine
	}
	return err
}

// directories have the namespaces that runtimes of containers keep.
var directories = []string{"/run/netns", "/var/run/netns", "/run/docker/netns"}

// With returns the network namespaces of this machine with an address, but for the caller's: those that runtimes keep,
// and those of processes. The error wraps ErrNotFound if none has it, and fs.ErrPermission if the caller may not look.
func With(addr netip.Addr) (found []*Namespace, err error) {
	var denied error
	type identity struct{ device, inode uint64 }
	seen := make(map[identity]bool)
	for _, path := range candidates() {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 { // to root, those of other containers are not shown
				denied = err
			}
			continue // or the process has ended
		}
		key := identity{st.Dev, st.Ino}
		if seen[key] {
			continue
		}
		seen[key] = true
		n, err := Open(path)
		if err != nil {
			continue
		}
		has := false
		own, err := n.IsOwn()
		if err == nil && !own {
			err = n.Do(func() (err error) { has, err = hasAddress(addr); return err })
		}
		if errors.Is(err, fs.ErrPermission) {
			denied = err
		}
		if has {
			found = append(found, n)
			continue
		}
		n.Close()
	}
	switch {
	case len(found) > 0:
		return found, nil
	case denied != nil:
		return nil, denied
	}
	return nil, fmt.Errorf("%w %s", ErrNotFound, addr)
}

// candidates returns the files of namespaces, those that runtimes keep first.
func candidates() (all []string) {
	for _, dir := range directories {
		files, _ := os.ReadDir(dir) // there may be none
		for _, f := range files {
			all = append(all, filepath.Join(dir, f.Name()))
		}
	}
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		if strings.Trim(p.Name(), "0123456789") == "" {
			all = append(all, filepath.Join("/proc", p.Name(), "ns/net"))
		}
	}
	return all
}
