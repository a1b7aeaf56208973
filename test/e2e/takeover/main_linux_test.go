package takeover

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/e2e/nodens"
)

// TestMain runs the tests in the network namespace of a node.
func TestMain(m *testing.M) { nodens.Main(m) }

// pod is the network namespace of a Pod; nil is the node's.
type pod struct{ file *os.File }

// newPod links a new namespace with these addresses to the node.
func newPod(t *testing.T, link string, addresses ...string) *pod {
	t.Helper()
	p := new(pod)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			p.file, err = os.Open("/proc/thread-self/ns/net")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.file.Close() })
	lines := []string{
		fmt.Sprintf("link add %s type veth peer name eth0 netns /proc/%d/fd/%d", link, os.Getpid(), p.file.Fd()),
		"address add " + nodens.GatewayIP + "/32 dev " + link, "link set " + link + " up",
	}
	inner := []string{"link set lo up", "link set eth0 up"}
	for _, a := range addresses {
		lines = append(lines, "route add "+a+"/32 dev "+link)
		inner = append(inner, "address add "+a+"/32 dev eth0")
	}
	inner = append(inner, "route add "+nodens.GatewayIP+" dev eth0", "route add default via "+nodens.GatewayIP)
	if err := nodens.IP(lines...); err != nil {
		t.Fatal(err)
	}
	if err := p.do(func() error { return nodens.IP(inner...) }); err != nil {
		t.Fatal(err)
	}
	return p
}

// do runs a function in the Pod.
func (p *pod) do(run func() error) error {
	if p == nil {
		return run()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock
		err := unix.Setns(int(p.file.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = run()
		}
		done <- err
	}()
	return <-done
}
