package world

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/child"
)

// Admin is the address of each program's admin server, in its namespace.
const Admin = "127.0.0.1:9153"

// agent is a program of portolan.
type agent struct {
	name  string
	at    *Client
	cmd   *exec.Cmd
	log   *child.Log
	ended <-chan struct{}
}

// run starts all programs, and waits until they are ready.
func (w *World) run() {
	t := w.t
	t.Helper()
	for name, node := range w.nodes {
		w.start("node "+name, node, "node", "--parts", "proxy,policy",
			"--cni-socket", filepath.Join(t.TempDir(), "cni.sock"))
	}
	for _, p := range w.podsOf(w.dnsService()) {
		w.start("serve "+p.Name, p, append([]string{"serve"}, flags("--listen", p, ":53")...)...)
	}
	for _, p := range w.podsOf(keyOf(w.Settings.Gateway.Publish.Service)) {
		w.start("gateway "+p.Name, p, append([]string{"gateway"}, flags("--listen", p, "")...)...)
	}
	for _, a := range w.agents {
		await.NoError(t, a.ready)
	}
}

// flags returns a flag for each address of a Pod, with a port.
func flags(name string, p *Client, port string) (all []string) {
	for _, a := range p.Addrs {
		text := a.String()
		if port != "" && a.Is6() {
			text = "[" + text + "]"
		}
		all = append(all, name, text+port)
	}
	return all
}

// podsOf returns the Pods that run and that a Service selects.
func (w *World) podsOf(key cluster.Key) (all []*Client) {
	w.store.View(func(v *cluster.View) {
		s := v.Service(key)
		if s == nil {
			return
		}
		for p := range v.Pods() {
			if c := w.pods[p.Key]; c != nil && s.Selects(p) {
				all = append(all, c)
			}
		}
	})
	return all
}

// start starts a program in a namespace. It ends with the test, which prints its log if it fails.
func (w *World) start(name string, at *Client, args ...string) {
	t := w.t
	t.Helper()
	a := &agent{name: name, at: at, log: new(child.Log)}
	a.cmd = exec.Command(w.Program, append(args, "--config", w.Config, "--admin", Admin)...)
	a.cmd.Env = append(os.Environ(), "NODE_NAME="+at.Node)
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	var err error
	a.ended, err = child.StartIn(at.Network.Do, a.cmd)
	must(t, err)
	w.agents = append(w.agents, a)
	at.program = true
	t.Cleanup(func() {
		_ = a.cmd.Process.Signal(syscall.SIGKILL)
		<-a.ended
		if t.Failed() {
			t.Logf("%s:\n%s", a.name, a.log)
		}
	})
}

// ready returns why a program is not ready, or nil.
func (a *agent) ready() error {
	select {
	case <-a.ended:
		return fmt.Errorf("%s ended: %s\n%s", a.name, a.cmd.ProcessState, a.log)
	default:
	}
	var conn net.Conn
	err := a.at.Network.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", Admin, await.Answer)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", a.name, err, a.log)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(await.Answer))
	if _, err := io.WriteString(conn, "GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), fmt.Sprintf(" %d ", http.StatusOK)) {
		return errors.New(a.name + " is not ready: " + string(text))
	}
	return nil
}
