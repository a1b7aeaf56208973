//go:build unix

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
)

// patience is how long tests wait for an expected event.
const patience = 20 * time.Second

// process is a running portolan.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	addr string // its first DNS address
	// ended is closed after the process has exited with this state.
	ended chan struct{}
	state *os.ProcessState

	mu  sync.Mutex
	log strings.Builder
}

// start starts `portolan serve` with args and waits until it logs its addresses. The
// process must run until the test ends or stops it.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return launch(t, args...).serving()
}

// serving waits until the process logs its addresses.
func (p *process) serving() *process {
	p.t.Helper()
	p.addr = p.waitLog(`serving\W+listen\W+(127\.0\.0\.1:\d+)`)[1]
	return p
}

// launch is start without waiting.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	if !slices.Contains(args, "--config") {
		args = append(args, "--admin", anyPort)
	}
	return follow(t, exec.Command("portolan", append([]string{"serve"}, args...)...))
}

// follow starts a command that executes portolan.
func follow(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, ended: make(chan struct{})}
	stdout := new(strings.Builder)
	if p.cmd.Stdout == nil {
		p.cmd.Stdout = stdout
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.readLog(stderr)
		_ = p.cmd.Wait() // the state has the result
		p.state = p.cmd.ProcessState
	}()
	t.Cleanup(func() {
		select {
		case <-p.ended:
		default:
			p.stop(syscall.SIGTERM)
		}
		if stdout.Len() > 0 {
			t.Errorf("%q printed %q, want nothing", p.cmd.Args, stdout)
		}
		if t.Failed() {
			t.Logf("log of %q:\n%s", p.cmd.Args, p.logged())
		}
	})
	return p
}

func (p *process) readLog(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		p.mu.Lock()
		fmt.Fprintln(&p.log, lines.Text())
		p.mu.Unlock()
	}
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// waitLog waits until the log matches a pattern, and returns the submatches.
func (p *process) waitLog(pattern string) []string {
	p.t.Helper()
	var match []string
	re := regexp.MustCompile("(?m)" + pattern)
	p.poll(patience, func() error {
		if match = re.FindStringSubmatch(p.logged()); match == nil {
			return fmt.Errorf("the log does not match %s", pattern)
		}
		return nil
	})
	return match
}

// poll calls try until it returns nil. It fails the test after the given time, or if the
// process exits.
func (p *process) poll(within time.Duration, try func() error) {
	p.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(within)
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-p.ended:
			if try() != nil {
				p.t.Fatalf("%q ended: %s; %v\n%s", p.cmd.Args, p.state, err, p.logged())
			}
			return
		case <-deadline:
			p.t.Fatalf("%q: not within %s: %v\n%s", p.cmd.Args, within, err, p.logged())
		}
	}
}

// stop sends a signal and checks that the process exits with status 0.
func (p *process) stop(signal os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
	p.wait()
	if code := p.state.ExitCode(); code != 0 {
		p.t.Errorf("%q: %s after %s, want exit status 0\n%s", p.cmd.Args, p.state, signal, p.logged())
	}
}

// await waits until a name has an address. The log line about loaded manifests precedes
// the compilation of the zone.
func (p *process) await(within time.Duration, name, address string) {
	p.t.Helper()
	p.poll(within, func() error { return wantData(p.ask("udp", question(name)), address) })
}

// awaitDenial waits until the response for a name is NXDOMAIN.
func (p *process) awaitDenial(within time.Duration, name string) {
	p.t.Helper()
	p.poll(within, func() error {
		if m := p.ask("udp", question(name)); m.Status != "NXDOMAIN" || len(m.Errors) != 1 {
			return fmt.Errorf("answer:\n%swant NXDOMAIN and why", m)
		}
		return nil
	})
}

// wait waits until the process exits, and kills it if it does not.
func (p *process) wait() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
		p.t.Fatalf("%q did not end within %s\n%s", p.cmd.Args, patience, p.logged())
	}
}

// question returns an A query with EDNS.
func question(name string) dnswire.QuerySpec {
	return dnswire.QuerySpec{Name: name, Type: dnswire.TypeA, UDPSize: respond.DefaultUDPSize}
}

// conn is a client's connection, UDP or TCP.
type conn struct {
	t *testing.T
	net.Conn
}

func (p *process) dial(network string) *conn {
	p.t.Helper()
	c, err := net.Dial(network, p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	return &conn{p.t, c}
}

// ask sends a query over a new connection and returns the response.
func (p *process) ask(network string, q dnswire.QuerySpec) *dnswire.Message {
	p.t.Helper()
	c := p.dial(network)
	defer c.Close()
	m, err := c.ask(q)
	if err != nil {
		p.t.Fatalf("%s over %s: %v", q.Name, network, err)
	}
	return m
}

// ask sends a query and returns the response.
func (c *conn) ask(q dnswire.QuerySpec) (*dnswire.Message, error) {
	c.t.Helper()
	packet, err := dnswire.NewQuery(q)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.send(packet); err != nil {
		return nil, err
	}
	wire, err := c.receive()
	if err != nil {
		return nil, err
	}
	if len(wire) < 2 || wire[0] != packet[0] || wire[1] != packet[1] {
		return nil, errors.New("an answer to another question")
	}
	return dnswire.ParseMessage(wire)
}

func (c *conn) send(packet []byte) error {
	if _, ok := c.Conn.(*net.TCPConn); ok {
		packet = append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)
	}
	_, err := c.Write(packet)
	return err
}

func (c *conn) receive() ([]byte, error) { return c.receiveWithin(patience) }

func (c *conn) receiveWithin(limit time.Duration) ([]byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	buf := make([]byte, dnswire.MaxMessage)
	if _, ok := c.Conn.(*net.UDPConn); ok {
		n, err := c.Read(buf)
		return buf[:n], err
	}
	if _, err := io.ReadFull(c, buf[:2]); err != nil {
		return nil, err
	}
	buf = buf[:binary.BigEndian.Uint16(buf)]
	_, err := io.ReadFull(c, buf)
	return buf, err
}

// wantClosed waits until the server closes the connection without further data.
func (c *conn) wantClosed() {
	c.t.Helper()
	if wire, err := c.receive(); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		c.t.Errorf("connection: read %d octets, %v, want it closed", len(wire), err)
	}
}

// data returns the RDATA of answer records of a type.
func data(m *dnswire.Message, recordType string) (all []string) {
	for _, r := range m.Answer {
		if r.Type == recordType {
			all = append(all, r.Data)
		}
	}
	return all
}

// wantData returns an error if the answer does not have exactly these addresses.
func wantData(m *dnswire.Message, want ...string) error {
	if got := data(m, "A"); m.Status != "NOERROR" || strings.Join(got, " ") != strings.Join(want, " ") {
		return fmt.Errorf("answer:\n%swant addresses %q", m, want)
	}
	return nil
}

// shop returns a copy of testdata/shop.
func shop(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "shop")
	if err := os.CopyFS(dir, os.DirFS("testdata/shop")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
