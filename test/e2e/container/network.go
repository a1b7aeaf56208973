//go:build linux

package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Network is the network namespace of a Pod and that of its node, with a link
// between them and no other way out.
type Network struct{ pod, node *os.File }

// The addresses of both ends of the link (RFC 5737).
const (
	PodAddress  = "192.0.2.2"
	NodeAddress = "192.0.2.1"
)

// NewNetwork makes both. The node has more addresses, if they are given.
func NewNetwork(ofNode ...string) (*Network, error) {
	pod, err := newNamespace()
	if err != nil {
		return nil, err
	}
	node, err := newNamespace()
	if err != nil {
		pod.Close()
		return nil, err
	}
	n := &Network{pod: pod, node: node}
	onNode := []string{
		fmt.Sprintf("link add pod type veth peer name eth0 netns /proc/%d/fd/%d", os.Getpid(), pod.Fd()),
		"address add " + NodeAddress + "/24 dev pod", "link set lo up", "link set pod up",
	}
	for _, addr := range ofNode {
		onNode = append(onNode, "address add "+addr+"/32 dev lo")
	}
	inPod := []string{
		"address add " + PodAddress + "/24 dev eth0",
		"link set lo up",
		"link set eth0 up",
		"route add default via " + NodeAddress,
	}
	err = errors.Join(inside(node, func() error { return ip(onNode) }), inside(pod, func() error { return ip(inPod) }))
	if err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// ip runs ip(8) for each line.
func ip(lines []string) error {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("container: ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// Close lets go of the namespaces. They end with the processes and sockets in
// them.
func (n *Network) Close() error { return errors.Join(n.pod.Close(), n.node.Close()) }

// Dial connects from the node.
func (n *Network) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = inside(n.node, func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens for connections on the node.
func (n *Network) Listen(address string) (l net.Listener, err error) {
	err = inside(n.node, func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// ListenPacket listens for packets on the node.
func (n *Network) ListenPacket(address string) (c net.PacketConn, err error) {
	err = inside(n.node, func() (err error) {
		c, err = net.ListenPacket("udp", address)
		return err
	})
	return c, err
}

// newNamespace makes a network namespace, which lasts as long as its file is
// open.
func newNamespace() (*os.File, error) {
	var f *os.File
	err := onOwnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("%w: unshare: %w", ErrUnable, err)
		}
		f, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return f, err
}

// inside runs f in a network namespace. Sockets and processes of f stay there.
func inside(namespace *os.File, f func() error) error {
	return onOwnThread(func() error {
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("setns", err)
		}
		return f()
	})
}

// onOwnThread runs f on a thread that ends with it.
func onOwnThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: it is not as the others
		done <- f()
	}()
	return <-done
}
