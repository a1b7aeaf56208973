//go:build linux

// Package namespace makes network namespaces that last as long as a file is open, and
// runs functions in them (network_namespaces(7)).
package namespace

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Network is a network namespace.
type Network struct{ file *os.File }

// New makes a network namespace. Its loopback device is down.
func New() (*Network, error) {
	n := new(Network)
	err := onOwnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		n.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// Path is the file of the namespace, for other processes too, while this one has it open.
func (n *Network) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// Fd is the file's descriptor in this process.
func (n *Network) Fd() int { return int(n.file.Fd()) }

// Close gives the namespace back. It ends with the processes and sockets in it.
func (n *Network) Close() error { return n.file.Close() }

// Do runs f in the namespace; that of nil is the caller's. Sockets and processes that f makes stay
// there; functions that f starts as goroutines are not in it.
func (n *Network) Do(f func() error) error {
	if n == nil {
		return f()
	}
	return Do(n.Path(), f)
}

// Do runs f in the namespace with this path, see Network.Do.
func Do(path string, f func() error) error {
	return onOwnThread(func() error {
		if err := Enter(path); err != nil {
			return err
		}
		return f()
	})
}

// Enter moves the thread of the caller into the namespace with this path. The caller must
// have locked it.
func Enter(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return os.NewSyscallError("setns", unix.Setns(int(f.Fd()), unix.CLONE_NEWNET))
}

// onOwnThread runs f on a thread that ends with it. It is not the first one of the process, which would not end, and
// whose namespace is taken for that of the process (proc_pid_ns(5)).
func onOwnThread(f func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)      // also if f ends the goroutine, as a test that fails does
		runtime.LockOSThread() // for good: it is not as the others
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			err = onOwnThread(f) // on another one, as this one is locked
			return
		}
		err = f()
	}()
	<-done
	return err
}

// IP runs the commands of ip(8), such as "link set lo up", in the namespace of the caller's
// thread.
func IP(commands ...string) error {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip -batch: %w: %s\n%s", err, out, strings.Join(commands, "\n"))
	}
	return nil
}
