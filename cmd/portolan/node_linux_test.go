package main

import (
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"node.addresses": func(t *testing.T) {
			p := startNodeInNetns(t, "addresses: [169.254.20.10, 'fd00::a']")
			p.waitLog(`serving\W+listen=\W+169\.254\.20\.10:53 \[fd00::a\]:53`)
			wantInterface(t, p, "portolan", "169.254.20.10/32", "fd00::a/128")
		},
		"node.port": func(t *testing.T) {
			p := startNodeInNetns(t, "addresses: [169.254.20.10], port: 5353")
			p.waitLog(`serving\W+listen=\W+169\.254\.20\.10:5353`)
		},
		"node.device": func(t *testing.T) {
			p := startNodeInNetns(t, "addresses: [169.254.20.10], device: names")
			p.waitLog(`serving`)
			wantInterface(t, p, "names", "169.254.20.10/32")
		},
	})
}

// startNodeInNetns starts an agent in its own network namespace, with settings of the key
// node.
func startNodeInNetns(t *testing.T, settings string) *process {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	file := t.TempDir() + "/node.yaml"
	write(t, file, "node: {mode: cache, servers: [192.0.2.1], "+settings+"}\nadmin: {listen: ''}\n")
	cmd := exec.Command("portolan", "node", "--config", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	return follow(t, cmd)
}

// wantInterface checks that the network namespace of p has an interface with the name
// prefix and the addresses.
func wantInterface(t *testing.T, p *process, name string, addrs ...string) {
	t.Helper()
	var got string
	inNetworkOf(t, p, func() { got = interfaces(t) })
	for _, addr := range addrs {
		if !strings.Contains(got, "\n"+name) || !strings.Contains(got, " "+addr) {
			t.Errorf("interfaces:%s\nwant %s* with %s", got, name, addr)
		}
	}
}

// interfaces lists the interfaces in the network namespace of the thread, one per line.
func interfaces(t *testing.T) (text string) {
	t.Helper()
	list, err := net.Interfaces()
	if err != nil {
		t.Error(err)
	}
	for _, i := range list {
		addrs, _ := i.Addrs() // none after an error
		text += fmt.Sprintf("\n%s %s ", i.Name, addrs)
		text = strings.NewReplacer("[", " ", "]", " ").Replace(text)
	}
	return text
}

// TestAgentReplacesAnother checks that a second agent with the same addresses takes over
// from the first, and that each has its own probe socket.
func TestAgentReplacesAnother(t *testing.T) {
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		t.Skip("nsenter is not installed (Debian: util-linux)")
	}
	first := startNodeInNetns(t, "addresses: [169.254.20.10]")
	first.waitLog(`serving\W+listen=`)
	network := []string{"--target", strconv.Itoa(first.cmd.Process.Pid), "--net"}
	file, socket := t.TempDir()+"/node.yaml", "unix:"+t.TempDir()+"/probes"
	write(t, file, "node: {mode: cache, servers: [192.0.2.1], addresses: [169.254.20.10]}\nadmin: {listen: '', probes: ['"+socket+"']}\n")
	second := follow(t, exec.Command(nsenter, append(network, "portolan", "node", "--config", file)...))
	second.waitLog(`serving\W+listen=`)
	ready := func() error {
		if out, err := exec.Command("portolan", "probe", "ready", socket).CombinedOutput(); err != nil {
			return fmt.Errorf("portolan probe: %s, %w", out, err)
		}
		return nil
	}
	second.poll(patience, ready)
	first.stop(syscall.SIGTERM)
	if err := ready(); err != nil {
		t.Error(err)
	}
	second.stop(syscall.SIGTERM)
	if ready() == nil {
		t.Error("a probe succeeds after both agents have stopped")
	}
}
