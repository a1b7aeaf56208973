package prometheus

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/child"
	"portolan.dev/portolan/test/namespace"
)

const rulesFile = "../../deploy/prometheus/alerts.yaml"

func readFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// host is a network namespace with a directory for the files of its processes.
type host struct {
	t   *testing.T
	net *namespace.Network
	dir string
	// environment is that of its processes, beside that of the test.
	environment []string
	processes   []*process
}

// newHost makes one with an uplink, 192.0.2.1/24, whose other end is in the same namespace.
func newHost(t *testing.T) *host {
	t.Helper()
	n, err := namespace.New()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "host") //nolint:usetesting // the name of a test would make sockets' too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close(); os.RemoveAll(dir) })
	h := &host{t: t, net: n, dir: dir}
	h.do(func() error {
		return namespace.IP(
			"link set lo up", "link add uplink type veth peer name switch", "address add 192.0.2.1/24 dev uplink",
			"link set uplink up", "link set switch up", "route add default via 192.0.2.254",
		)
	})
	return h
}

// do runs f in the namespace.
func (h *host) do(f func() error) {
	h.t.Helper()
	if err := h.net.Do(f); err != nil {
		h.t.Fatal(err)
	}
}

// path is a file of the host.
func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

// file writes a file of the host and returns its path.
func (h *host) file(name, text string) string {
	h.t.Helper()
	writeFile(h.t, h.path(name), text)
	return h.path(name)
}

// dial connects from the namespace.
func (h *host) dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	const patience = 5 * time.Second
	err = h.net.Do(func() error {
		c, err = (&net.Dialer{Timeout: patience}).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// shell runs a command in the namespace and returns what it prints.
func (h *host) shell(command string) (string, error) {
	cmd := exec.CommandContext(h.t.Context(), "bash", "-c", command)
	cmd.Dir = h.dir
	var out []byte
	err := h.net.Do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	return string(out), err
}

// must runs a command in the namespace, which is to succeed.
func (h *host) must(command string) string {
	h.t.Helper()
	out, err := h.shell(command)
	if err != nil {
		h.t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

// process is a program that runs in the namespace.
type process struct {
	h     *host
	cmd   *exec.Cmd
	ended <-chan struct{}
	log   string
}

// start starts portolan in the namespace.
func (h *host) start(args ...string) *process {
	h.t.Helper()
	log, err := os.CreateTemp(h.dir, "log")
	if err != nil {
		h.t.Fatal(err)
	}
	defer log.Close()
	p := &process{h: h, log: log.Name(), cmd: exec.Command("portolan", args...)}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = h.dir, log, log
	p.cmd.Env = append(append(os.Environ(), "NODE_NAME=n1"), h.environment...)
	p.cmd.Args = []string{"nsenter", "--net=" + h.net.Path()}
	p.cmd.Args = append(append(p.cmd.Args, "portolan"), args...)
	if p.cmd.Path, err = exec.LookPath("nsenter"); err != nil {
		h.t.Fatal(err)
	}
	p.cmd.Err = nil
	if p.ended, err = child.Start(p.cmd); err != nil {
		h.t.Fatal(err)
	}
	h.processes = append(h.processes, p)
	h.t.Cleanup(func() {
		p.stop(syscall.SIGKILL)
		if h.t.Failed() {
			h.t.Logf("portolan %s:\n%s", strings.Join(args, " "), lastLines(p.logged()))
		}
	})
	return p
}

// lastLines are the last lines of a log.
func lastLines(text string) string {
	const lines = 25
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (p *process) logged() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}

// stop sends a signal and waits until the process has ended.
func (p *process) stop(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // it may have ended
	<-p.ended
}

// awaitLog waits until the log has the words.
func (p *process) awaitLog(words string) {
	p.h.t.Helper()
	if err := await.Within(await.Patience, func() error {
		select {
		case <-p.ended:
			return fmt.Errorf("%q has ended: %s", p.cmd.Args, lastLines(p.logged()))
		default:
		}
		if !strings.Contains(p.logged(), words) {
			return fmt.Errorf("%q: no %q in the log", p.cmd.Args, words)
		}
		return nil
	}); err != nil {
		p.h.t.Fatal(err)
	}
}
