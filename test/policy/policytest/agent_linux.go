//go:build linux

// Package policytest runs the agent of a node with the part policy, the whole program, and Pods of the
// node. The node is a network namespace, Pods are others, the test is the container runtime, and the API
// server is package apitest.
package policytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/kube/apitest"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/child"
	"portolan.dev/portolan/test/namespace/namespacetest"
	"portolan.dev/portolan/test/program"
)

// Node is the name of the agent's Node.
const Node = "node-1"

// binary is the environment variable with the program, which is built outside of the namespaces.
const binary = "PORTOLAN_TEST_BINARY"

// Agent is the agent of a node.
type Agent struct {
	API *apitest.Server

	// Program is the file of the program.
	Program string

	parts, kubeconfig, config, socket string
	pods                              atomic.Int64 // how many there were
	log                               *child.Log

	mu      sync.Mutex // guards the fields below
	process *exec.Cmd  // nil after Stop
	ended   <-chan struct{}
}

// Admin is the agent's admin address.
const Admin = "127.0.0.1:9153"

// OnNode runs the test in the namespaces of a node with an agent, whose API server has these objects; one
// must be the Node. It returns nil outside of them. The agent ends with the test, which prints its log if
// it fails.
func OnNode(t *testing.T, objects ...metav1.Object) *Agent {
	t.Helper()
	a := Prepare(t, "policy", "", objects...)
	if a != nil {
		a.Start(t)
	}
	return a
}

// Prepare is OnNode for an agent with these parts and further sections of its configuration. The test
// starts it.
func Prepare(t *testing.T, parts, sections string, objects ...metav1.Object) *Agent {
	t.Helper()
	if os.Getenv(binary) == "" {
		file, err := program.Build(t.Context(), program.Options{})
		must(t, err)
		t.Setenv(binary, file)
	}
	if !namespacetest.OnNode(t) {
		return nil
	}
	dir := t.TempDir()
	a := &Agent{
		API: apitest.New(t), Program: os.Getenv(binary), parts: parts, config: filepath.Join(dir, "portolan.yaml"),
		socket: filepath.Join(dir, "cni.sock"), log: new(child.Log),
	}
	a.kubeconfig = a.API.Kubeconfig(t)
	text := fmt.Sprintf("policy: {cni: {socket: %s}}\nadmin: {listen: '%s'}\n%s\n", a.socket, Admin, sections)
	must(t, os.WriteFile(a.config, []byte(text), 0o600))
	a.API.Put(objects...)
	t.Cleanup(func() {
		a.Stop()
		if t.Failed() {
			t.Logf("the agent:\n%s", a.Log())
		}
	})
	return a
}

// Start starts the agent and waits until it admits Pods.
func (a *Agent) Start(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spawn(t)
	await.NoError(t, func() error { return a.call(t, "STATUS", nil) })
}

// Replace starts another agent beside the one that runs, as an upgrade does, calls meanwhile when it
// stands by, and ends the first one.
func (a *Agent) Replace(t *testing.T, meanwhile func()) {
	t.Helper()
	first, ended := a.process, a.ended
	a.spawn(t)
	await.NoError(t, func() error {
		if !strings.Contains(a.Log(), "another process programs the table") {
			return errors.New("the second agent does not stand by")
		}
		return nil
	})
	meanwhile()
	must(t, first.Process.Signal(syscall.SIGTERM))
	<-ended
}

// Log returns what the agents logged.
func (a *Agent) Log() string { return a.log.String() }

// spawn starts an agent.
func (a *Agent) spawn(t *testing.T) {
	t.Helper()
	cmd := exec.Command(a.Program, "node", "--parts", a.parts, "--kubeconfig", a.kubeconfig, "--config", a.config)
	cmd.Env = append(os.Environ(), "NODE_NAME="+Node)
	cmd.Stdout, cmd.Stderr = a.log, a.log
	ended, err := child.Start(cmd)
	a.process, a.ended = cmd, ended
	must(t, err)
}

// Stop kills the agent.
func (a *Agent) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.process != nil {
		_ = a.process.Process.Kill()
		<-a.ended
		a.process = nil
	}
}

// Freeze has the agent do nothing until the returned function is called.
func (a *Agent) Freeze(t *testing.T) (thaw func()) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	process := a.process.Process
	must(t, process.Signal(syscall.SIGSTOP))
	return func() { must(t, process.Signal(syscall.SIGCONT)) }
}

// call calls the plugin as a container runtime does.
func (a *Agent) call(t *testing.T, command string, p *Pod) error {
	t.Helper()
	conf := map[string]any{"cniVersion": "1.1.0", "name": "pods", "type": "portolan", "socket": a.socket}
	environment := []string{"CNI_COMMAND=" + command, "CNI_PATH=" + filepath.Dir(a.Program)}
	if p != nil {
		conf["prevResult"] = p.result()
		environment = append(environment, p.environment()...)
	}
	text, err := json.Marshal(conf)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, a.Program)
	cmd.Env, cmd.Stdin = environment, bytes.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		return errors.New(strings.TrimSpace(string(out)))
	}
	return nil
}

// result is the result of the plugins before ours in the chain.
func (p *Pod) result() map[string]any {
	var ips []any
	for _, addr := range p.Addrs {
		ips = append(ips, map[string]any{"address": netip.PrefixFrom(addr, addr.BitLen()).String(), "interface": 0})
	}
	return map[string]any{
		"cniVersion": "1.1.0", "ips": ips,
		"interfaces": []any{
			map[string]any{"name": "eth0", "sandbox": p.Network.Path()}, map[string]any{"name": p.device},
		},
	}
}

// environment is that of the plugin for the Pod.
func (p *Pod) environment() []string {
	return []string{
		"CNI_CONTAINERID=" + p.id, "CNI_IFNAME=eth0", "CNI_NETNS=" + p.Network.Path(),
		fmt.Sprintf(
			"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", p.Namespace, p.Name, p.UID,
		),
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
