package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/synthetic"
)

// Ranges. All Nodes share a link.
const (
	podRange4 = "10.128.0.0/9"
	podRange6 = "fd00:128::/32"

	podAddrs4  = "10.128.0.0"
	nodeAddrs4 = "10.80.0.0"
	nodeBits4  = 16
	podBits4   = 22 // a node's
	nodeBits6  = 64

	maxNodes = 1<<(podBits4-9) - 1
	maxPods  = 1 << (32 - podBits4 - 1)
)

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// nodeAddrs returns the addresses of the i-th Node, from 1 on, of each family.
func nodeAddrs(i int) []netip.Addr {
	six := netip.MustParseAddr("fd00:80::").As16()
	binary.BigEndian.PutUint16(six[14:], uint16(i))
	return []netip.Addr{synthetic.Nth(nodeAddrs4, i), netip.AddrFrom16(six)}
}

// podRanges returns the ranges of the Pods of the i-th Node, of each family.
func podRanges(i int) []netip.Prefix {
	six := netip.MustParsePrefix(podRange6).Addr().As16()
	binary.BigEndian.PutUint16(six[4:], uint16(i))
	return []netip.Prefix{
		netip.PrefixFrom(synthetic.Nth(podAddrs4, i<<(32-podBits4)), podBits4),
		netip.PrefixFrom(netip.AddrFrom16(six), nodeBits6),
	}
}

// tunnelMAC returns the address of the i-th Node on the overlay.
func tunnelMAC(i, salt int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0, 0, byte(salt), byte(i >> 8), byte(i)}
}

// newNode returns the i-th Node.
func newNode(i int, w way) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Annotations: flannelAnnotations(i, w)}}
	for _, r := range podRanges(i) {
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, r.String())
	}
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	for _, a := range nodeAddrs(i) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// newAPI starts an API server of the caller's network namespace, with so many Nodes.
func newAPI(nodes int, w way) (*fakeapi.Server, error) {
	api, err := fakeapi.New(&synthetic.Cluster{Namespaces: 1})
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		if err := api.Create("nodes", newNode(i+1, w)); err != nil {
			return nil, errors.Join(err, api.Close())
		}
	}
	return api, nil
}
