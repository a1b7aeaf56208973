package main

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/ctnetlink"
	"portolan.dev/portolan/internal/support/ctnetlink/ctnetlinktest"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"policy.table": func(t *testing.T) { wantPolicyRules(t, "table: fence", "table inet fence") },
		"policy.podRanges": func(t *testing.T) {
			wantPolicyRules(t, "podRanges: [10.99.0.0/16]", "elements = { 10.99.0.0/16 }")
		},
		"policy.log.group":  func(t *testing.T) { wantPolicyRules(t, "log: {group: 5}", " group 5 ") },
		"policy.log.rate":   func(t *testing.T) { wantPolicyRules(t, "log: {rate: 3}", "limit rate 3/second") },
		"policy.cni.socket": effectOfSocket,
		"policy.existing":   effectOfExisting,
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
	cmd := exec.Command("portolan", "node", "--parts", "policy", "--config", file)
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
