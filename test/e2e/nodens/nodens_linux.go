package nodens

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

const (
	// NodeIP is the address of the node.
	NodeIP = "10.0.0.1"
	// GatewayIP is the address of the end of each Pod's link that is on the node.
	GatewayIP = "169.254.1.1"
)

// inside is the environment variable that marks the process in the network namespace.
const inside = "PORTOLAN_NODENS"

// Main is for TestMain: it executes the tests of m in a process with the network namespace, which
// dies with this one, and ends with its status. Short tests, and users other than root, run none.
func Main(m *testing.M) {
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

// prepare makes the network of a node. Packets never take the route of Services: their destination
// is changed before.
func prepare() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	return IP(
		"link set lo up", "address add "+NodeIP+"/32 dev lo",
		"route add 10.96.0.0/16 dev lo src "+NodeIP,
	)
}

// IP runs ip(8) with the words of each line, until one fails.
func IP(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}
