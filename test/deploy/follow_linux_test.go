package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// followed is the cluster's part of the test: what the manifests' Services select.
const followed = `
{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}
---
{apiVersion: v1, kind: Service, metadata: {name: portolan-transfer, namespace: kube-system}, spec: {clusterIP: None, ports: [{name: dns-tcp, port: 53}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: portolan-node, namespace: kube-system}, spec: {clusterIP: None, ports: [{name: dns, port: 9155, protocol: UDP}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: kube-system}, spec: {clusterIP: 10.96.0.7, ports: [{port: 80}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: servers, namespace: kube-system, labels: {kubernetes.io/service-name: portolan-transfer}}
addressType: IPv4
ports: [{name: dns-tcp, port: 53, protocol: TCP}]
endpoints: [{addresses: [192.0.2.2]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: agents, namespace: kube-system, labels: {kubernetes.io/service-name: portolan-node}}
addressType: IPv4
ports: [{name: dns, port: 9155, protocol: UDP}]
endpoints: [{addresses: [192.0.2.10]}]
`

// script runs a server at 192.0.2.2 and an agent on a node with 192.0.2.10, changes
// an address in the cluster, and prints what a Pod is told before and after.
const script = `
ip link set lo up; ip address add 192.0.2.2/32 dev lo; ip address add 192.0.2.10/32 dev lo
portolan serve --config server.yaml --manifests cluster.yaml --listen 192.0.2.2:53 --admin 192.0.2.2:9153 2> server.log & server=$!
portolan node --config node.yaml --server 192.0.2.2 2> node.log & agent=$!
trap 'kill $agent $server; wait' EXIT
for i in $(seq 300); do portolan probe ready unix:run/probes > ready && break; sleep 0.1; done
cat ready
ask() { dig @169.254.20.10 +short +tries=1 web.search.kube-system.cluster.local.ap.k8s.io A; }
ask
sed s/10.96.0.7/10.96.0.8/ cluster.yaml > changed.yaml && mv changed.yaml cluster.yaml
for i in $(seq 300); do ask | grep -q 10.96.0.8 && break; sleep 0.01; done
ask
`

// TestNodeFollows: with the configurations of both sides that we ship, an agent finds
// the server by the Service, has its zone with the key, is told of a change, and is
// asked by Pods with one search domain.
func TestNodeFollows(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"unshare", "ip", "dig"} {
		if _, err := exec.LookPath(tool); err != nil || os.Getuid() != 0 {
			t.Skip("a network of its own needs root, and unshare, ip and dig (Debian: util-linux, iproute2, bind9-dnsutils)")
		}
	}
	dir, all := t.TempDir(), kustomized(t, "secondary")
	local := strings.NewReplacer("/etc/portolan-transfer", dir, "/var/lib/portolan/snapshot", "", "/var/lib/portolan", dir, "/run/portolan", "run", "lameduck: 5s", "lameduck: 0s",
		"mode: secondary", "mode: secondary\n  check: 1m\n  stale: 2m") // it has to be told
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"cluster.yaml": followed, "key": "YSBzZWNyZXQgb2YgMzIgb2N0ZXRzLCBhdCBsZWFzdC4=\n",
		"server.yaml": local.Replace(configText(t, objects{"": all["ConfigMap/portolan"]})),
		"node.yaml":   local.Replace(configText(t, objects{"": all["ConfigMap/portolan-node"]})),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--kill-child", "--fork", "bash", "-c", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+filepath.Dir(buildBinary(t))+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	const want = "ok\nweb.kube-system.svc.cluster.local.\n10.96.0.7\nweb.kube-system.svc.cluster.local.\n10.96.0.8\n"
	if err != nil || string(out) != want {
		t.Errorf("%v; got\n%s\nwant\n%s\nthe server said:\n%s\nthe agent said:\n%s",
			err, out, want, readFile(t, filepath.Join(dir, "server.log")), readFile(t, filepath.Join(dir, "node.log")))
	}
	if log := readFile(t, filepath.Join(dir, "node.log")); !strings.Contains(log, "zone is followed") {
		t.Errorf("the agent follows nobody:\n%s", log)
	}
}
