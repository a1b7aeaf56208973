package attack

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/test/child"
)

// proxyMemoryLimit is that of the service proxy in the shipped manifests (deploy/kustomize/proxy), in
// octets.
const proxyMemoryLimit = 512 << 20

// TestLargeServices has the service proxy read Services of the largest size, which take the most
// memory with session affinity: first without anything in the kernel, and once more with all of it.
// The limits leave out some.
func TestLargeServices(t *testing.T) {
	dir := t.TempDir()
	config, cluster := filepath.Join(dir, "portolan.yaml"), filepath.Join(dir, "cluster.yaml")
	settings := fmt.Sprintf("manifests: %s\nadmin: {listen: '%s'}\nproxy: {nodeName: node-1, healthz: '', conntrack: {maxPerCore: 0}}\n", cluster, adminAddr)
	for file, text := range map[string]string{config: settings, cluster: largeServices(4)} {
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
			group := memoryGroup(t, proxyMemoryLimit)
			cmd := exec.Command("sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group, portolan, "proxy", "--config", config)
			cmd.Stdout, cmd.Stderr = log, log
			ended, err := child.Start(cmd)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Kill()
				<-ended
			}()
			if why := awaitServices(ended); why != "" {
				text, _ := os.ReadFile(log.Name())
				t.Fatalf("%s; log:\n%s", why, text[:min(len(text), 4000)])
			}
			t.Logf("%d MiB at most, with the kernel's", peak(group)>>20)
			text, _ := os.ReadFile(log.Name())
			if !strings.Contains(string(text), "Services are not served") {
				t.Errorf("the log does not say that Services are left out:\n%s", text)
			}
		})
	}
}

// awaitServices waits until the kernel has the Services, and returns why it has not.
func awaitServices(ended <-chan struct{}) (why string) {
	const patience = 5 * time.Minute
	for end := time.Now().Add(patience); time.Now().Before(end); {
		select {
		case <-ended:
			return "the proxy ended"
		case <-time.After(100 * time.Millisecond):
		}
		if ready() == nil {
			return ""
		}
	}
	return "the proxy is not ready"
}

// ready returns an error unless the process is ready.
func ready() error {
	response, err := http.Get("http://" + adminAddr + "/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /readyz: %s", response.Status)
	}
	return nil
}

// peak returns the peak of the memory of a control group, version 1 or 2, in octets; 0 if it is not
// known.
func peak(group string) int {
	for _, file := range []string{"memory.max_usage_in_bytes", "memory.peak"} {
		if text, err := os.ReadFile(filepath.Join(group, file)); err == nil {
			n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
			return n
		}
	}
	return 0
}

// largeServices returns manifests of Services with 130 ports of 1,000 endpoints, two of them in each
// namespace.
func largeServices(n int) string {
	const ports, endpoints = 130, 1000
	var b strings.Builder
	for i := range n {
		name, namespace := fmt.Sprint("large-", i), fmt.Sprint("team-", i/2)
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s}\n", name, namespace)
		fmt.Fprintf(&b, "spec:\n  clusterIP: 10.96.0.%d\n  sessionAffinity: ClientIP\n  externalIPs: [203.0.113.%d]\n  ports:\n", 1+i, 1+i)
		for p := range ports {
			fmt.Fprintf(&b, "  - {name: p%d, port: %d}\n", p, 1+p)
		}
		fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n"+
			"metadata: {name: %s, namespace: %s, labels: {kubernetes.io/service-name: %s}}\nports:\n", name, namespace, name)
		for p := range ports {
			fmt.Fprintf(&b, "- {name: p%d, port: %d}\n", p, 1+p)
		}
		b.WriteString("endpoints:\n")
		for e := range endpoints {
			fmt.Fprintf(&b, "- {addresses: [10.%d.%d.%d]}\n", 200+i, e/256, e%256)
		}
	}
	return b.String()
}
