package hostnet_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// patience is the time after which a test fails.
const patience = 20 * time.Second

// These are the addresses of the test network. A Pod sends queries from a separate
// network namespace, through a veth, as it does on a node.
var (
	local4, local6     = netip.MustParseAddr("169.254.20.10"), netip.MustParseAddr("fd00::a")
	cluster4, cluster6 = netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:10:96::a")
	node4, node6       = netip.MustParsePrefix("10.244.1.1/24"), netip.MustParsePrefix("fd00:10:244:1::1/64")
	otherNode          = []netip.Prefix{netip.MustParsePrefix("10.244.2.1/24"), netip.MustParsePrefix("fd00:10:244:2::1/64")}
	others             = []netip.Prefix{netip.MustParsePrefix("10.244.2.53/24"), netip.MustParsePrefix("fd00:10:244:2::53/64")}
	pod4, pod6         = netip.MustParsePrefix("10.244.1.7/24"), netip.MustParsePrefix("fd00:10:244:1::7/64")
)

var (
	locals   = []netip.Addr{local4, local6}
	clusters = []netip.Addr{cluster4, cluster6}
)

// node is the node's network namespace, in which the test runs. It has the namespaces
// of a Pod and of another node, to which its default route leads.
type node struct{ pod, other *namespace.Network }

// onNode runs this test in the namespaces of a node. Outside of them it returns nil.
func onNode(t *testing.T) *node {
	t.Helper()
	t.Parallel()
	tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil && os.Getenv("CI") == "" {
		t.Skipf("TUN devices need root and a kernel with them: %v", err)
	}
	tun.Close()
	if !namespacetest.OnNode(t) {
		return nil
	}
	n := &node{
		pod:   namespacetest.Attach(t, "veth-pod", []netip.Prefix{node4, node6}, pod4, pod6),
		other: namespacetest.Attach(t, "veth-other", otherNode, others...),
	}
	for _, o := range others {
		must(t, netlink.RouteAdd(&netlink.Route{Gw: o.Addr().AsSlice()}))
	}
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// agentProcess is the process of an agent.
type agentProcess struct {
	cmd    *exec.Cmd
	device string
	lines  chan string // of its log, after the first line
	ended  chan struct{}
}

// startAgent starts an agent and waits until it serves.
func startAgent(t *testing.T, s settings) *agentProcess {
	t.Helper()
	text, err := json.Marshal(s)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asAgent+"="+string(text))
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = os.Stderr
	a := &agentProcess{cmd: cmd, lines: make(chan string, 1000), ended: make(chan struct{})}
	must(t, cmd.Start())
	go func() {
		defer close(a.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			a.lines <- lines.Text()
		}
		close(a.lines)
		_ = cmd.Wait()
	}()
	t.Cleanup(a.kill)
	serving := a.await(t, "serving on ")
	a.device = strings.TrimPrefix(serving, "serving on ")
	return a
}

// await returns the next line of the log that contains word.
func (a *agentProcess) await(t *testing.T, word string) string {
	t.Helper()
	timeout := time.After(patience)
	var seen []string
	for {
		select {
		case line, ok := <-a.lines:
			if !ok {
				t.Fatalf("the agent ended; its log, up to here: %q", seen)
			}
			if seen = append(seen, line); strings.Contains(line, word) {
				return line
			}
		case <-timeout:
			t.Fatalf("%q is not in the log: %q", word, seen)
		}
	}
}

// kill kills the process with SIGKILL.
func (a *agentProcess) kill() {
	_ = a.cmd.Process.Kill()
	<-a.ended
}

// stop stops the process in the orderly way.
func (a *agentProcess) stop(t *testing.T) {
	t.Helper()
	must(t, a.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-a.ended:
	case <-time.After(patience):
		t.Fatal("the agent does not end")
	}
	if state := a.cmd.ProcessState; !state.Success() {
		t.Fatalf("the agent: %v", state)
	}
}

// ask sends one query and returns the name in the answer, or the error if there is none
// in time.
func ask(network string, addr netip.Addr, within time.Duration) string {
	conn, err := net.DialTimeout(network, netip.AddrPortFrom(addr, port).String(), within)
	if err != nil {
		return plain(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return plain(err)
	}
	if _, err := conn.Write([]byte("who?")); err != nil {
		return plain(err)
	}
	var buf [512]byte
	n, err := conn.Read(buf[:])
	if err != nil {
		return plain(err)
	}
	name, _, _ := strings.Cut(string(buf[:n]), " ")
	return name
}

func plain(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}

// asks checks the answers of every address over UDP and TCP, from the node and from the
// Pod.
func (n *node) asks(t *testing.T, want string, addrs ...netip.Addr) {
	t.Helper()
	everywhere := func(from string) {
		for _, addr := range addrs {
			for _, network := range []string{"udp", "tcp"} {
				got := ask(network, addr, time.Second)
				if got != want { // the first packet may wait for neighbor discovery
					got = ask(network, addr, patience)
				}
				if got != want {
					t.Errorf("%s over %s, asked from the %s: %q, want %q", addr, network, from, got, want)
				}
			}
		}
	}
	everywhere("node")
	namespacetest.Do(t, n.pod, func() { everywhere("Pod") })
}

// until waits for a condition and returns how long that took.
func until(t *testing.T, what string, is func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !is() {
		if time.Since(begin) > patience {
			t.Fatalf("not in %v: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(begin)
}

// left returns what agents have left: devices, addresses and tables.
func left(t *testing.T) []string {
	t.Helper()
	var all []string
	links, err := netlink.LinkList()
	must(t, err)
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, "portolan") {
			all = append(all, "device "+l.Attrs().Name)
		}
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	must(t, err)
	for _, a := range addrs {
		if addr, _ := netip.AddrFromSlice(a.IP); slices.Contains(slices.Concat(locals, clusters), addr.Unmap()) {
			all = append(all, "address "+addr.Unmap().String())
		}
	}
	return append(all, tables(t)...)
}

// tables returns the tables of agents.
func tables(t *testing.T) (all []string) {
	t.Helper()
	tables, err := rules(t).ListTables()
	must(t, err)
	for _, table := range tables {
		if strings.HasPrefix(table.Name, "portolan") {
			all = append(all, "table "+table.Name)
		}
	}
	return all
}

func rules(t *testing.T) *nftables.Conn {
	t.Helper()
	conn, err := nftables.New()
	must(t, err)
	return conn
}

// tracked returns the connection tracking entries with the address.
func tracked(t *testing.T, addr netip.Addr) (all []string) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/nf_conntrack")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		for field := range strings.FieldsSeq(line) {
			if _, value, ok := strings.Cut(field, "="); ok {
				if a, err := netip.ParseAddr(value); err == nil && a == addr {
					all = append(all, strings.TrimSpace(line))
					break
				}
			}
		}
	}
	return all
}

// holder returns the kind of persistent device that this kernel supports.
func holder(t *testing.T) string {
	t.Helper()
	for _, kind := range []string{"dummy", "bridge"} {
		try := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: "try"}, LinkType: kind}
		if err := netlink.LinkAdd(try); err == nil {
			must(t, netlink.LinkDel(try))
			t.Logf("the lasting device is of kind %s", kind)
			return kind
		}
	}
	t.Fatal("the kernel has neither dummy devices nor bridges")
	return ""
}
