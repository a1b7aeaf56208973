package main

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/support/ctnetlink"
	"portolan.dev/portolan/internal/support/ctnetlink/ctnetlinktest"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"policy.table": func(t *testing.T) { wantPolicyRules(t, "table: fence", "table inet fence") },
		"policy.podRanges": func(t *testing.T) {
			wantPolicyRules(t, "podRanges: [10.99.0.0/16]", "elements = { 10.99.0.0/16 }")
		},
		"policy.log.group":   func(t *testing.T) { wantPolicyRules(t, "log: {group: 5}", " group 5 ") },
		"policy.log.rate":    func(t *testing.T) { wantPolicyRules(t, "log: {rate: 3}", "limit rate 3/second") },
		"policy.cni.socket":  effectOfSocket,
		"policy.cni.install": func(t *testing.T) { effectOfInstall(t, "install") },
		"policy.cni.binDir":  func(t *testing.T) { effectOfInstall(t, "binDir") },
		"policy.cni.confDir": func(t *testing.T) { effectOfInstall(t, "confDir") },
		"policy.existing":    effectOfExisting,
		"policy.daemonSet":   effectOfDaemonSet,
		"policy.domains.leastTTL": func(t *testing.T) {
			wantResolved(t, "leastTTL: 10m", 11*time.Minute, 3)
		},
		"policy.domains.grace": func(t *testing.T) {
			wantResolved(t, "grace: 20m", 21*time.Minute, 3)
		},
		"policy.domains.maxAddresses": func(t *testing.T) {
			wantResolved(t, "maxAddresses: 2", 2*time.Minute, 2)
		},
	})
}

const policyManifests = "testdata/policy"

// startPolicy starts an agent with policies and settings of the section policy, in its own network
// namespace, and waits until the kernel has the policies of the manifests.
func startPolicy(t *testing.T, manifests, section string) *process {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	if !strings.Contains(section, "cni:") {
		section += fmt.Sprintf(", cni: {socket: %q}", filepath.Join(t.TempDir(), "cni.sock"))
	}
	file := filepath.Join(t.TempDir(), "node.yaml")
	write(t, file, fmt.Sprintf("manifests: %q\nadmin: {listen: ''}\nproxy: {nodeName: n1}\npolicy: {%s}\n", manifests, section))
	return startPolicyAgent(t, "policy", file)
}

// startPolicyAgent starts an agent with these parts and this configuration file, in its own network namespace,
// and waits until the kernel has the policies.
func startPolicyAgent(t *testing.T, parts, file string) *process {
	t.Helper()
	cmd := exec.Command("portolan", "node", "--parts", parts, "--config", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	p := follow(t, cmd)
	p.waitLog("the kernel has the policies of the cluster")
	return p
}

// wantPolicyRules checks that a setting has the rules have a text that they do not have without.
func wantPolicyRules(t *testing.T, setting, want string) {
	t.Helper()
	rules := func(section string) string {
		return inNetwork(t, startPolicy(t, policyManifests, section), "nft", "list", "ruleset")
	}
	if got := rules(setting); !strings.Contains(got, want) {
		t.Errorf("policy: {%s}: the rules lack %q:\n%s", setting, want, got)
	}
	if strings.Contains(rules("existing: cut"), want) {
		t.Errorf("without %s the rules have %q", setting, want)
	}
}

func effectOfSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "other.sock")
	startPolicy(t, policyManifests, fmt.Sprintf("cni: {socket: %q}", socket))
	if info, err := os.Stat(socket); err != nil || info.Mode().Type() != os.ModeSocket {
		t.Errorf("%s: %v, %v, want a socket", socket, info, err)
	}
}

// effectOfExisting checks that a flow that a change forbids ends, or is kept.
func effectOfExisting(t *testing.T) {
	for existing, want := range map[string]int{"cut": 0, "keep": 1} {
		manifests := filepath.Join(t.TempDir(), "shop.yaml")
		text, err := os.ReadFile(filepath.Join(policyManifests, "shop.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, manifests, string(text))
		p := startPolicy(t, manifests, "existing: "+existing)
		from, to := netip.MustParseAddrPort("10.244.1.2:40000"), netip.MustParseAddrPort("10.244.1.3:5432")
		inNetworkOf(t, p, func() {
			err := ctnetlinktest.Create(ctnetlinktest.Flow{Protocol: unix.IPPROTO_TCP, Client: from, Destination: to, Replies: to})
			if err != nil {
				t.Fatal(err)
			}
		})
		write(t, manifests, strings.Replace(string(text), "port: 5432", "port: 5433", 1))
		p.poll(patience, func() error {
			if out := inNetwork(t, p, "nft", "list", "ruleset"); !strings.Contains(out, "5433") {
				return fmt.Errorf("the kernel lacks the change:\n%s", out)
			}
			return nil
		})
		flows := func() (n int) {
			inNetworkOf(t, p, func() {
				table, err := ctnetlink.Open()
				if err != nil {
					t.Fatal(err)
				}
				defer table.Close()
				err = table.Each(ctnetlink.Filter{Family: ctnetlink.IPv4}, func(*ctnetlink.Entry) { n++ })
				if err != nil {
					t.Fatal(err)
				}
			})
			return n
		}
		p.poll(patience, func() error {
			if n := flows(); n != want {
				return fmt.Errorf("existing: %s: %d flows after the change, want %d", existing, n, want)
			}
			return nil
		})
	}
}

// effectOfInstall checks that an agent installs the plugin into the directories of its settings, and only if it
// is to.
func effectOfInstall(t *testing.T, key string) {
	t.Helper()
	confDir, binDir := t.TempDir(), t.TempDir()
	conf := filepath.Join(confDir, "10-pods.conflist")
	write(t, conf, `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp"}]}`)
	installed := func() error {
		text, err := os.ReadFile(conf)
		if err != nil {
			t.Fatal(err)
		}
		_, err = os.Stat(filepath.Join(binDir, "portolan"))
		switch {
		case key != "binDir" && !strings.Contains(string(text), `"type":"portolan"`):
			return fmt.Errorf("the configuration lacks the plugin:\n%s", text)
		case key != "confDir" && err != nil:
			return err
		}
		return nil
	}
	start := func(install bool) *process {
		return startPolicy(t, policyManifests, fmt.Sprintf("cni: {socket: %q, install: %t, binDir: %q, confDir: %q}",
			filepath.Join(t.TempDir(), "cni.sock"), install, binDir, confDir))
	}
	start(false)
	if installed() == nil {
		t.Error("the plugin is installed without policy.cni.install")
	}
	start(true).poll(patience, installed)
}

// effectOfDaemonSet checks that an agent looks for its DaemonSet. No API server has it here; test/deploy removes
// one.
func effectOfDaemonSet(t *testing.T) {
	const missing = `will stay there when its DaemonSet is removed.*daemonset (\S+/)?agents:`
	startPolicy(t, policyManifests, "daemonSet: agents").waitLog(missing)
	p := startPolicy(t, policyManifests, "existing: cut")
	p.stop(syscall.SIGTERM)
	if log := p.logged(); strings.Contains(log, "DaemonSet") {
		t.Errorf("without policy.daemonSet the log is\n%s", log)
	}
}

// wantResolved checks that with a setting of the section domains the kernel keeps this many of the three
// addresses of a name, for this time, and otherwise all for another time or another number.
func wantResolved(t *testing.T, setting string, timeout time.Duration, addresses int) {
	t.Helper()
	longest, n := resolvedAfterQuery(t, setting)
	if n != addresses || longest > timeout || longest < timeout-patience {
		t.Errorf("domains: {%s}: %d addresses, for %v at most; want %d, for %v", setting, n, longest, addresses, timeout)
	}
	if longest, n := resolvedAfterQuery(t, ""); n != 3 || longest > 2*time.Minute {
		t.Errorf("by default: %d addresses, for %v at most; want 3, for 2m", n, longest)
	}
}

// resolvedAfterQuery starts an agent that answers DNS with settings of the section domains, has a Pod ask it for
// a name of a policy with three addresses, and returns the longest time and the number of addresses that the
// kernel was given.
func resolvedAfterQuery(t *testing.T, setting string) (longest time.Duration, addresses int) {
	t.Helper()
	rules := inNetwork(t, startResolved(t, setting), "nft", "list", "table", "inet", "portolan-policy")
	for _, match := range regexp.MustCompile(`192\.0\.2\.\d timeout (\w+)`).FindAllStringSubmatch(rules, -1) {
		d, err := time.ParseDuration(match[1])
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, d)
		addresses++
	}
	if addresses == 0 {
		t.Errorf("the kernel has no addresses of the name:\n%s", rules)
	}
	return longest, addresses
}

// startResolved starts an agent that answers DNS with settings of the section domains, and has the Pod shop/job
// ask it for www.example.org, which a policy has, with the addresses 192.0.2.1 to 192.0.2.3.
func startResolved(t *testing.T, setting string) *process {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	const name, agent, pod = "www.example.org", "169.254.20.10", "10.244.1.4"
	dir := t.TempDir()
	file := filepath.Join(dir, "node.yaml")
	write(t, file, fmt.Sprintf(`manifests: %q
admin: {listen: ''}
proxy: {nodeName: n1}
node: {mode: cache, servers: [192.0.2.53], addresses: [%s]}
dns: {hosts: {lines: ['192.0.2.1 %[3]s', '192.0.2.2 %[3]s', '192.0.2.3 %[3]s'], ttl: 5}}
policy: {cni: {socket: %q}, domains: {%s}}
`, policyManifests, agent, name, filepath.Join(dir, "cni.sock"), setting))
	p := startPolicyAgent(t, "dns,policy", file)
	inNetwork(t, p, "ip", "link", "set", "lo", "up")
	inNetwork(t, p, "ip", "address", "add", pod+"/32", "dev", "lo")
	p.poll(patience, func() (err error) {
		inNetworkOf(t, p, func() {
			var c net.Conn
			if c, err = (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(pod)}}).Dial("udp", agent+":53"); err != nil {
				return
			}
			defer c.Close()
			var m *dnswire.Message
			if m, err = (&conn{t, c}).ask(question(name)); err == nil && len(data(m, "A")) != 3 {
				err = fmt.Errorf("answer:\n%swant 3 addresses", m)
			}
		})
		return err
	})
	return p
}
