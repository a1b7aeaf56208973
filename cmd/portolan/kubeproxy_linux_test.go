package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// kubeProxyFile writes a configuration of kube-proxy.
func kubeProxyFile(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "config.conf")
	write(t, path, "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"+text)
	return path
}

// TestKubeProxyFile runs the proxy with kube-proxy's arguments, and manifests for a cluster.
func TestKubeProxyFile(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	file := kubeProxyFile(t, "clusterCIDR: 10.244.0.0/16\niptables: {masqueradeBit: 5}\nipvs: {scheduler: rr}\nconntrack: {tcpCloseWaitTimeout: 83s}\n")
	cmd := exec.Command("portolan", "proxy", "--config="+file, "--hostname-override=Node-1", "-v=4", "--manifests", proxyManifests)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	p := follow(t, cmd)
	p.waitLog(`level=WARN msg="kube-proxy's configuration: iptables becomes nftables: .*" file=\S+config.conf line=1 directive=mode kind=differs`)
	p.waitLog(`level=WARN msg="kube-proxy's configuration: no effect: endpoints are chosen at random; see proxy.endpointChoice" file=\S+ line=5 directive=ipvs.scheduler kind=missing`)
	p.waitLog(`msg=serving node=node-1 .*healthz=0\.0\.0\.0:10256 admin=127\.0\.0\.1:10249`)
	p.waitLog("the kernel has the Services of the cluster")
	rules := inNetwork(t, p, "nft", "list", "ruleset")
	for _, want := range []string{"ip saddr != 10.244.0.0/16 ip daddr @cluster-ips meta mark set meta mark | 0x00000020"} {
		if !strings.Contains(rules, want) {
			t.Errorf("the rules lack %q", want)
		}
	}
	inNetwork(t, p, "ip", "link", "set", "lo", "up")
	for page, want := range map[string]string{
		"/proxyMode": "nftables", "/healthz": "ok\n", "/configz": `"masqueradeBit":5,`, "/metrics": "\nportolan_build_info{",
	} {
		if body := getIn(t, p, "127.0.0.1:10249", page); body != want && (page == "/proxyMode" || !strings.Contains(body, want)) {
			t.Errorf("GET %s: %.200q, want %q", page, body, want)
		}
	}
	if got := inNetwork(t, p, "cat", "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"); got != "83\n" {
		t.Errorf("CLOSE_WAIT times out after %q s, want 83", got)
	}
}

// getIn returns a page of a process in a network of its own.
func getIn(t *testing.T, p *process, addr, path string) (body string) {
	t.Helper()
	inNetworkOf(t, p, func() {
		// A client of net/http would connect in another thread.
		c, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "GET %s HTTP/1.0\r\n\r\n", path)
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("GET %s: %v", path, err)
			return
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("GET %s: status %d, %v", path, response.StatusCode, err)
		}
		body = string(text)
	})
	return body
}

// TestKubeProxyMetrics checks the metrics that have kube-proxy's names, at the start and after a
// change of endpoints and one of a Service.
func TestKubeProxyMetrics(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(proxyManifests, "objects.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects := string(text)
	change := func(from, to string) {
		t.Helper()
		if !strings.Contains(objects, from) {
			t.Fatalf("the objects lack %q", from)
		}
		objects = strings.Replace(objects, from, to, 1)
		write(t, filepath.Join(dir, "objects.yaml"), objects)
	}
	change("  clusterIP: 10.96.0.10\n", "  clusterIP: 10.96.0.10\n  internalTrafficPolicy: Local\n")
	cmd := exec.Command("portolan", "proxy", "--node-name=node-1", "--admin=127.0.0.1:10249", "--manifests", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	p := follow(t, cmd)
	p.waitLog("the kernel has the Services of the cluster")
	inNetwork(t, p, "ip", "link", "set", "lo", "up")
	has := func(claim string, want ...string) {
		t.Helper()
		p.poll(patience, func() error {
			metrics := getIn(t, p, "127.0.0.1:10249", "/metrics")
			for _, line := range want {
				if !regexp.MustCompile(`(?m)^kubeproxy_` + line + `$`).MatchString(metrics) {
					return fmt.Errorf("%s: no metric %s", claim, line)
				}
			}
			return nil
		})
	}
	const at = `[1-9]\.\d+e\+09`
	has("the start",
		`sync_full_proxy_rules_duration_seconds_count\{ip_family="IPv4"\} [1-9]\d*`, `sync_proxy_rules_duration_seconds_count\{ip_family="IPv4"\} [1-9]\d*`,
		`sync_proxy_rules_last_timestamp_seconds\{ip_family="IPv4"\} `+at, `sync_proxy_rules_last_queued_timestamp_seconds\{ip_family="IPv4"\} `+at,
		`sync_proxy_rules_nftables_sync_failures_total\{ip_family="IPv4"\} 0`, `sync_proxy_rules_nftables_cleanup_failures_total\{ip_family="IPv4"\} 0`,
		`sync_proxy_rules_service_changes_total 2`, `sync_proxy_rules_endpoint_changes_total 1`,
		`sync_proxy_rules_service_changes_pending 0`, `sync_proxy_rules_endpoint_changes_pending 0`,
		`sync_proxy_rules_no_local_endpoints_total\{ip_family="IPv4",traffic_policy="internal"\} 0`,
		`sync_proxy_rules_no_local_endpoints_total\{ip_family="IPv4",traffic_policy="external"\} 0`)
	change("  - {addresses: [10.244.7.2], nodeName: node-1}\n", "")
	has("another set of endpoints",
		`sync_partial_proxy_rules_duration_seconds_count\{ip_family="IPv4"\} [1-9]\d*`, `sync_proxy_rules_endpoint_changes_total 2`,
		`sync_proxy_rules_service_changes_total 2`, `sync_proxy_rules_no_local_endpoints_total\{ip_family="IPv4",traffic_policy="internal"\} 1`)
	change("  internalTrafficPolicy: Local\n", "")
	has("another Service", `sync_proxy_rules_service_changes_total 3`, `sync_proxy_rules_endpoint_changes_total 2`,
		`sync_proxy_rules_no_local_endpoints_total\{ip_family="IPv4",traffic_policy="internal"\} 0`)
}

// TestInitOnly: the settings of connection tracking are made, and the process ends with status
// 0, or 2 and the settings that cannot be made. A network namespace may not change how many
// entries there are.
func TestInitOnly(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	const timeout = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"
	for entries, want := range map[string]string{
		"0":    "84\n0\n",
		"9999": "portolan: set net.netfilter.nf_conntrack_max=",
	} {
		file := kubeProxyFile(t, "conntrack: {maxPerCore: "+entries+", tcpCloseWaitTimeout: 84s}\n")
		script := `portolan proxy --init-only --config "$0" 2>"$0.log"; status=$?; cat ` + timeout + `; echo $status; grep portolan: "$0.log"`
		cmd := exec.Command("sh", "-c", script, file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		out, _ := cmd.Output() // grep finds no error, or one
		if !strings.HasPrefix(string(out), "84\n") || !strings.Contains(string(out), want) {
			t.Errorf("maxPerCore %s: CLOSE_WAIT times out after, status, error:\n%swant\n%s", entries, out, want)
		}
	}
}
