package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"portolan.dev/portolan/test/namespace/namespacetest"
	"portolan.dev/portolan/test/wireguard"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"network.encapsulation": func(t *testing.T) {
			wantOnNode(t, "encapsulation: always", "10.244.2.0/24 via 192.0.2.2 dev portolan-vxlan", "ip", "route")
		},
		"network.mtu": func(t *testing.T) { wantOnNode(t, "mtu: 1300", "mtu 1300", "ip", "link") },
		"network.vxlan.vni": func(t *testing.T) {
			wantOnNode(t, "vxlan: {vni: 4711}", "vxlan id 4711", "ip", "-d", "link")
		},
		"network.vxlan.port": func(t *testing.T) {
			wantOnNode(t, "vxlan: {port: 8472}", "dstport 8472", "ip", "-d", "link")
		},
		"network.vxlan.nodeAddresses": func(t *testing.T) {
			const always = "encapsulation: always"
			for setting, want := range map[string]bool{always: true, always + ", vxlan: {nodeAddresses: false}": false} {
				n := startNetwork(t, setting)
				n.poll("10.244.2.0/24 via 192.0.2.2 dev portolan-vxlan", "ip", "route")
				if out := inNetwork(t, n.process, "ip", "rule"); strings.Contains(out, "from 10.244.1.0/28 lookup 80") != want {
					t.Errorf("network: {%s}: nodes are reached through the tunnel: %t, want the other:\n%s", setting, !want, out)
				}
			}
		},
		"network.encryption": func(t *testing.T) {
			wantOnNode(t, "encryption: wireguard", "unreachable 10.244.2.0/24", "ip", "route")
		},
		"network.wireguard.port": func(t *testing.T) {
			wantOnNode(t, "encryption: wireguard, wireguard: {port: 4711}", ":4711 ", "ss", "-nlu")
		},
		"network.wireguard.nodesWithoutKey": func(t *testing.T) {
			const encrypted, direct = "encryption: wireguard", "10.244.2.0/24 via 192.0.2.2 dev uplink"
			n := startNetwork(t, encrypted+", wireguard: {nodesWithoutKey: unencrypted}")
			n.poll(direct, "ip", "route")
			other := startNetwork(t, encrypted)
			if out := other.poll("unreachable 10.244.2.0/24", "ip", "route"); strings.Contains(out, direct) {
				t.Errorf("a node without a key is reached:\n%s", out)
			}
		},
		"network.masquerade": func(t *testing.T) {
			const rules, masquerade = "table inet portolan-network", "ip saddr @pods4"
			for setting, want := range map[string]bool{"masquerade: false": false, "mtu: 0": true} {
				n := startNetwork(t, setting)
				if out := n.poll(rules, "nft", "list", "ruleset"); strings.Contains(out, masquerade) != want {
					t.Errorf("network: {%s}: masquerades: %t, want the other:\n%s", setting, !want, out)
				}
			}
		},
		"network.nonMasqueradeCIDRs": func(t *testing.T) {
			wantOnNode(t, "nonMasqueradeCIDRs: [10.0.0.0/8]", "10.0.0.0/8", "nft", "list", "ruleset")
		},
		"network.table":       func(t *testing.T) { wantOnNode(t, "table: pods", "table inet pods", "nft", "list", "ruleset") },
		"network.cni.socket":  func(t *testing.T) { effectOfNetworkCNI(t, "socket") },
		"network.cni.install": func(t *testing.T) { effectOfNetworkCNI(t, "install") },
		"network.cni.binDir":  func(t *testing.T) { effectOfNetworkCNI(t, "binDir") },
		"network.cni.confDir": func(t *testing.T) { effectOfNetworkCNI(t, "confDir") },
	})
}

// networkNode is a node with an agent that makes the network of its Pods, in a network namespace of its own.
type networkNode struct {
	*process
	dir, config string
}

// withWireGuard is a portolan with a device of WireGuard in user space.
const withWireGuard = "portolan-with-wireguard"

func init() {
	commands[withWireGuard] = func() {
		if err := wireguard.Open("portolan-wg", 1440); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		main()
	}
}

func (n *networkNode) path(name string) string { return filepath.Join(n.dir, name) }

// startNetwork starts the node n1 of testdata/network with settings of the section network, and waits until Pods can
// start there. The directories of the CNI plugin are below its own.
func startNetwork(t *testing.T, section string) *networkNode {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	dir, err := os.MkdirTemp("", "node") //nolint:usetesting // the name of a test would make sockets' too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &networkNode{dir: dir, config: filepath.Join(dir, "node.yaml")}
	if !strings.Contains(section, "cni:") {
		section += fmt.Sprintf(", cni: {socket: %q, binDir: %q, confDir: %q}", n.path("cni.sock"), n.path("bin"), n.path("net.d"))
	}
	write(t, n.config, fmt.Sprintf(
		"manifests: testdata/network\nadmin: {listen: ''}\nproxy: {nodeName: n1}\nnetwork: {%s}\n", section,
	))
	program, own := "portolan", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if strings.Contains(section, "wireguard") {
		program, own.Unshareflags = withWireGuard, syscall.CLONE_NEWNS
	}
	cmd := exec.Command(program, "node", "--parts", "network", "--config", n.config)
	cmd.SysProcAttr = own
	n.process = follow(t, cmd)
	n.waitLog("the kernel has the routes of the cluster")
	for _, command := range []string{
		"link set lo up", "link add uplink type veth peer name switch", "address add 192.0.2.1/24 dev uplink",
		"link set uplink up", "link set switch up", "route add default via 192.0.2.254",
	} {
		inNetwork(t, n.process, "ip", strings.Fields(command)...)
	}
	n.waitLog("the node can start Pods")
	return n
}

// poll waits until the output of a command on the node has a text, and returns it.
func (n *networkNode) poll(want, name string, args ...string) (out string) {
	n.t.Helper()
	n.process.poll(patience, func() error {
		if out = inNetwork(n.t, n.process, name, args...); !strings.Contains(out, want) {
			return fmt.Errorf("%s %q: no %q in\n%s", name, args, want, out)
		}
		return nil
	})
	return out
}

// call calls the plugin as a container runtime does, for a container whose network namespace has a path.
func (n *networkNode) call(command, container, netns string) (result struct {
	Code uint
	Msg  string
	IPs  []struct{ Address string }
}) {
	n.t.Helper()
	var out []byte
	inNetworkOf(n.t, n.process, func() {
		cmd := exec.Command("portolan", "cni")
		cmd.Stdin = strings.NewReader(fmt.Sprintf(
			`{"cniVersion": "1.1.0", "name": "portolan", "type": "portolan", "socket": %q}`, n.path("cni.sock"),
		))
		cmd.Env = append(
			os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+container, "CNI_NETNS="+netns, "CNI_IFNAME=eth0",
			"CNI_PATH="+n.path("bin"), "CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME="+container,
		)
		out, _ = cmd.Output() // the error is in the output
	})
	if len(out) > 0 {
		if err := json.Unmarshal(out, &result); err != nil {
			n.t.Fatalf("%s: %v:\n%s", command, err, out)
		}
	}
	return result
}

// wantOnNode checks that with a setting of the section network the output of a command on the node has a text that it has
// not without.
func wantOnNode(t *testing.T, setting, want, name string, args ...string) {
	t.Helper()
	with := func(section string) *networkNode {
		n := startNetwork(t, section)
		n.call("ADD", "web", namespacetest.New(t).Path())
		n.poll("", name, args...)
		return n
	}
	with(setting).poll(want, name, args...)
	if out := inNetwork(t, with("masquerade: true").process, name, args...); strings.Contains(out, want) {
		t.Errorf("without %s the output of %s %q has %q:\n%s", setting, name, args, want, out)
	}
}

// effectOfNetworkCNI checks that the agent installs the plugin where its settings say, and only if it is to.
func effectOfNetworkCNI(t *testing.T, key string) {
	t.Helper()
	n := startNetwork(t, "mtu: 0")
	file := map[string]string{
		"socket": "cni.sock", "install": "net.d/05-portolan.conflist", "binDir": "bin/portolan", "confDir": "net.d/05-portolan.conflist",
	}[key]
	n.process.poll(patience, func() error {
		_, err := os.Stat(n.path(file))
		return err
	})
	if key != "install" {
		return
	}
	other := filepath.Join(t.TempDir(), "net.d")
	without := startNetwork(t, fmt.Sprintf(
		"cni: {socket: %q, install: false, binDir: %q, confDir: %q}", n.path("other/cni.sock"), n.path("bin"), other,
	))
	without.stop(syscall.SIGTERM)
	if _, err := os.Stat(other); err == nil {
		t.Error("the configuration is installed without network.cni.install")
	}
}

// TestNetworkNode: a Pod gets its link, has it after the agent was killed, and `portolan cleanup` removes everything.
func TestNetworkNode(t *testing.T) {
	t.Parallel()
	n := startNetwork(t, "mtu: 0")
	pod := namespacetest.New(t)
	added := n.call("ADD", "web", pod.Path())
	if len(added.IPs) != 2 || added.IPs[0].Address != "10.244.1.1/32" {
		t.Fatalf("ADD: %+v", added)
	}
	if got := n.call("STATUS", "", ""); got.Code != 0 {
		t.Errorf("STATUS: %+v", got)
	}
	n.poll("10.244.1.1 dev ptl", "ip", "route")
	namespacetest.Do(t, pod, func() {
		if out, err := exec.Command("ip", "route").CombinedOutput(); err != nil || !strings.Contains(string(out), "default via 169.254.1.1 dev eth0") {
			t.Errorf("routes of the Pod: %v\n%s", err, out)
		}
	})
	if got := n.call("ADD", "db", "/nonexistent"); got.Code != 3 || !strings.Contains(got.Msg, "there is no network namespace /nonexistent") {
		t.Errorf("ADD without a namespace: %+v", got)
	}
	n.process.poll(patience, func() error {
		_, err := os.Stat(n.path("net.d/05-portolan.conflist"))
		return err
	})
	// What follows is in the namespace of the node, although its agent is gone.
	inNetworkOf(t, n.process, func() {
		_ = n.cmd.Process.Kill()
		<-n.ended
		run := func(name string, args ...string) string {
			out, err := exec.Command(name, args...).CombinedOutput()
			if err != nil {
				t.Errorf("%s %q: %v\n%s", name, args, err, out)
			}
			return string(out)
		}
		if out := run("ip", "route"); !strings.Contains(out, "10.244.1.1 dev ptl") || !strings.Contains(out, "10.244.2.0/24 via 192.0.2.2 dev uplink") {
			t.Errorf("routes after the agent was killed:\n%s", out)
		}
		removed := run("portolan", "cleanup", "--config", n.config)
		for _, want := range []string{
			"05-portolan.conflist", "nftables table inet portolan-network", "route 10.244.2.0/24", "device portolan-vxlan", "device ptl",
		} {
			if !strings.Contains(removed, want) {
				t.Errorf("portolan cleanup prints\n%s\nwithout %s", removed, want)
			}
		}
		if out := run("ip", "route") + run("ip", "link") + run("nft", "list", "ruleset"); strings.Contains(out, "10.244") || strings.Contains(out, "portolan") {
			t.Errorf("left after portolan cleanup:\n%s", out)
		}
		if again := run("portolan", "cleanup", "--config", n.config); again != "" {
			t.Errorf("portolan cleanup again prints %s", again)
		}
	})
	if _, err := os.Stat(n.path("net.d/05-portolan.conflist")); err == nil {
		t.Error("the configuration is still there")
	}
}
