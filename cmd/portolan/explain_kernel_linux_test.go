package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
				"why:  the kernel of node node-1 differs from the model at 10.96.0.10:80/tcp: ", "status 1\n",
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
