package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/sender"
	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/test/netns/nodes"
)

// contender is a measured program.
type contender struct {
	name    string
	command func(kubeconfig string) (program string, args []string, err error)
}

// These are the indexes of contenders.
const (
	kubeProxy = iota
	newest    // kube-proxy
	portolan
	contenders // how many there are
)

// kubeProxy returns kube-proxy as it is configured by default, in nftables mode. None of the
// contenders can change the limit of connections in a namespace.
func (b *bench) kubeProxy(version, path string) contender {
	return contender{"kube-proxy " + version, func(kubeconfig string) (string, []string, error) {
		return path, []string{
			"--proxy-mode=nftables", "--kubeconfig=" + kubeconfig, "--hostname-override=" + nodeName,
			"--cluster-cidr=" + clusterCIDR, "--conntrack-max-per-core=0",
		}, nil
	}}
}

// admin is where Portolan serves profiles, on its node.
const admin = "127.0.0.1:9153"

func (b *bench) ours() contender {
	config := filepath.Join(b.dir, "proxy.yaml")
	return contender{"Portolan", func(kubeconfig string) (string, []string, error) {
		err := os.WriteFile(config, []byte("proxy: {conntrack: {maxPerCore: 0}}\n"), 0o600)
		return b.portolan.Path(), []string{
			"proxy", "--config", config, "--kubeconfig", kubeconfig, "--node-name", nodeName, "--cluster-cidr", clusterCIDR,
			"--admin", admin,
		}, err
	}}
}

// node is a node for one contender, with an API server on its loopback.
type node struct {
	*bench
	contender
	size
	world   *nodes.Router
	api     *fakeapi.Server
	process *nodes.Process // nil before the start
	closers []func() error
	changed int // number of addresses that replaced others
}

func (b *bench) newNode(c contender, s size) (*node, error) {
	n := &node{bench: b, contender: c, size: s, changed: probes + 1}
	if err := n.build(); err != nil {
		n.close()
		return nil, fmt.Errorf("a node for %s: %w", c.name, err)
	}
	return n, nil
}

func (n *node) build() (err error) {
	n.world, err = nodes.NewRouter(netip.MustParsePrefix(sender.Range), netip.MustParsePrefix(servingRange))
	if err != nil {
		return err
	}
	if err := n.world.Servers.Do(n.serve); err != nil {
		return err
	}
	err = n.world.Node.Do(func() error {
		n.api, err = fakeapi.New(&synthetic.Cluster{Namespaces: 1})
		return err
	})
	if err != nil {
		return err
	}
	n.closers = append(n.closers, n.api.Close)
	if err := n.fill(n.api, n.world.NodeAddr); err != nil {
		return err
	}
	return n.api.Kubeconfig(n.kubeconfig())
}

func (n *node) kubeconfig() string { return filepath.Join(n.dir, n.name+".kubeconfig") }

func (n *node) start() (err error) {
	program, args, err := n.command(n.kubeconfig())
	if err != nil {
		return err
	}
	log := filepath.Join(n.dir, fmt.Sprintf("%s-%d.log", n.name, time.Now().UnixNano()))
	n.process, err = n.world.Node.Start(log, program, args...)
	return err
}

func (n *node) close() {
	if n.process != nil {
		n.process.Kill()
	}
	for _, do := range n.closers {
		_ = do() // it is thrown away
	}
	n.world.Close()
}

// serve answers at all endpoints: connections with the address that they arrived at, and
// datagrams that ask for it.
func (n *node) serve() error {
	listener, err := net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", servicePort))
	if err != nil {
		return err
	}
	at := netip.AddrPortFrom(packets().endpoints[0], datagrams)
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	n.closers = append(n.closers, listener.Close, conn.Close)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	go sender.Answer(conn)
	return nil
}

// answer tells the address that the client has reached, until the client resets the connection.
func answer(c net.Conn) {
	defer c.Close()
	addr, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return
	}
	_, _ = c.Write(addr.Addr().AsSlice()) // the client sees it
	_, _ = c.Read(make([]byte, 1))
}

// connect makes a connection from the client and returns the endpoint that served it. A
// connection to a Service that is not programmed yet gets no reply at all, so one that takes
// longer than a moment is given up: the next one may succeed before this one is tried again.
func (n *node) connect(to netip.AddrPort) (served netip.Addr, err error) {
	const moment = 25 * time.Millisecond
	return served, n.world.Client.Do(func() error {
		served, err = connect(to, moment)
		return err
	})
}

func connect(to netip.AddrPort, patience time.Duration) (netip.Addr, error) {
	c, err := net.DialTimeout("tcp4", to.String(), patience)
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	_ = c.(*net.TCPConn).SetLinger(0)               // the port is free again; never fails
	_ = c.SetReadDeadline(time.Now().Add(patience)) // never fails
	var octets [4]byte
	if _, err := c.Read(octets[:]); err != nil {
		return netip.Addr{}, err
	}
	return netip.AddrFrom4(octets), nil
}

// memory is the resident memory of a process in MiB, and the part that is not backed by files.
type memory struct{ all, own float64 }

// settledMemory returns the memory after a pause, in which garbage may be collected.
func (n *node) settledMemory() (m memory, err error) {
	time.Sleep(3 * time.Second)
	if m.all, _, err = rig.Memory(n.process.PID()); err == nil {
		m.own, err = rig.OwnMemory(n.process.PID())
	}
	return m, err
}

// processor returns the processor time of the process and of its children, which are
// kube-proxy's nft.
func (n *node) processor() (used time.Duration, err error) {
	pid := n.process.PID()
	for {
		ended, err := childrenTime(pid)
		if err != nil {
			return 0, err
		}
		ids, err := rig.Session(pid)
		if err != nil {
			return 0, err
		}
		used, err = rig.ProcessorTime(ids)
		again, statErr := childrenTime(pid)
		switch {
		case statErr != nil:
			return 0, statErr
		case err == nil && again == ended: // otherwise a child has ended meanwhile
			return used + ended, nil
		}
	}
}

// childrenTime returns the processor time of the children of a process that have ended
// (proc_pid_stat(5)).
func childrenTime(pid int) (time.Duration, error) {
	const tick = 10 * time.Millisecond // USER_HZ
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	fields := strings.Fields(string(rest))
	const cutime = 16 - 3 // the first of them is the third
	var user, system int64
	if len(fields) < cutime+2 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	_, err = fmt.Sscan(fields[cutime]+" "+fields[cutime+1], &user, &system)
	return time.Duration(user+system) * tick, err
}

// until calls done repeatedly, at an interval of a tenth of the time passed, until it
// reports true.
func until(ctx context.Context, limit time.Duration, done func() (bool, error)) error {
	const least, most = 200 * time.Microsecond, 4 * time.Millisecond
	began := time.Now()
	for {
		ok, last := done()
		took := time.Since(began)
		switch {
		case ok:
			return nil
		case took > limit:
			return errors.Join(fmt.Errorf("not within %s", limit), last)
		case ctx.Err() != nil:
			return ctx.Err()
		}
		// time.Sleep would sleep for a millisecond at least.
		pause := unix.NsecToTimespec(int64(min(max(took/10, least), most)))
		_ = unix.Nanosleep(&pause, nil) // a shorter pause does no harm
	}
}
