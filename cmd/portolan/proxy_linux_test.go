package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/proxy/conntrack"
	"portolan.dev/portolan/test/namespace"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"proxy.nodeName": func(t *testing.T) {
			wantRules(t, "nodeName: node-2", "192.0.2.2 . tcp . 30080 : goto masquerade-2", "192.0.2.1 . tcp")
		},
		"proxy.detectLocal.mode": func(t *testing.T) {
			wantRules(t, "detectLocal: {mode: NodeCIDR}", "ip saddr != 10.244.7.0/24 ip daddr @cluster-ips meta mark set", "iifname")
		},
		"proxy.detectLocal.clusterCIDRs": func(t *testing.T) {
			wantRules(t, "detectLocal: {clusterCIDRs: [10.244.0.0/16]}", "ip saddr != 10.244.0.0/16 ip daddr @cluster-ips meta mark set", "iifname")
		},
		"proxy.detectLocal.interface": func(t *testing.T) {
			wantRules(t, "detectLocal: {mode: BridgeInterface, interface: cni0}", `iifname != "cni0" ip daddr @cluster-ips meta mark set`, "ip saddr != 10.")
		},
		"proxy.masqueradeAll": func(t *testing.T) {
			wantRules(t, "masqueradeAll: true", "\t\tip daddr @cluster-ips meta mark set", "")
		},
		"proxy.masqueradeBit": func(t *testing.T) {
			wantRules(t, "masqueradeBit: 3", "meta mark set meta mark | 0x00000008", "0x00004000")
		},
		"proxy.nodePortAddresses": func(t *testing.T) {
			wantRules(t, "nodePortAddresses: [198.51.100.0/24]", "198.51.100.7 . tcp . 30080", "192.0.2.1 . tcp")
		},
		"proxy.endpointChoice": func(t *testing.T) {
			wantRules(t, "endpointChoice: client-hash", "jhash ip saddr mod 8", "192.0.2.1 . tcp . 30080 : goto masquerade-")
		},
		"proxy.table":       func(t *testing.T) { wantRules(t, "table: vips", "table ip vips", "portolan-proxy") },
		"proxy.healthz":     effectOfHealthz,
		"proxy.healthLimit": effectOfHealthLimit,
		"proxy.conntrack.maxPerCore": func(t *testing.T) {
			wantMaximum(t, "maxPerCore: 400000, min: 1", 400000*conntrack.CPUs())
		},
		"proxy.conntrack.min":                   func(t *testing.T) { wantMaximum(t, "maxPerCore: 1, min: 654321", 654321) },
		"proxy.conntrack.tcpEstablishedTimeout": func(t *testing.T) { wantSysctl(t, "tcpEstablishedTimeout: 77s", "tcp_timeout_established", "77") },
		"proxy.conntrack.tcpCloseWaitTimeout":   func(t *testing.T) { wantSysctl(t, "tcpCloseWaitTimeout: 78s", "tcp_timeout_close_wait", "78") },
		"proxy.conntrack.tcpBeLiberal":          func(t *testing.T) { wantSysctl(t, "tcpBeLiberal: true", "tcp_be_liberal", "1") },
		"proxy.conntrack.udpTimeout":            func(t *testing.T) { wantSysctl(t, "udpTimeout: 79s", "udp_timeout", "79") },
		"proxy.conntrack.udpStreamTimeout":      func(t *testing.T) { wantSysctl(t, "udpStreamTimeout: 81s", "udp_timeout_stream", "81") },
		"proxy.conntrack.resetTCP":              effectOfResetTCP,
		"proxy.replaceKubeProxy":                effectOfReplaceKubeProxy,
		"proxy.counters":                        effectOfCounters,
		"proxy.slowStart":                       effectOfSlowStart,
	})
}

// startProxy starts a service proxy with settings of the section proxy, in its own network
// namespace, and waits until the kernel has the Services of the manifests.
func startProxy(t *testing.T, manifests, section string) *process {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	cmd := proxyCommand(t, manifests, section)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	p := follow(t, cmd)
	p.waitLog("the kernel has the Services of the cluster")
	return p
}

func proxyCommand(t *testing.T, manifests, section string) *exec.Cmd {
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	if !strings.Contains(section, "nodeName") {
		section = "nodeName: node-1, " + section
	}
	admin := ""
	if strings.Contains(section, "counters") {
		admin = "127.0.0.1:9153"
	}
	write(t, file, fmt.Sprintf("manifests: %q\nadmin: {listen: %q}\nproxy: {%s}\n", manifests, admin, section))
	return exec.Command("portolan", "proxy", "--config", file)
}

// inNetworkOf runs a function in the network namespace of a process.
func inNetworkOf(t *testing.T, p *process, run func()) {
	t.Helper()
	err := namespace.Do(fmt.Sprintf("/proc/%d/ns/net", p.cmd.Process.Pid), func() error {
		run()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inNetwork executes a command in the network namespace of a process and returns its output.
func inNetwork(t *testing.T, p *process, name string, args ...string) (out string) {
	t.Helper()
	inNetworkOf(t, p, func() {
		all, err := exec.Command(name, args...).CombinedOutput()
		if out = string(all); err != nil {
			t.Errorf("%s %q: %v\n%s", name, args, err, out)
		}
	})
	return out
}

const proxyManifests = "testdata/proxy"

// wantRules checks that a setting has the rules have one text, and not another one that they
// have without the setting or might have.
func wantRules(t *testing.T, setting, want, not string) {
	t.Helper()
	p := startProxy(t, proxyManifests, setting)
	var rules string
	p.poll(patience, func() error {
		// Addresses are looked at every few seconds.
		inNetwork(t, p, "ip", "address", "replace", "198.51.100.7/24", "dev", "lo")
		if rules = inNetwork(t, p, "nft", "list", "ruleset"); !strings.Contains(rules, want) {
			return fmt.Errorf("the rules lack %q", want)
		}
		return nil
	})
	if not != "" && strings.Contains(rules, not) {
		t.Errorf("proxy: {%s}: the rules have %q", setting, not)
	}
}

// wantMaximum checks that a setting of connection tracking asks for a number of entries. The
// kernel lets only the host's own network namespace change that.
func wantMaximum(t *testing.T, setting string, want int) {
	t.Helper()
	p := startProxy(t, proxyManifests, fmt.Sprintf("conntrack: {%s}", setting))
	p.waitLog(fmt.Sprintf(`nf_conntrack_max=%d\b`, want))
}

// wantSysctl checks that a setting of connection tracking is made in the kernel.
func wantSysctl(t *testing.T, setting, file, want string) {
	t.Helper()
	p := startProxy(t, proxyManifests, fmt.Sprintf("conntrack: {%s}", setting))
	if got := strings.TrimSpace(inNetwork(t, p, "cat", "/proc/sys/net/netfilter/nf_conntrack_"+file)); got != want {
		t.Errorf("proxy.conntrack: {%s}: %s is %s, want %s", setting, file, got, want)
	}
}

// livez returns the status code of /livez at a port; 0 without a response.
func livez(t *testing.T, p *process, port int) (code int) {
	code, _ = page(t, p, port, "/livez")
	return code
}

// page returns the status code and the body of a page at a port; 0 without a response.
func page(t *testing.T, p *process, port int, path string) (code int, body string) {
	inNetworkOf(t, p, func() {
		// A client of net/http would connect in another thread.
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), patience)
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "GET %s HTTP/1.0\r\n\r\n", path)
		if response, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
			all, _ := io.ReadAll(response.Body)
			response.Body.Close()
			code, body = response.StatusCode, string(all)
		}
	})
	return code, body
}

// effectOfCounters sends a datagram to a Service and looks for its metric.
func effectOfCounters(t *testing.T) {
	const metric = `portolan_proxy_service_connections_total{kind="ClusterIP",namespace="shop",port="echo",protocol="udp",service="echo"}`
	for setting, want := range map[string]string{"counters: true": metric + " 1\n", "counters: false": ""} {
		p := startProxy(t, proxyManifests, setting)
		inNetwork(t, p, "ip", "link", "set", "lo", "up")
		inNetwork(t, p, "ip", "route", "add", "10.96.0.0/16", "dev", "lo")
		inNetworkOf(t, p, func() {
			c, err := net.Dial("udp", "10.96.0.11:7")
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			fmt.Fprint(c, "hello")
		})
		p.poll(patience, func() error {
			code, body := page(t, p, 9153, "/metrics")
			switch has := strings.Contains(body, "portolan_proxy_service_connections_total"); {
			case code != http.StatusOK:
				return fmt.Errorf("/metrics: %d", code)
			case want == "" && has:
				return errors.New("there is the metric without counters")
			case !strings.Contains(body, want):
				return fmt.Errorf("/metrics lacks %q", want)
			}
			return nil
		})
	}
}

// effectOfSlowStart checks how many slots a Service has of which an endpoint becomes ready.
func effectOfSlowStart(t *testing.T) {
	for setting, want := range map[string]string{"slowStart: 1h": "goto endpoints-11", "slowStart: 0s": "goto endpoints-2"} {
		dir, objects := copyOfManifests(t)
		const ready = "  - {addresses: [10.244.8.2], nodeName: node-2}\n"
		write(t, filepath.Join(dir, "objects.yaml"), strings.Replace(objects, ready, "", 1))
		p := startProxy(t, dir, setting)
		write(t, filepath.Join(dir, "objects.yaml"), objects)
		p.poll(patience, func() error {
			services := inNetwork(t, p, "nft", "list", "map", "ip", "portolan-proxy", "services")
			if line := "10.96.0.10 . tcp . 80 : " + want; !strings.Contains(services, line) {
				return fmt.Errorf("%s: no %q in\n%s", setting, line, services)
			}
			return nil
		})
	}
}

// copyOfManifests returns a directory for manifests, and the text of proxyManifests.
func copyOfManifests(t *testing.T) (dir, objects string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(proxyManifests, "objects.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	write(t, filepath.Join(dir, "objects.yaml"), string(text))
	return dir, string(text)
}

func effectOfHealthz(t *testing.T) {
	p := startProxy(t, proxyManifests, "healthz: 127.0.0.1:7777")
	inNetwork(t, p, "ip", "link", "set", "lo", "up")
	if got := livez(t, p, 7777); got != http.StatusOK {
		t.Errorf("/livez at port 7777: %d, want 200", got)
	}
}

// effectOfHealthLimit has a change fail: another process owns a table that the first needs.
func effectOfHealthLimit(t *testing.T) {
	for setting, want := range map[string]int{"healthLimit: 1s": http.StatusServiceUnavailable, "healthLimit: 1h": http.StatusOK} {
		dir := t.TempDir()
		objects, err := os.ReadFile(filepath.Join(proxyManifests, "objects.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "objects.yaml"), string(objects))
		p := startProxy(t, dir, setting)
		inNetwork(t, p, "ip", "link", "set", "lo", "up")
		other := proxyCommand(t, proxyManifests, "table: portolan-proxy-next, healthz: ''")
		var q *process
		inNetworkOf(t, p, func() { q = follow(t, other) })
		q.waitLog("the kernel has the Services of the cluster")
		moved := strings.Replace(string(objects), "metadata: {name: node-1}", "metadata: {name: node-1, labels: {topology.kubernetes.io/zone: a}}", 1)
		write(t, filepath.Join(dir, "objects.yaml"), moved)
		p.waitLog("another process owns the nftables table")
		begin := time.Now()
		p.poll(patience, func() error {
			got := livez(t, p, 10256)
			if got == want && (want != http.StatusOK || time.Since(begin) > 1500*time.Millisecond) {
				return nil
			}
			return fmt.Errorf("/livez: %d, want %d", got, want)
		})
	}
}

// effectOfResetTCP checks that the entry of a connection is deleted when its endpoint has gone.
func effectOfResetTCP(t *testing.T) {
	for setting, want := range map[string]bool{"resetTCP: true": false, "resetTCP: false": true} {
		dir, objects := copyOfManifests(t)
		p := startProxy(t, dir, fmt.Sprintf("conntrack: {%s}", setting))
		inNetwork(t, p, "conntrack", "-I", "-p", "tcp", "-s", "198.51.100.7", "-d", "10.96.0.10", "--sport", "4000", "--dport", "80",
			"-r", "10.244.8.2", "-q", "198.51.100.7", "--reply-port-src", "8080", "--reply-port-dst", "4000",
			"--state", "ESTABLISHED", "-u", "SEEN_REPLY,ASSURED", "-t", "600")
		less := strings.Replace(objects, "  - {addresses: [10.244.8.2], nodeName: node-2}\n", "", 1)
		write(t, filepath.Join(dir, "objects.yaml"), less)
		p.poll(patience, func() error {
			if rules := inNetwork(t, p, "nft", "list", "map", "ip", "portolan-proxy", "endpoints"); strings.Contains(rules, "10.244.8.2") {
				return errors.New("the endpoint is still there")
			}
			return nil
		})
		begin := time.Now()
		p.poll(patience, func() error {
			there := strings.Contains(inNetwork(t, p, "conntrack", "-L", "-p", "tcp"), "10.244.8.2")
			if there == want && (!want || time.Since(begin) > 500*time.Millisecond) {
				return nil
			}
			return fmt.Errorf("%s: the connection has its entry: %t", setting, there)
		})
	}
}

// effectOfReplaceKubeProxy checks whether a table of kube-proxy is removed.
func effectOfReplaceKubeProxy(t *testing.T) {
	for setting, want := range map[string]bool{"replaceKubeProxy: true": false, "replaceKubeProxy: false": true} {
		host := startProxy(t, proxyManifests, "table: other, healthz: ''") // for its network namespace
		inNetwork(t, host, "nft", "add", "table", "ip", "kube-proxy")
		var p *process
		inNetworkOf(t, host, func() { p = follow(t, proxyCommand(t, proxyManifests, setting)) })
		p.waitLog("the kernel has the Services of the cluster")
		p.poll(patience, func() error {
			if there := strings.Contains(inNetwork(t, p, "nft", "list", "tables"), "kube-proxy"); there != want {
				return fmt.Errorf("%s: kube-proxy has its table: %t", setting, there)
			}
			return nil
		})
	}
}
