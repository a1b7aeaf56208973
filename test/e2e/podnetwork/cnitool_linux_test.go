package podnetwork

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"portolan.dev/portolan/test/namespace/namespacetest"
)

// tool runs cnitool with the network in a directory, for a namespace.
func (n *node) tool(confDir, command, netns string) (stdout string, err error) {
	n.Helper()
	file, err := cnitool(n.Context())
	must(n, err)
	cmd := exec.CommandContext(n.Context(), file, command, "portolan", netns)
	cmd.Env = append(
		os.Environ(), "CNI_PATH="+n.path("bin"), "NETCONFPATH="+confDir, "CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web",
		`CAP_ARGS={"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}`,
	)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("cnitool %s: %w: %s%s", command, err, out, &stderr)
	}
	return string(out), err
}

// TestCNITool: cnitool adds, checks and deletes a Pod in each version, and the result says what the Pod has.
func TestCNITool(t *testing.T) {
	n := newNode(t, nodes)
	if n == nil {
		return
	}
	n.start()
	n.usable()
	before := n.state()
	for _, version := range []string{"0.4.0", "1.0.0", "1.1.0"} {
		dir := t.TempDir()
		list, err := n.network(version)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "10.conflist"), list.Bytes, 0o600))
		ns := namespacetest.New(t)
		run := func(command string) string {
			t.Helper()
			out, err := n.tool(dir, command, ns.Path())
			if err != nil {
				t.Fatalf("%s: %v", version, err)
			}
			return out
		}
		run("status")
		text := run("add")
		result, err := create.CreateFromBytes([]byte(text))
		must(t, err)
		if result.Version() != version {
			t.Errorf("the result has version %s, want %s", result.Version(), version)
		}
		current, err := types100.NewResultFromResult(result)
		must(t, err)
		n.wantResult(current, version, ns.Path(), func(f func()) { namespacetest.Do(t, ns, f) })
		run("check")
		if again := run("add"); again != text {
			t.Errorf("%s: ADD again has the result\n%s\nwant\n%s", version, again, text)
		}
		run("del")
		run("del")
		n.wantState(before)
		if _, err := n.tool(dir, "check", ns.Path()); err == nil {
			t.Errorf("%s: CHECK after DEL: no error", version)
		}
		run("add")
		run("gc") // no attachment is valid
		n.wantState(before)
		run("status")
	}
}

// wantResult checks that a result says what the Pod and the node have.
func (n *node) wantResult(r *types100.Result, version, netns string, inPod func(func())) {
	n.Helper()
	if len(r.Interfaces) != 2 || r.Interfaces[0].Sandbox != "" || r.Interfaces[1].Sandbox != netns || r.Interfaces[1].Name != "eth0" {
		n.Fatalf("%s: the interfaces are %v, want the host's end and eth0", version, r.Interfaces)
	}
	wantDevice := func(i *types100.Interface) {
		device, err := net.InterfaceByName(i.Name)
		if err != nil || device.HardwareAddr.String() != i.Mac || version >= "1.1.0" && device.MTU != i.Mtu {
			n.Errorf("%s: interface %v in the result is %v, %v", version, i, device, err)
		}
	}
	wantDevice(r.Interfaces[0])
	inPod(func() {
		wantDevice(r.Interfaces[1])
		device, err := net.InterfaceByName("eth0")
		must(n, err)
		addrs, err := device.Addrs()
		must(n, err)
		for _, ip := range r.IPs {
			if !slices.ContainsFunc(addrs, func(a net.Addr) bool { return a.String() == ip.Address.String() }) {
				n.Errorf("%s: the Pod has %v, without %s of the result", version, addrs, &ip.Address)
			}
			if ip.Interface == nil || *ip.Interface != 1 {
				n.Errorf("%s: %s is not of the Pod's interface", version, ip)
			}
		}
		for _, family := range []string{"-4", "-6"} {
			out, err := exec.Command("ip", family, "route").CombinedOutput()
			if err != nil || !strings.Contains(string(out), "default via ") {
				n.Errorf("%s: routes of the Pod: %v\n%s", version, err, out)
			}
		}
	})
	if len(r.IPs) != 2 || len(r.Routes) != 2 {
		n.Errorf("%s: %d addresses and %d routes, want one of each family", version, len(r.IPs), len(r.Routes))
	}
}

// small has room for two Pods.
const small = `
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDR: 10.244.0.0/30, podCIDRs: [10.244.0.0/30]}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
`

// TestErrors: users of the CNI library see each code of the specification that the plugin has.
func TestErrors(t *testing.T) {
	n := newNode(t, small)
	if n == nil {
		return
	}
	agent := n.start()
	list := n.usable()
	add := func(p pod) error {
		_, err := n.cni.AddNetworkList(t.Context(), list, p.conf())
		return err
	}
	first := n.newPod(1)
	must(t, add(first))
	must(t, add(n.newPod(2)))
	wantCode(t, "ADD without room", add(n.newPod(3)), types.ErrTryAgainLater, "no address is free in 10.244.0.0/30")
	n.wantCodesOfCalls(first)
	wantCode(t, "ADD without a namespace", n.call("ADD", n.path("none"), n.conf("1.1.0", "")), types.ErrUnknownContainer, "there is no network namespace")
	must(t, add(first)) // which ended with the failed ADD for the same container
	must(t, exec.Command("sh", "-c", "for d in $(ip -o link | grep -o 'ptl[0-9a-f]*' | sort -u); do ip link del $d; done").Run())
	wantCode(t, "CHECK without a link", n.cni.CheckNetworkList(t.Context(), list, first.conf()), 100, "Pod shop/web-1: ")
	agent.Stop(0)
	wantCode(t, "STATUS without an agent", n.cni.GetStatusNetworkList(t.Context(), list), 50, "the agent does not answer")
	wantCode(t, "ADD without an agent", add(n.newPod(5)), types.ErrTryAgainLater, "the agent does not answer")
	wantCode(t, "CHECK without an agent", n.cni.CheckNetworkList(t.Context(), list, first.conf()), types.ErrTryAgainLater, "the agent does not answer")
	if err := n.cni.GCNetworkList(t.Context(), list, &libcni.GCArgs{}); err == nil || !strings.Contains(err.Error(), "the agent does not answer") {
		t.Errorf("GC without an agent: %v", err)
	}
	must(t, n.del(list, first)) // a Pod can end without one
}

// TestCheck: CHECK says what somebody removed of a Pod's limits, although the runtime passes them to ADD only.
func TestCheck(t *testing.T) {
	n := newNode(t, nodes)
	if n == nil {
		return
	}
	n.start()
	list := n.usable()
	p := n.newPod(1)
	limited := p.conf()
	limited.CapabilityArgs["bandwidth"] = map[string]any{"ingressRate": 1000000, "egressRate": 2000000, "egressBurst": 3000000}
	for command, want := range map[string]string{
		"true": "",
		"tc qdisc del dev $(ip -o link | grep -o 'ptl[0-9a-f]*') root":                                     "is not limited to 1000000 bits per second",
		"tc qdisc change dev $(ip -o link | grep -o 'pti[0-9a-f]*') root tbf rate 2mbit burst 1k limit 1m": "not to 2000000 bits per second with a burst of 375000 octets",
		"ip link del $(ip -o link | grep -o 'pti[0-9a-f]*')":                                               "which limits what the Pod sends",
	} {
		_, err := n.cni.AddNetworkList(t.Context(), list, limited)
		must(t, err)
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		err = n.cni.CheckNetworkList(t.Context(), list, p.conf())
		if want == "" && err != nil {
			t.Errorf("CHECK: %v", err)
		} else if want != "" {
			wantCode(t, "CHECK after "+command, err, 100, want)
		}
		must(t, n.cni.DelNetworkList(t.Context(), list, limited))
	}
}

// wantCodesOfCalls checks the codes of what the library itself would not let pass.
func (n *node) wantCodesOfCalls(p pod) {
	n.Helper()
	netns := p.ns.Path()
	for what, test := range map[string]struct {
		command, conf string
		code          uint
		text          string
	}{
		"an old version":  {"ADD", n.conf("0.2.0", ""), types.ErrIncompatibleCNIVersion, "cniVersion"},
		"a GC of 1.0.0":   {"GC", n.conf("1.0.0", ""), types.ErrIncompatibleCNIVersion, "GC needs cniVersion 1.1.0"},
		"no command":      {"NONE", n.conf("1.1.0", ""), types.ErrInvalidEnvironmentVariables, "CNI_COMMAND"},
		"no JSON":         {"ADD", "{", types.ErrDecodingFailure, "configuration"},
		"a relative path": {"ADD", strings.Replace(n.conf("1.1.0", ""), n.path("cni.sock"), "cni.sock", 1), types.ErrInvalidNetworkConfig, "not an absolute path"},
		"a protocol": {
			"ADD", n.conf("1.1.0", `"runtimeConfig": {"portMappings": [{"hostPort": 1, "containerPort": 1, "protocol": "icmp"}]}`),
			types.ErrInvalidNetworkConfig, "is not tcp, udp or sctp",
		},
		"a plugin before": {
			"ADD", n.conf("1.1.0", `"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.1/32"}]}`),
			types.ErrInvalidNetworkConfig, "its plugin is the first of a list",
		},
		"a CHECK without a result": {"CHECK", n.conf("1.1.0", ""), types.ErrInvalidNetworkConfig, "no prevResult"},
		"a CHECK with other addresses": {
			"CHECK", n.conf("1.1.0", `"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.1/32"}]}`), 100, "the addresses are",
		},
	} {
		wantCode(n, what, n.call(test.command, netns, test.conf), test.code, test.text)
	}
}

// conf is a network configuration with one more key.
func (n *node) conf(version, more string) string {
	if more != "" {
		more = ", " + more
	}
	return fmt.Sprintf(`{"cniVersion": %q, "name": "portolan", "type": "portolan", "socket": %q%s}`, version, n.path("cni.sock"), more)
}

// call calls the plugin as the library does, without the library's own checks.
func (n *node) call(command, netns, conf string) error {
	n.Helper()
	_, err := invoke.ExecPluginWithResult(n.Context(), n.path("bin/portolan"), []byte(conf), &invoke.Args{
		Command: command, ContainerID: "sandbox-of-web-1", NetNS: netns, IfName: "eth0", Path: n.path("bin"),
		PluginArgs: [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "web-1"}},
	}, nil)
	return err
}

// wantCode checks an error of the plugin.
func wantCode(tb testing.TB, what string, err error, code uint, text string) {
	tb.Helper()
	e, ok := errors.AsType[*types.Error](err)
	if !ok || e.Code != code || !strings.Contains(e.Msg, text) || strings.Contains(e.Msg, "\n") {
		tb.Errorf("%s: %v (%T), want code %d, %q", what, err, err, code, text)
	}
}
