package announce

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/announce/plan"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// agentOf is the environment variable with the name of the node of which this process is the agent.
const agentOf = "PORTOLAN_TEST_AGENT"

func TestMain(m *testing.M) {
	if name := os.Getenv(agentOf); name != "" {
		if err := agent(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// The addresses of load balancers, and the port at which nodes say their names there.
var vips = []netip.Addr{netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("2001:db8::100")}

const echoPort = 7

var nodeNames = []string{"a", "b", "c"}

// agent is the agent of a node, and the server there, until SIGTERM. It reads commands from its standard input: "leave
// NODE", "cordon NODE", "return NODE" and "stats", to which it writes its figures.
func agent(name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for _, a := range vips {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, echoPort)))
		if err != nil {
			return err
		}
		go func() {
			b := make([]byte, 64)
			for {
				n, from, err := conn.ReadFromUDPAddrPort(b)
				if err != nil {
					return
				}
				_, _ = conn.WriteToUDPAddrPort(append([]byte(name+" "), b[:n]...), from)
			}
		}()
	}
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		for _, n := range nodeNames {
			tx.Put(&cluster.Node{Name: n, Ready: true})
		}
		s := &cluster.Service{Key: cluster.Key{Namespace: "shop", Name: "web"}, Spec: &cluster.ServiceSpec{Type: cluster.LoadBalancer}}
		for _, a := range vips {
			s.Spec.Ingress = append(s.Spec.Ingress, cluster.IngressIP{Addr: a})
		}
		tx.Put(s)
	})
	a := New(Config{Node: name, Store: store, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			command, node, _ := strings.Cut(lines.Text(), " ")
			switch command {
			case "leave", "cordon", "return":
				store.Update(func(tx *cluster.Tx) {
					tx.Put(&cluster.Node{
						Name: node, Ready: true, Leaving: command == "leave", Cordoned: command == "cordon",
					})
				})
			case "stats":
				_ = json.NewEncoder(os.Stdout).Encode(a.Stats()) // or the test has ended
			}
		}
		stop()
	}()
	return a.Run(ctx)
}

// world is a switch, which is the namespace of the test, with three nodes and a client.
type world struct {
	nodes  map[string]*testNode
	client *namespace.Network
	conns  []*net.UDPConn // of the client, to each of vips
}

// testNode is a node. Its port at the switch has its name.
type testNode struct {
	name    string
	network *namespace.Network
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

func newWorld(t *testing.T) *world {
	t.Helper()
	must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "switch"}}))
	namespacetest.SetUp(t, "switch")
	w := &world{nodes: make(map[string]*testNode)}
	for i, name := range nodeNames {
		n := &testNode{name: name, network: attach(t, name, byte(i+1))}
		namespacetest.Do(t, n.network, func() {
			// The addresses are there, and only the agent answers for them.
			namespacetest.SetSysctl(t, "net/ipv4/conf/all/arp_ignore", "1")
			for _, a := range vips {
				namespacetest.SetUp(t, "lo", netip.PrefixFrom(a, a.BitLen()))
			}
		})
		w.nodes[name] = n
		n.start(t)
		t.Cleanup(func() { n.kill() })
	}
	w.client = attach(t, "client", 9)
	namespacetest.Do(t, w.client, func() {
		for _, a := range vips {
			conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, echoPort)))
			must(t, err)
			t.Cleanup(func() { conn.Close() })
			w.conns = append(w.conns, conn)
		}
	})
	return w
}

// attach makes a namespace at the switch.
func attach(t *testing.T, name string, number byte) *namespace.Network {
	t.Helper()
	n := namespacetest.Attach(t, name, nil,
		netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, number}), 24),
		netip.MustParsePrefix(fmt.Sprintf("2001:db8::%d/64", number)))
	port, err := netlink.LinkByName(name)
	must(t, err)
	bridge, err := netlink.LinkByName("switch")
	must(t, err)
	must(t, netlink.LinkSetMaster(port, bridge))
	return n
}

func (n *testNode) start(t *testing.T) {
	t.Helper()
	n.cmd = exec.Command(os.Args[0])
	n.cmd.Env = append(os.Environ(), agentOf+"="+n.name)
	n.cmd.Stderr = os.Stderr
	n.cmd.SysProcAttr = &syscall.SysProcAttr{}
	in, err := n.cmd.StdinPipe()
	must(t, err)
	out, err := n.cmd.StdoutPipe()
	must(t, err)
	n.in, n.out = in, bufio.NewScanner(out)
	namespacetest.Do(t, n.network, func() { must(t, n.cmd.Start()) })
}

func (n *testNode) signal(t *testing.T, s os.Signal) {
	t.Helper()
	must(t, n.cmd.Process.Signal(s))
}

// kill kills the agent and the server.
func (n *testNode) kill() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

func (n *testNode) command(t *testing.T, line string) {
	t.Helper()
	_, err := io.WriteString(n.in, line+"\n")
	must(t, err)
}

// noConflicts fails the test if an agent took what another one announced for a conflict.
func (w *world) noConflicts(t *testing.T) {
	t.Helper()
	for _, n := range w.nodes {
		if s := n.stats(t); s.Conflicts > 0 {
			t.Errorf("node %s saw %d conflicts, want none", n.name, s.Conflicts)
		}
	}
}

// command has all agents do something.
func (w *world) command(t *testing.T, line string) {
	t.Helper()
	for _, n := range w.nodes {
		n.command(t, line)
	}
}

// stats returns the figures of the agent.
func (n *testNode) stats(t *testing.T) (s Stats) {
	t.Helper()
	n.command(t, "stats")
	if !n.out.Scan() {
		t.Fatalf("node %s says nothing: %v", n.name, n.out.Err())
	}
	must(t, json.Unmarshal(n.out.Bytes(), &s))
	return s
}

// link sets the port of the node at the switch up or down.
func (n *testNode) link(t *testing.T, set func(netlink.Link) error) {
	t.Helper()
	port, err := netlink.LinkByName(n.name)
	must(t, err)
	must(t, set(port))
}

// ranked returns the nodes in the order of the candidates of an address.
func (w *world) ranked(a netip.Addr) (nodes []*testNode) {
	names := slices.SortedFunc(slices.Values(nodeNames), func(x, y string) int {
		if plan.Score(a, plan.IDOf(x)) > plan.Score(a, plan.IDOf(y)) {
			return -1
		}
		return 1
	})
	for _, name := range names {
		nodes = append(nodes, w.nodes[name])
	}
	return nodes
}

// asks is the pause between questions of the client.
const asks = 5 * time.Millisecond

// whoAnswers sends a question to one of vips, and returns the node that answers first, within one pause; empty if none
// does.
func (w *world) whoAnswers(i int) string {
	conn, question := w.conns[i], strconv.FormatInt(time.Now().UnixNano(), 10)
	_, _ = conn.Write([]byte(question)) // there may be no neighbor
	_ = conn.SetReadDeadline(time.Now().Add(asks))
	b := make([]byte, 128)
	for {
		n, err := conn.Read(b)
		if err != nil {
			if !os.IsTimeout(err) { // refused: the pause is still to be kept
				<-time.After(time.Millisecond)
			}
			return ""
		}
		if name, to, _ := strings.Cut(string(b[:n]), " "); to == question {
			return name
		}
	}
}

// until waits until a node answers for one of vips, and returns how long that took.
func (w *world) until(t *testing.T, i int, name string) time.Duration {
	t.Helper()
	begin := time.Now()
	for w.whoAnswers(i) != name {
		if took := time.Since(begin); took > await.Answer {
			t.Fatalf("after %s node %s does not answer for %s", took, name, vips[i])
		}
	}
	return time.Since(begin)
}

// untilSettled waits until the first candidates own all addresses, and nobody else does.
func (w *world) untilSettled(t *testing.T) {
	t.Helper()
	want := make(map[string]int)
	for i, a := range vips {
		owner := w.ranked(a)[0].name
		want[owner]++
		w.until(t, i, owner)
	}
	await.NoError(t, func() error {
		for _, name := range nodeNames {
			if got := w.nodes[name].stats(t).Owned; got != want[name] {
				return fmt.Errorf("node %s owns %d addresses, want %d", name, got, want[name])
			}
		}
		return nil
	})
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
