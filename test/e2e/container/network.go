//go:build linux

package container

import (
	"context"
	"errors"
	"net"

	"portolan.dev/portolan/test/namespace"
)

// Network is the network namespace of a Pod and that of its node, with a link
// between them and no other way out.
type Network struct{ pod, node *namespace.Network }

// The addresses of both ends of the link (RFC 5737).
const (
	PodAddress  = "192.0.2.2"
	NodeAddress = "192.0.2.1"
)

// NewNetwork makes both. The node has more addresses, if they are given.
func NewNetwork(ofNode ...string) (*Network, error) {
	pod, err := namespace.New()
	if err != nil {
		return nil, err
	}
	node, err := namespace.New()
	if err != nil {
		pod.Close()
		return nil, err
	}
	n := &Network{pod: pod, node: node}
	onNode := []string{
		"link add pod type veth peer name eth0 netns " + pod.Path(),
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
	err = errors.Join(
		node.Do(func() error { return namespace.IP(onNode...) }), pod.Do(func() error { return namespace.IP(inPod...) }))
	if err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// Close lets go of the namespaces. They end with the processes and sockets in
// them.
func (n *Network) Close() error { return errors.Join(n.pod.Close(), n.node.Close()) }

// Dial connects from the node.
func (n *Network) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.node.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens for connections on the node.
func (n *Network) Listen(address string) (l net.Listener, err error) {
	err = n.node.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// ListenPacket listens for packets on the node.
func (n *Network) ListenPacket(address string) (c net.PacketConn, err error) {
	err = n.node.Do(func() (err error) {
		c, err = net.ListenPacket("udp", address)
		return err
	})
	return c, err
}
