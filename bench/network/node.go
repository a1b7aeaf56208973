package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/test/namespace"
)

// uplink is the device of a node that leads to the others.
const uplink = "uplink"

// node is a network namespace with the agent of a contender, and an API server on its loopback.
type node struct {
	*bench
	contender *contender
	way       way
	index     int // from 1 on
	dir       string
	network   *namespace.Network
	api       *fakeapi.Server
	agent     *process // nil if there is none
	list      []plugin
}

// newNode makes the i-th node of a cluster with so many Nodes. It is not linked with others. Close it in any case.
func (b *bench) newNode(c *contender, w way, i, nodes int) (n *node, err error) {
	n = &node{bench: b, contender: c, way: w, index: i}
	// The name is short: that of a socket has at most 107 octets.
	if n.dir, err = os.MkdirTemp(b.dir, "n"); err != nil {
		return n, err
	}
	if n.network, err = namespace.New(); err != nil {
		return n, err
	}
	err = n.network.Do(func() (err error) {
		for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0); err != nil {
				return err
			}
		}
		if err := namespace.IP("link set lo up"); err != nil {
			return err
		}
		n.api, err = newAPI(nodes, w)
		return err
	})
	if err != nil {
		return n, err
	}
	n.list = c.plugins(n)
	return n, n.api.Kubeconfig(n.kubeconfig())
}

func (n *node) kubeconfig() string { return filepath.Join(n.dir, "kubeconfig") }

// address gives the uplink its addresses.
func (n *node) address() error {
	addrs := nodeAddrs(n.index)
	return n.network.Do(func() error {
		return namespace.IP(
			fmt.Sprintf("addr add %s/%d dev %s", addrs[0], nodeBits4, uplink),
			fmt.Sprintf("addr add %s/%d dev %s nodad", addrs[1], nodeBits6, uplink),
			fmt.Sprintf("link set %s up", uplink),
		)
	})
}

// close ends the node and everything in it.
func (n *node) close() error {
	var errs []error
	if n.agent != nil {
		errs = append(errs, n.agent.stop())
	}
	if n.api != nil {
		errs = append(errs, n.api.Close())
	}
	if n.network != nil {
		errs = append(errs, n.network.Close())
	}
	return errors.Join(errs...)
}

// agentTime returns the agent's processor time since its start.
func (n *node) agentTime() (time.Duration, error) {
	if n.agent == nil {
		return 0, nil
	}
	return rig.ProcessorTime([]int{n.agent.cmd.Process.Pid})
}

// pair is two nodes on a link.
type pair [2]*node

// newPair makes two nodes of a cluster with so many Nodes, with their agents and routes. Close it in any case.
func (b *bench) newPair(ctx context.Context, c *contender, w way, nodes int) (p pair, err error) {
	for i := range p {
		if p[i], err = b.newNode(c, w, i+1, nodes); err != nil {
			return p, err
		}
	}
	err = p[0].network.Do(func() error {
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: uplink}, PeerName: uplink, PeerNamespace: netlink.NsFd(p[1].network.Fd()),
		}
		return netlink.LinkAdd(veth)
	})
	if err != nil {
		return p, fmt.Errorf("link two nodes: %w", err)
	}
	for _, n := range p {
		if err := n.address(); err != nil {
			return p, err
		}
	}
	for i, n := range p {
		if c.start != nil {
			err = c.start(ctx, n)
		} else {
			err = c.link(n, p[1-i])
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p pair) close() error {
	var errs []error
	for _, n := range p {
		if n != nil {
			errs = append(errs, n.close())
		}
	}
	return errors.Join(errs...)
}

// linkByHand makes the routes from a node to the Pods of another one, as an administrator does.
func linkByHand(from, to *node) error {
	const device, network, port = "vxlan", 80, 4789
	addrs, ranges := nodeAddrs(to.index), podRanges(to.index)
	if from.way == direct {
		return from.network.Do(func() error { return namespace.IP(routes(ranges, addrs, "")...) })
	}
	mac := func(n *node) string { return tunnelMAC(n.index, network).String() }
	commands := []string{
		fmt.Sprintf("link add %s address %s type vxlan id %d dstport %d local %s dev %s nolearning", device, mac(from),
			network, port, nodeAddrs(from.index)[0], uplink),
		fmt.Sprintf("link set %s mtu %d up", device, from.way.mtu()),
	}
	// The kernel refuses a gateway of IPv6 that is on another link.
	addrs = []netip.Addr{addrs[0], netip.MustParseAddr(fmt.Sprintf("fe80::%d", to.index))}
	for _, a := range addrs {
		commands = append(commands, fmt.Sprintf("neigh add %s lladdr %s dev %s nud permanent", a, mac(to), device))
	}
	commands = append(commands, routes(ranges, addrs, "dev "+device+" onlink")...)
	return from.network.Do(func() error {
		if err := namespace.IP(commands...); err != nil {
			return err
		}
		fdb := exec.Command("bridge", "fdb", "append", mac(to), "dev", device, "dst", nodeAddrs(to.index)[0].String())
		if out, err := fdb.CombinedOutput(); err != nil {
			return fmt.Errorf("bridge: %w: %s", err, out)
		}
		return nil
	})
}

func routes(to []netip.Prefix, via []netip.Addr, rest string) (commands []string) {
	for i := range to {
		commands = append(commands, fmt.Sprintf("route add %s via %s %s", to[i], via[i], rest))
	}
	return commands
}

// process is an agent.
type process struct {
	cmd   *exec.Cmd
	log   string // file
	ended chan struct{}
}

// startAgent starts a command in the node. It ends with this process at the latest.
func (n *node) startAgent(cmd *exec.Cmd) error {
	p := &process{cmd: cmd, log: filepath.Join(n.dir, "log"), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	started := make(chan error)
	go func() {
		defer log.Close()
		// The thread ends with the goroutine, and then the process is killed.
		runtime.LockOSThread()
		err := namespace.Enter(n.network.Path())
		if err == nil {
			err = rig.StartOn(cmd, nil)
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // stop was called, or the log says why it ended
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	n.agent = p
	return nil
}

// stop ends the process.
func (p *process) stop() error {
	const grace = 20 * time.Second
	if err := unix.Kill(p.cmd.Process.Pid, unix.SIGTERM); err != nil {
		return fmt.Errorf("%s ended before: %w\n%s", filepath.Base(p.cmd.Path), err, p.lastWords())
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(grace):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // and its children
		<-p.ended
		return fmt.Errorf("%s does not end\n%s", filepath.Base(p.cmd.Path), p.lastWords())
	}
}

func (p *process) lastWords() string {
	const most = 4000
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-most):])
}
