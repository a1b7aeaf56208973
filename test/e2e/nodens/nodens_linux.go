package nodens

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"portolan.dev/portolan/test/namespace"
)

const (
	// NodeIP is the address of the node.
	NodeIP = "10.0.0.1"
	// GatewayIP is the address of the end of each Pod's link that is on the node.
	GatewayIP = "169.254.1.1"
)

// Main is for TestMain: it executes the tests of m in a process with the network namespace, which
// dies with this one, and ends with its status. Short tests, and users other than root, run none.
func Main(m *testing.M) {
	flag.Parse()
	switch {
	case namespace.Isolated():
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
		status, err := namespace.Isolate()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(status)
	}
}

// prepare makes the network of a node. Packets never take the route of Services: their destination
// is changed before.
func prepare() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	return namespace.IP(
		"link set lo up", "address add "+NodeIP+"/32 dev lo",
		"route add 10.96.0.0/16 dev lo src "+NodeIP,
	)
}
