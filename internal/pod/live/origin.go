package live

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/support/hostaddrs"
	"portolan.dev/portolan/internal/support/netns"
)

// Dialer opens connections and sockets from somewhere. The network is tcp or udp.
type Dialer interface {
	Dial(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error)
}

// Origin is where packets are sent from.
type Origin struct {
	// From says so in words.
	From string
	// Dialer is nil if nothing can be sent from where the client is; then Why says why, and Run what to do instead.
	Dialer   Dialer
	Why, Run string
	space    *netns.Namespace
}

// Close closes the namespace of the origin.
func (o *Origin) Close() error {
	if o.space == nil {
		return nil
	}
	return o.space.Close()
}

// Here is where the command runs.
func Here() *Origin { return &Origin{From: "where this command runs", Dialer: spaceDialer{}} }

// spaceDialer dials from a network namespace; that of nil is the caller's.
type spaceDialer struct{ space *netns.Namespace }

// Dial opens a connection or a socket. The dialer gets an address, so that it makes the socket on the thread of its
// caller.
func (d spaceDialer) Dial(ctx context.Context, network string, to netip.AddrPort) (conn net.Conn, err error) {
	err = d.space.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, to.String())
		return err
	})
	return conn, err
}

// Find returns the origin of a client: the network namespace of a file, if there is one, or else that of the Pod, of
// the node or of the command. Only what is wrong with the file is an error: where the client's namespace is not at
// hand, the origin says why.
func Find(c *connection.Client, file string) (*Origin, error) {
	if file != "" {
		n, err := netns.Open(file)
		if err != nil {
			return nil, err
		}
		return &Origin{From: "network namespace " + file, Dialer: spaceDialer{n}, space: n}, nil
	}
	pod := c.Subject.Pod
	switch {
	case c.Place == connection.Outside:
		return outside(c), nil
	case c.Place == connection.OnNode:
		return onNode(c), nil
	case c.Place == connection.InPod && pod == nil:
		return &Origin{From: c.String(), Why: "packets are sent by Pods that run, and " + c.String() + " is none"}, nil
	case c.Subject.Finished():
		return &Origin{From: c.String(), Why: "the Pod has finished, and sends nothing any more"}, nil
	case !c.Addr.IsValid():
		return &Origin{From: c.String(), Why: c.String() + " has no address yet"}, nil
	case c.Place == connection.InPod && c.Subject.Spec.HostNetwork:
		return onNode(c), nil
	}
	return inPod(c), nil
}

// outside returns the origin of a client outside the cluster: this machine, if it has the client's address.
func outside(c *connection.Client) *Origin {
	o := Here()
	if c.Addr.IsValid() && !isOwn(c.Addr) {
		o.Dialer, o.Why = nil, fmt.Sprintf("this machine does not have the address %s", c.Addr)
		o.Run = "the same command on the machine that has it, or with --from outside"
	}
	return o
}

// onNode returns the origin of a client in the network of a node: this machine, if it has the node's address.
func onNode(c *connection.Client) *Origin {
	if c.Addr.IsValid() && isOwn(c.Addr) {
		o := Here()
		o.From = "this machine, node " + c.Node
		return o
	}
	o := &Origin{From: c.String()}
	const asNode = "the same command with --netns /proc/1/ns/net, if this machine is the node"
	switch {
	case c.Node == "":
		o.Why, o.Run = "no Node is known, so that this machine is not known to be one", asNode
	case !c.Addr.IsValid():
		o.Why, o.Run = fmt.Sprintf("the address of node %s is not known, so that this machine is not known to be it", c.Node),
			asNode
	default:
		o.Why, o.Run = fmt.Sprintf("this machine is not node %s: it does not have its address", c.Node), onItsNode(c.Node)
	}
	return o
}

func isOwn(addr netip.Addr) bool {
	own, err := hostaddrs.All()
	return err == nil && slices.Contains(own, addr)
}

// inPod returns the origin of a Pod: the network namespace of this machine with its address.
func inPod(c *connection.Client) *Origin {
	found, err := netns.With(c.Addr)
	o := &Origin{From: c.String()}
	switch {
	case len(found) == 1:
		o.From += ", network namespace " + found[0].Name()
		o.Dialer, o.space = spaceDialer{found[0]}, found[0]
		return o
	case len(found) > 1:
		o.Why = fmt.Sprintf("several network namespaces have the address %s: %s", c.Addr, names(found))
		o.Run = "the same command with --netns FILE"
		for _, n := range found {
			n.Close()
		}
	case errors.Is(err, fs.ErrPermission):
		o.Why = "to send from a Pod takes root on its node"
		o.Run = onItsNode(c.Node)
	case errors.Is(err, netns.ErrNotFound):
		o.Why = fmt.Sprintf("%s is not on this machine: no network namespace has its address %s", c, c.Addr)
		o.Run = onItsNode(c.Node)
	default:
		o.Why = err.Error()
		o.Run = onItsNode(c.Node)
	}
	return o
}

func names(all []*netns.Namespace) string {
	var names []string
	for _, n := range all {
		names = append(names, n.Name())
	}
	return strings.Join(names, ", ")
}

// onItsNode says how to run the command on a node.
func onItsNode(node string) string {
	if node == "" {
		return "the same command as root on the node"
	}
	return fmt.Sprintf("the same command as root on node %s, such as in the Pod of its agent: "+
		"kubectl exec --namespace kube-system $(kubectl get pods --namespace kube-system --output name "+
		"--selector app.kubernetes.io/name=portolan-node --field-selector spec.nodeName=%s) -- portolan explain ...",
		node, node)
}
