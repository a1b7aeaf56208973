//go:build linux

package pods

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"portolan.dev/portolan/test/namespace"
)

// gateway is the address of the caller's end of each link, a link-local one (RFC 3927).
const gateway = "169.254.1.1"

// network is the network namespace of a Pod. Both ends have routes for single addresses, as the CNI plugin ptp makes.
type network struct {
	*namespace.Network
	link    string // in the caller's namespace
	address netip.Addr
}

func newNetwork(link string, address netip.Addr) (*network, error) {
	in, err := namespace.New()
	if err != nil {
		return nil, err
	}
	n := &network{Network: in, link: link, address: address}
	if err := n.connect(); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *network) connect() error {
	if err := namespace.IP(
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", n.link, n.Path()),
		fmt.Sprintf("address add %s/32 dev %s", gateway, n.link),
		fmt.Sprintf("link set %s up", n.link),
		fmt.Sprintf("route add %s/32 dev %s", n.address, n.link),
	); err != nil {
		return err
	}
	return n.Do(func() error {
		return namespace.IP(
			"link set lo up", "link set eth0 up",
			fmt.Sprintf("address add %s/32 dev eth0", n.address),
			"route add "+gateway+" dev eth0",
			"route add default via "+gateway,
		)
	})
}

// close gives the link back at once, and the namespace.
func (n *network) close() error {
	_ = namespace.IP("link delete " + n.link) // it may not have been made
	return n.Close()
}

// listens reports whether a process in the network listens for connections or datagrams (proc_pid_net(5)).
func (n *network) listens() (listening bool, err error) {
	err = n.Do(func() error {
		// TCP_LISTEN, and TCP_CLOSE, which is that of sockets of UDP that are not connected
		for table, state := range map[string]string{"tcp": " 0A ", "tcp6": " 0A ", "udp": " 07 ", "udp6": " 07 "} {
			text, err := os.ReadFile("/proc/thread-self/net/" + table)
			if err != nil {
				return err
			}
			listening = listening || strings.Contains(string(text), state)
		}
		return nil
	})
	return listening, err
}
