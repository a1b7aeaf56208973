package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/kube/apitest"
)

// TestExplainKernel: explain --kernel says what the kernel has, while the proxy runs and owns the
// table, and after others changed it; and why it cannot be read.
func TestExplainKernel(t *testing.T) {
	t.Parallel()
	p := startProxy(t, proxyManifests, "detectLocal: {mode: NodeCIDR}")
	config := p.cmd.Args[len(p.cmd.Args)-1]
	without := filepath.Join(t.TempDir(), "cluster.yaml")
	objects, err := os.ReadFile(filepath.Join(proxyManifests, "objects.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, without, strings.Replace(string(objects), "  - {addresses: [10.244.8.2], nodeName: node-2}\n", "", 1))
	explain := func(args string) string {
		return "portolan explain 10.96.0.10:80 --kernel --config " + config + " " + args + "; echo status $?"
	}
	for _, c := range []struct {
		claim, script string
		want          []string
	}{
		{
			"it agrees, and the node is that of the proxy", explain("--from node"),
			[]string{
				"on node node-1\n", "  kernel: 10.96.0.10 . tcp . 80 : goto endpoints-2, 2 endpoints, as in the model\n", "status 0\n",
			},
		},
		{
			"the cluster has changed, and the kernel has not", explain("--from node --manifests " + without),
			[]string{
				"  kernel: 10.96.0.10 . tcp . 80 : goto endpoints-2, 2 endpoints, which differs from the model:\n",
				"    it has the endpoint 10.244.8.2:8080, which the model does not use\n",
				"service: the kernel of node node-1 differs from the model at 10.96.0.10:80/tcp: ", "status 11\n",
			},
		},
		{
			"for programs", explain("--from node -o json"),
			[]string{`"element": "10.96.0.10 . tcp . 80 : goto endpoints-2"`, `"endpoints": 2`, "status 0\n"},
		},
		{
			"another node", explain("--from node --node node-2"),
			[]string{"  kernel: not read: this is node node-1, and node node-2 handles the connection\n", "status 0\n"},
		},
		{
			"manifests without Nodes, on a machine that is none",
			"sed '/^kind: Node$/s/Node/Ignored/' " + proxyManifests + "/objects.yaml >$PWD/none.yaml; " +
				"portolan explain 10.96.0.10:80 --kernel --from node --manifests $PWD/none.yaml; echo status $?; rm none.yaml",
			[]string{"  kernel: 10.96.0.10 . tcp . 80 : goto endpoints-2, 2 endpoints, as in the model\n", "status 0\n"},
		},
		{
			"no table", "unshare --net " + explain("--from node"),
			[]string{"  kernel: not read: there is no nftables table ip portolan-proxy: portolan proxy has not run here\n", "status 0\n"},
		},
		{
			"no right", "setpriv --bounding-set -net_admin --inh-caps -net_admin " + explain("--from node"),
			[]string{"  kernel: not read: it needs the capability NET_ADMIN: run it as root, in the node's network\n", "status 0\n"},
		},
		{
			"only connections", "portolan explain web --from shop/client --kernel --manifests " + without + "; echo status $?",
			[]string{"portolan: --kernel goes with NAME:PORT\n", "status 2\n"},
		},
	} {
		got := inNetwork(t, p, "sh", "-c", c.script)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s\n%s\nlacks %q", c.claim, c.script, got, want)
			}
		}
	}
}

// TestExplainPolicyKernel: explain --to says whether the kernel has the same verdict, after somebody removed an
// element, too; and why it cannot be read. The agent is stopped, as it would repair its table.
func TestExplainPolicyKernel(t *testing.T) {
	t.Parallel()
	p := startPolicy(t, policyManifests, "existing: cut")
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }) // before the process is ended
	config := p.cmd.Args[len(p.cmd.Args)-1]
	explain := func(from, to, args string) string {
		return fmt.Sprintf("portolan explain %s --to %s --config %s %s; echo status $?", from, to, config, args)
	}
	remove := "nft delete element inet portolan-policy $(nft list table inet portolan-policy | " +
		"grep -o 'pods-[a-z2-7]*-4' | head -1) '{ 10.244.1.2 }'; "
	const agrees, dropped = "    kernel: agrees\n", "it drops the packet: no rule of shop/db allows it"
	// In this order.
	for _, c := range []struct {
		claim, script string
		want          []string
		lacks         string
	}{
		{
			"not asked", explain("shop/web", "shop/db:5432", ""),
			[]string{"allowed: pod shop/web to shop/db:5432/tcp\n", "status 0\n"}, "kernel",
		},
		{
			"both agree", explain("shop/web", "shop/db:5432", "--kernel"),
			[]string{"egress of the client: allowed: no policy restricts it\n" + agrees, "allows it\n" + agrees, "status 0\n"}, "differs",
		},
		{
			"both deny", explain("shop/job", "shop/db:5432", "--kernel"),
			[]string{"denied: pod shop/job", agrees, "status 1\n"}, "differs",
		},
		{
			"an address of the node's Pods that none has", explain("shop/web", "10.244.1.77:80", "--kernel"),
			[]string{"denied: pod shop/web", "ingress on node n1: denied: no Pod has 10.244.1.77, which is in ", agrees, "status 1\n"}, "differs",
		},
		{
			"another node", "sed 's/nodeName: n1/nodeName: n2/' " + policyManifests + "/shop.yaml >$PWD/n2.yaml; " +
				explain("shop/web", "shop/db:5432", "--kernel --manifests $PWD/n2.yaml") + "; rm n2.yaml",
			[]string{"    kernel: not read: this is node n1, and node n2 judges it\n", "status 0\n"}, agrees,
		},
		{
			"no table", "unshare --net " + explain("shop/web", "shop/db:5432", "--kernel"),
			[]string{"    kernel: not read: there is no nftables table inet portolan-policy: ", "status 0\n"}, agrees,
		},
		{
			"no right", "setpriv --bounding-set -net_admin --inh-caps -net_admin " + explain("shop/web", "shop/db:5432", "--kernel"),
			[]string{"    kernel: not read: it needs the capability NET_ADMIN: ", "status 0\n"}, agrees,
		},
		{
			"an element was removed", remove + explain("shop/web", "shop/db:5432", "--kernel"),
			[]string{
				"allowed by policies, but the kernel differs: pod shop/web to shop/db:5432/tcp\n", agrees,
				"    kernel: differs: " + dropped, "cure: run the command again", "status 1\n",
			}, "not read",
		},
		{
			"for programs", explain("shop/web", "shop/db:5432", "--kernel -o json"),
			[]string{`"result": "agrees"`, `"result": "differs"`, `"why": "` + dropped, `"policy-kernel-differs"`, "status 1\n"}, "not read",
		},
	} {
		got := inNetwork(t, p, "sh", "-c", c.script)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s\n%s\nlacks %q", c.claim, c.script, got, want)
			}
		}
		if strings.Contains(got, c.lacks) {
			t.Errorf("%s: %s\n%s\nhas %q", c.claim, c.script, got, c.lacks)
		}
	}
}

// TestExplainResolved: of an address that an answer of DNS allows, explain --to gives the rule and the name.
func TestExplainResolved(t *testing.T) {
	t.Parallel()
	p := startResolved(t, "")
	config := p.cmd.Args[len(p.cmd.Args)-1]
	for to, want := range map[string][]string{
		"192.0.2.2:443": {
			"egress of the client: allowed: spec.egress[0] of NetworkPolicy shop/job allows it, as an address of *.example.org\n",
			"    kernel: agrees: DNS answered with the address, which counts for ", "status 0\n",
		},
		"192.0.2.9:443": {"denied: pod shop/job", "    kernel: agrees\n", "status 1\n"},
	} {
		script := fmt.Sprintf("portolan explain shop/job --to %s --kernel --config %s; echo status $?", to, config)
		got := inNetwork(t, p, "sh", "-c", script)
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("%s\n%s\nlacks %q", script, got, text)
			}
		}
	}
}

// TestExplainPolicyKernelOfCluster: of a cluster that is read from its API, the kernel is asked on a node with
// policies without being told to, and nothing is said of it elsewhere.
func TestExplainPolicyKernelOfCluster(t *testing.T) {
	t.Parallel()
	p := startPolicy(t, policyManifests, "existing: cut")
	inNetwork(t, p, "ip", "link", "set", "lo", "up")
	var api *apitest.Server
	inNetworkOf(t, p, func() { api = apitest.New(t) })
	pod := func(name, addr string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{NodeName: "n1"},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addr, PodIPs: []corev1.PodIP{{IP: addr}}},
		}
	}
	api.Put(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, pod("web", "10.244.1.2"), pod("db", "10.244.1.3"),
	)
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, "proxy: {nodeName: n1}\n")
	explain := "portolan explain shop/web --to shop/db:5433 --config " + file + " --kubeconfig " + api.Kubeconfig(t) + "; echo status $?"
	got := inNetwork(t, p, "sh", "-c", explain)
	for _, want := range []string{"kernel: agrees\n", "kernel: differs: it drops the packet: no rule of shop/db allows it", "status 1\n"} {
		if !strings.Contains(got, want) { // the API server has no policy
			t.Errorf("%s\n%s\nlacks %q", explain, got, want)
		}
	}
	write(t, file, "proxy: {nodeName: n1}\npolicy: {table: none}\n")
	if got := inNetwork(t, p, "sh", "-c", explain); strings.Contains(got, "kernel") || !strings.Contains(got, "status 0\n") {
		t.Errorf("without a table of policies: %s\n%s\nwant nothing about the kernel, and status 0", explain, got)
	}
}
