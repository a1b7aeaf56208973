//go:build linux

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// agentAddress is the address at which each node's agent answers the Pods of its node, as in the manifests.
var agentAddress = netip.MustParseAddr("169.254.20.10")

// LoadBalancerRanges are the ranges of addresses of load balancers. They are of the nodes' link.
const LoadBalancerRanges = "10.0.0.192/27,fd00:10::c0/123"

// portolanImage is the name of the image in the manifests.
const portolanImage = "portolan"

// startNetwork starts nodes without a network, and applies the manifests of the whole network, as docs/network.md has
// it.
func (c *Cluster) startNetwork(ctx context.Context) error {
	if err := c.startNodes(ctx); err != nil {
		return err
	}
	overlay, err := c.makeOverlay(ctx)
	if err != nil {
		return err
	}
	// There is a range of addresses of Services a moment after the API server is ready.
	if err := retryFor(ctx, time.Minute, func() error {
		return c.kubectl(ctx, "apply", "--kustomize", overlay)
	}); err != nil {
		return err
	}
	if err := c.awaitNodes(ctx); err != nil {
		return err
	}
	if err := c.awaitNetwork(ctx); err != nil {
		return err
	}
	return c.addRoutes(ctx)
}

// workloads are those of the manifests.
var workloads = []string{
	"daemonset/portolan-node", "deployment/portolan-nodes", "deployment/portolan", "deployment/portolan-loadbalancer",
}

// awaitNetwork waits until all Pods of the manifests are ready.
func (c *Cluster) awaitNetwork(ctx context.Context) error {
	for _, workload := range workloads {
		err := c.kubectl(ctx, "rollout", "status", "--namespace", metav1.NamespaceSystem, "--timeout=3m", workload)
		if err != nil {
			return err
		}
	}
	return nil
}

// manifests are those of the whole network.
var manifests = []string{"base", "kube-dns", "node-whole", "controller-nodes", "controller-loadbalancer"}

// makeOverlay makes an overlay of the manifests, and returns its directory.
func (c *Cluster) makeOverlay(ctx context.Context) (string, error) {
	repository, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "portolan.dev/portolan").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	kustomize := filepath.Join(string(bytes.TrimSpace(repository)), "deploy/kustomize")
	dir := filepath.Join(c.dir, "overlay")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	from, err := filepath.Rel(dir, kustomize) // kustomize refuses other paths
	if err != nil {
		return "", err
	}
	api, err := url.Parse(c.RESTConfig().Host)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintln(&text, "resources:")
	for _, name := range manifests {
		fmt.Fprintln(&text, "  -", filepath.Join(from, name))
	}
	fmt.Fprintf(&text, `namespace: kube-system
generatorOptions: {disableNameSuffixHash: true}
configMapGenerator:
  - {name: portolan-proxy-api, literals: [host=%s, port="%s"]}
`, api.Hostname(), api.Port())
	for name, change := range configurations {
		file, err := change.make(kustomize, dir)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "  - {name: %s, behavior: merge, files: [config.yaml=%s]}\n", name, file)
	}
	return dir, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text.String()), 0o644)
}

// configuration is the file of one of the manifests, in which an operator replaces texts.
type configuration struct {
	of      string
	changes map[string]string
}

// configurations are what an operator changes, by the name of the ConfigMap.
var configurations = map[string]configuration{
	"portolan-node": {"node-whole", map[string]string{
		"network:\n": "controller: {loadBalancer: {withoutClass: true}}\nnetwork:\n  announce: {enabled: true}\n",
	}},
	"portolan-nodes": {"controller-nodes", map[string]string{"[10.244.0.0/16]": yamlList(ClusterCIDRs)}},
	"portolan-loadbalancer": {"controller-loadbalancer", map[string]string{
		"[192.0.2.0/28]":    yamlList(LoadBalancerRanges),
		"  loadBalancer:\n": "  loadBalancer:\n    withoutClass: true\n", // tests have no class
	}},
}

func yamlList(words string) string { return `["` + strings.ReplaceAll(words, ",", `", "`) + `"]` }

// make writes the changed file into a directory, and returns its name there.
func (c configuration) make(kustomize, dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(kustomize, c.of, "config.yaml"))
	if err != nil {
		return "", err
	}
	for old, changed := range c.changes {
		if n := bytes.Count(text, []byte(old)); n != 1 {
			return "", fmt.Errorf("config.yaml of %s has %q %d times, want once", c.of, old, n)
		}
		text = bytes.Replace(text, []byte(old), []byte(changed), 1)
	}
	name := c.of + ".yaml"
	return name, os.WriteFile(filepath.Join(dir, name), text, 0o644)
}

// kubectl runs kubectl on the cluster.
func (c *Cluster) kubectl(ctx context.Context, args ...string) error {
	args = append([]string{"--kubeconfig", c.Kubeconfig()}, args...)
	cmd := exec.CommandContext(ctx, c.config.Programs.Kubectl, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %q: %w\n%s", args, err, bytes.TrimSpace(out))
	}
	return nil
}

// retryFor calls do until it returns no error, or for some time.
func retryFor(ctx context.Context, limit time.Duration, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// addRoutes has this machine reach the Pods of all nodes, whose ranges the controller has given.
func (c *Cluster) addRoutes(ctx context.Context) error {
	nodes, err := c.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range nodes.Items {
		var cidrs []netip.Prefix
		var addrs []netip.Addr
		for _, text := range n.Spec.PodCIDRs {
			cidr, err := netip.ParsePrefix(text)
			if err != nil {
				return err
			}
			cidrs = append(cidrs, cidr)
		}
		for _, a := range n.Status.Addresses {
			if a.Type != corev1.NodeInternalIP {
				continue
			}
			addr, err := netip.ParseAddr(a.Address)
			if err != nil {
				return err
			}
			addrs = append(addrs, addr)
		}
		if len(cidrs) != len(addrs) {
			return fmt.Errorf("node %s has ranges %v and addresses %v, want as many", n.Name, cidrs, addrs)
		}
		if err := addRoutes(cidrs, addrs); err != nil {
			return err
		}
	}
	return nil
}
