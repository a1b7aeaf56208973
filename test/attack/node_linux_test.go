package attack

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"portolan.dev/portolan/test/child"
)

// nodeMemoryLimit is that of agents with the parts proxy and policy in the shipped manifests
// (deploy/kustomize/node-all), in octets.
const nodeMemoryLimit = 512 << 20

// agentAddr is the address at which the agent answers DNS.
const agentAddr = "169.254.20.10"

// TestAllParts has an agent with all parts in one process, in a cluster of 10,000 Pods and 1,000 policies,
// answer lookups of ever new names: first with nothing in the kernel, and once more with all of it.
func TestAllParts(t *testing.T) {
	serveUpstream(t)
	dir := t.TempDir()
	config, cluster := filepath.Join(dir, "portolan.yaml"), filepath.Join(dir, "cluster.yaml")
	settings := fmt.Sprintf(`manifests: %s
admin: {listen: '%s'}
node: {parts: [dns, proxy, policy], mode: cache, servers: ['%s'], addresses: [%s]}
dns: {forward: {routes: [{upstreams: ['%s']}]}}
proxy: {healthz: '', conntrack: {maxPerCore: 0}}
policy: {cni: {socket: %s}}
`, cluster, adminAddr, upstreamAddr, agentAddr, upstreamAddr, filepath.Join(dir, "cni.sock"))
	for file, text := range map[string]string{config: settings, cluster: policyCluster()} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, when := range []string{"first", "again"} {
		t.Run(when, func(t *testing.T) {
			log, err := os.Create(filepath.Join(dir, when))
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			group := memoryGroup(t, nodeMemoryLimit)
			cmd := exec.Command("sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group, portolan, "node", "--config", config)
			cmd.Env = append(os.Environ(), "NODE_NAME=node-1")
			cmd.Stdout, cmd.Stderr = log, log
			ended, err := child.Start(cmd)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Kill()
				<-ended
			}()
			why := awaitServices(ended)
			if why == "" {
				atStart := peak(group)
				answered, failed := lookUpMany(t)
				t.Logf("%d MiB at most until it is ready, %d MiB with %d lookups, with the kernel's",
					atStart>>20, peak(group)>>20, answered)
				if failed > 0 || answered == 0 {
					why = fmt.Sprintf("%d lookups failed, %d did not", failed, answered)
				}
				if most := peak(group); most > nodeMemoryLimit/2 {
					t.Errorf("%d MiB at most, want half of the limit", most>>20)
				}
				if text, _ := os.ReadFile(log.Name()); !strings.Contains(string(text), "the kernel has the policies of the cluster") {
					t.Errorf("the log does not say that policies hold:\n%s", text)
				}
			}
			if err := ready(); why == "" && err != nil {
				why = "after the lookups: " + err.Error()
			}
			if why != "" {
				text, _ := os.ReadFile(log.Name())
				t.Fatalf("%s; log:\n%s", why, text[:min(len(text), 4000)])
			}
		})
	}
}

// lookUpMany has clients look up ever new names, one each at a time, for the duration of an attack.
func lookUpMany(t *testing.T) (answered, failed int64) {
	t.Helper()
	const clients = 32
	ctx, stop := context.WithTimeout(t.Context(), *duration)
	defer stop()
	var n, lost atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			client := new(dns.Client)
			for ctx.Err() == nil {
				m := new(dns.Msg).SetQuestion(fmt.Sprintf(fastName, n.Add(1)), dns.TypeA)
				if r, _, err := client.Exchange(m, net.JoinHostPort(agentAddr, "53")); err != nil || len(r.Answer) == 0 {
					lost.Add(1)
				}
			}
		})
	}
	all.Wait()
	return n.Load() - lost.Load(), lost.Load()
}

// policyCluster returns manifests of 10,000 Pods, 100 of them on the node, of 1,000 policies, half of which
// select Pods of the node, and of 1,000 Services with three endpoints each.
func policyCluster() string {
	const pods, policies, services, namespaces = 10_000, 1000, 1000, 100
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nspec: {podCIDR: 10.0.0.0/24, podCIDRs: [10.0.0.0/24]}\n")
	for i := range namespaces {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team-%d, labels: {team: t%d}}\n", i, i)
	}
	for i := range pods {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: pod-%d, namespace: team-%d, labels: {app: a%d}}\n"+
			"spec: {nodeName: node-%d, containers: [{name: c, image: i}]}\nstatus: {phase: Running, podIP: 10.%d.%d.%d, podIPs: [{ip: 10.%d.%d.%d}]}\n",
			i, i%namespaces, i/namespaces%10, 1+i/100, i/100/256, i/100%256, 1+i%100, i/100/256, i/100%256, 1+i%100)
	}
	for i := range policies {
		fmt.Fprintf(&b, "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: policy-%d, namespace: team-%d}\n"+
			"spec:\n  podSelector: {matchLabels: {app: a%d}}\n  ingress:\n  - from: [{namespaceSelector: {matchLabels: {team: t%d}}}, "+
			"{podSelector: {matchLabels: {app: a%d}}}]\n    ports: [{port: %d}]\n",
			i, i%namespaces, i/500, (i*7)%namespaces, i%10, 1+i)
	}
	for i := range services {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: s-%d, namespace: team-%d}\n"+
			"spec: {clusterIP: 10.96.%d.%d, ports: [{port: 80}]}\n", i, i%namespaces, i/250, 1+i%250)
		fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n"+
			"metadata: {name: s-%d, namespace: team-%d, labels: {kubernetes.io/service-name: s-%d}}\nports: [{name: '', port: 80}]\n"+
			"endpoints: [{addresses: [10.0.%d.1]}, {addresses: [10.0.%d.2]}, {addresses: [10.0.%d.3]}]\n",
			i, i%namespaces, i, i%100, i%100, i%100)
	}
	return b.String()
}
