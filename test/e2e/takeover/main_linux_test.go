package takeover

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inside is the environment variable that marks the process in the network namespace.
const inside = "PORTOLAN_TAKEOVER"

// TestMain runs the tests in a network namespace of their own.
func TestMain(m *testing.M) {
	flag.Parse()
	switch {
	case os.Getenv(inside) != "":
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	case testing.Short():
		fmt.Println("skipped: it starts a control plane")
	case os.Getuid() != 0:
		fmt.Println("skipped: a network namespace of its own needs root")
	default:
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// Addresses of the node, and of the end of each Pod's link that is on the node.
const (
	nodeIP    = "10.0.0.1"
	gatewayIP = "169.254.1.1"
)

// prepare makes the network of a node, which forwards packets to Pods. Services have a
// route, which packets never take: their destination is changed before.
func prepare() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	return ip(
		"link set lo up", "address add "+nodeIP+"/32 dev lo",
		"route add 10.96.0.0/16 dev lo src "+nodeIP,
	)
}

// ip runs ip(8) for each line.
func ip(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

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
		"address add " + gatewayIP + "/32 dev " + link, "link set " + link + " up",
	}
	inner := []string{"link set lo up", "link set eth0 up"}
	for _, a := range addresses {
		lines = append(lines, "route add "+a+"/32 dev "+link)
		inner = append(inner, "address add "+a+"/32 dev eth0")
	}
	inner = append(inner, "route add "+gatewayIP+" dev eth0", "route add default via "+gatewayIP)
	if err := ip(lines...); err != nil {
		t.Fatal(err)
	}
	if err := p.do(func() error { return ip(inner...) }); err != nil {
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
