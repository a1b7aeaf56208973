package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){"node.parts": effectOfParts})
}

// dnsVIP is the cluster DNS IP of the tests here: an address of the agent, and a Service.
const dnsVIP = "10.96.0.10"

// The name that agent and servers answer with different addresses.
const (
	which     = "which.example"
	byAgent   = "192.0.2.77"
	byServers = "192.0.2.88"
)

// pair is a node, a Pod on it, and a Pod on another node that is a DNS server of the cluster,
// each in its own network namespace.
type pair struct {
	t                 *testing.T
	node, pod, server *process // that hold the namespaces, except for the server
}

// startIdle starts a process that does nothing in a network namespace of its own.
func startIdle(t *testing.T) *process {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	return &process{t: t, cmd: cmd}
}

// newPair returns a pair whose server answers.
func newPair(t *testing.T) *pair {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	w := &pair{t: t, node: startIdle(t), pod: startIdle(t)}
	server := startIdle(t)
	inNetwork(t, w.node, "ip", "link", "set", "lo", "up")
	inNetwork(t, w.node, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	inNetwork(t, w.node, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "uplink")
	inNetwork(t, w.node, "ip", "link", "set", "uplink", "up")
	inNetwork(t, w.node, "ip", "address", "add", "192.0.2.1/24", "dev", "eth0")
	inNetwork(t, w.node, "ip", "link", "set", "eth0", "up")
	inNetwork(t, w.node, "ip", "route", "add", "default", "via", "192.0.2.254")
	for i, peer := range []*process{w.pod, server} {
		network, here := fmt.Sprintf("10.244.%d", 7+i), fmt.Sprintf("pod%d", i)
		inNetwork(t, w.node, "ip", "link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(peer.cmd.Process.Pid))
		inNetwork(t, w.node, "ip", "address", "add", network+".1/24", "dev", here)
		inNetwork(t, w.node, "ip", "link", "set", here, "up")
		inNetwork(t, peer, "ip", "address", "add", network+".2/24", "dev", "eth0")
		inNetwork(t, peer, "ip", "link", "set", "lo", "up")
		inNetwork(t, peer, "ip", "link", "set", "eth0", "up")
		inNetwork(t, peer, "ip", "route", "add", "default", "via", network+".1")
	}
	file := filepath.Join(t.TempDir(), "server.yaml")
	write(t, file, "manifests: testdata/parts\nadmin: {listen: ''}\n"+
		"dns: {listen: ['10.244.8.2:53'], hosts: {lines: ['"+byServers+" "+which+"']}}\n")
	inNetworkOf(t, server, func() { w.server = follow(t, exec.Command("portolan", "serve", "--config", file)) })
	w.server.waitLog(`serving\W+listen=`)
	return w
}

// agent is a running agent of the node, and the socket of its probes.
type agent struct {
	*process
	probes string
}

// start starts an agent with settings of the section node beside those of its DNS.
func (w *pair) start(settings string, flags ...string) agent {
	w.t.Helper()
	dir := w.t.TempDir()
	file, a := filepath.Join(dir, "node.yaml"), agent{probes: "unix:" + filepath.Join(dir, "probes")}
	write(w.t, file, "manifests: testdata/parts\nadmin: {listen: '', probes: ['"+a.probes+"']}\n"+
		"dns: {hosts: {lines: ['"+byAgent+" "+which+"']}}\n"+
		"node: {mode: cache, servers: [10.244.8.2], addresses: ["+dnsVIP+"]"+settings+"}\n"+
		"proxy: {nodeName: node-1, detectLocal: {mode: NodeCIDR}}\n")
	inNetworkOf(w.t, w.node, func() {
		a.process = follow(w.t, exec.Command("portolan", append([]string{"node", "--config", file}, flags...)...))
	})
	a.waitLog("msg=serving")
	return a
}

// probe returns what the agent's readiness says.
func (a agent) probe() (text string, err error) {
	out, err := exec.Command("portolan", "probe", "ready", a.probes).CombinedOutput()
	return string(out), err
}

// awaitReady waits until the agent is ready and its readiness has the words.
func (a agent) awaitReady(words string) {
	a.t.Helper()
	a.poll(patience, func() error {
		if text, err := a.probe(); err != nil || !strings.Contains(text, words) {
			return fmt.Errorf("portolan probe ready: %s, %w, want %q", text, err, words)
		}
		return nil
	})
}

// kill kills the agent, which cannot clean up.
func (a agent) kill() {
	a.t.Helper()
	if err := a.cmd.Process.Kill(); err != nil {
		a.t.Fatal(err)
	}
	<-a.ended
}

// client is a client in a network namespace with one UDP socket to the cluster DNS IP.
type client struct {
	in   *process
	flow *conn
}

func (w *pair) clients() map[string]*client {
	w.t.Helper()
	all := make(map[string]*client)
	for name, in := range map[string]*process{"the Pod": w.pod, "the node": w.node} {
		c := &client{in: in}
		inNetworkOf(w.t, in, func() { c.flow = c.dial("udp") })
		all[name] = c
	}
	return all
}

func (c *client) dial(network string) *conn {
	c.in.t.Helper()
	made, err := net.DialTimeout(network, net.JoinHostPort(dnsVIP, "53"), patience)
	if err != nil {
		c.in.t.Error(err) // of a goroutine of its own
		return nil
	}
	c.in.t.Cleanup(func() { made.Close() })
	return &conn{c.in.t, made}
}

// wantAnswers checks who answers all clients: over the UDP flow that they have, over a new one,
// and over TCP. A query may get lost.
func wantAnswers(t *testing.T, clients map[string]*client, by string) {
	t.Helper()
	for name, c := range clients {
		inNetworkOf(t, c.in, func() {
			for flow, network := range map[string]string{"the flow": "", "a new flow": "udp", "a connection": "tcp"} {
				over := c.flow
				if network != "" {
					over = c.dial(network)
				}
				if got := whoAnswers(over); got != by {
					t.Errorf("%s, %s: answered by %s, want %s", name, flow, got, by)
				}
			}
		})
	}
}

// whoAnswers returns the address of the name at the server that a client reaches.
func whoAnswers(c *conn) string {
	if c == nil {
		return "nobody"
	}
	packet, err := dnswire.NewQuery(question(which))
	if err != nil {
		return err.Error()
	}
	problem := "nobody"
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err := c.send(packet); err != nil {
			problem = err.Error()
			time.Sleep(10 * time.Millisecond) // an ICMP error of the query before
			continue
		}
		wire, err := c.receiveWithin(2 * time.Second)
		if err != nil {
			problem = err.Error()
			continue
		}
		m, err := dnswire.ParseMessage(wire)
		if err != nil {
			return err.Error()
		}
		for _, by := range []string{byAgent, byServers} {
			if wantData(m, by) == nil {
				return by
			}
		}
		return m.String()
	}
	return problem
}

// wantProxy checks whether the proxy has the cluster DNS IP in the kernel.
func (w *pair) wantProxy(want bool) {
	w.t.Helper()
	rules := inNetwork(w.t, w.node, "nft", "list", "ruleset")
	if got := strings.Contains(rules, dnsVIP+" . udp . 53 : goto"); got != want {
		w.t.Errorf("the proxy has %s: %t, want %t\n%s", dnsVIP, got, want, rules)
	}
}

// effectOfParts checks each combination of parts. Where the agent answers at a cluster IP that
// the proxy programs as well, queries reach the agent; when it is killed, the cluster's servers.
func effectOfParts(t *testing.T) {
	t.Run("by default the agent answers, and there is no proxy", func(t *testing.T) {
		w := newPair(t)
		w.start("")
		w.wantProxy(false)
		wantAnswers(t, w.clients(), byAgent)
	})
	t.Run("the proxy alone leads to the servers", func(t *testing.T) {
		w := newPair(t)
		a := w.start(", parts: [dns]", "--parts", "proxy")
		a.awaitReady("")
		w.wantProxy(true)
		wantAnswers(t, w.clients(), byServers)
	})
	t.Run("both: the agent answers, and the servers do when it is killed", func(t *testing.T) {
		w := newPair(t)
		clients := w.clients()
		for range 2 {
			a := w.start(", parts: [dns, proxy]")
			a.awaitReady("")
			w.wantProxy(true)
			wantAnswers(t, clients, byAgent)
			a.kill()
			w.wantProxy(true)
			wantAnswers(t, clients, byServers)
		}
	})
}

// TestNodeWithBothPartsIsReplaced checks that an agent with the service proxy is replaced by one
// that starts beside it, as in an upgrade: the new one is ready while the old one programs the
// kernel, and programs it when the old one has ended.
func TestNodeWithBothPartsIsReplaced(t *testing.T) {
	w := newPair(t)
	clients := w.clients()
	first := w.start(", parts: [dns, proxy]")
	first.awaitReady("")
	if !strings.Contains(inNetwork(t, w.node, "nft", "list", "tables", "ip"), "portolan-proxy") {
		t.Fatal("no table of the proxy")
	}
	second := w.start(", parts: [dns, proxy]")
	if strings.Contains(inNetwork(t, w.node, "nft", "list", "table", "ip", "portolan-proxy"), "owner") {
		second.awaitReady("takes over when it ends")
	} else { // Linux before 6.9: both program the tables
		second.awaitReady("")
	}
	wantAnswers(t, clients, byAgent)
	first.stop(syscall.SIGTERM)
	wantAnswers(t, clients, byAgent)
	second.waitLog("the kernel has the Services of the cluster")
	second.poll(patience, func() error {
		if text, err := second.probe(); err != nil || strings.Contains(text, "takes over") {
			return errors.Join(errors.New(text), err)
		}
		return nil
	})
	w.wantProxy(true)
}
