package rolling

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// inside is the environment variable that marks the process in the network namespace.
const inside = "PORTOLAN_ROLLING"

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
