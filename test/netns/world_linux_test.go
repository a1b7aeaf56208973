package netns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/pod/stubresolver"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/program"
)

// inside is the environment variable that holds the directory of the programs for the
// process in the namespaces.
const inside = "PORTOLAN_NETNS"

// patience is how long a test waits for a condition.
const patience = 20 * time.Second

// types are the record types by their names on the command line.
var types = map[string]dnswire.Type{"0": 0, "A": dnswire.TypeA, "AAAA": dnswire.TypeAAAA, "SRV": dnswire.TypeSRV}

// The servers.
var (
	portolan1 = netip.MustParseAddr("127.0.0.1")
	portolan2 = netip.MustParseAddr("127.0.0.2")
	deafAddr  = netip.MustParseAddr("127.0.0.8")
	closedAt  = netip.MustParseAddr("127.0.0.9")
	upstream  = netip.MustParseAddr("127.0.0.100")
)

// enter builds the programs and runs the current test again in new namespaces.
func enter(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := exec.Command("unshare", "--mount", "--net", "--uts", "true").Run(); err != nil && !inCI() {
		t.Skipf("namespaces of one's own need root, and unshare (Debian: util-linux): %v", err)
	}
	source := filepath.Join("testdata", "resolve.c")
	in := func(name string) string { return filepath.Join(dir, name) }
	build(t, nil, "gcc", "-o", in("glibc"), source, "-lresolv")
	build(t, nil, "musl-gcc", "-static", "-o", in("musl"), source)
	build(t, []string{"CGO_ENABLED=0"}, "go", "build", "-o", in("go"), "./cmd/resolve")
	linkProgram(t, dir)

	// The child dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	args := []string{"-test.run=^" + t.Name() + "$", "-test.timeout=3m"}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), inside+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("inside of the namespaces: %v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("inside of the namespaces:\n%s", out)
	}
}

// linkProgram builds portolan and links it into a directory.
func linkProgram(t *testing.T, dir string) {
	t.Helper()
	file, err := program.Build(t.Context(), program.Options{})
	must(t, err)
	must(t, os.Symlink(file, filepath.Join(dir, "portolan")))
}

// inCI reports whether a missing program or permission is a failure.
func inCI() bool { return os.Getenv("CI") != "" }

// build runs a compiler. A missing compiler is an error only in CI.
func build(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil && !inCI() {
		t.Logf("%v (Debian: apt-get install gcc musl-tools): what it builds is not tried", err)
		return
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// world is the servers and files in the namespaces.
type world struct {
	dir       string
	manifests string
	// servers are those that record the queries they receive.
	servers map[netip.Addr]*server
	marks   int
	known   map[asked]stubresolver.Response
}

type asked struct {
	server netip.Addr
	stubresolver.Query
}

// server records the queries that it received since they were last taken.
type server struct {
	mu   sync.Mutex
	seen []sent
	log  strings.Builder
}

func (s *server) see(q sent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, q)
}

// newWorld makes /etc and the servers.
func newWorld(t *testing.T, dir string) *world {
	t.Helper()
	if err := loopbackUp(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", "/etc", "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	for name, text := range etc {
		write(t, filepath.Join("/etc", name), text)
	}
	manifests := filepath.Join(t.TempDir(), "manifests")
	if err := os.Mkdir(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(manifests, "cluster.yaml"), cluster())
	serveUpstream(t)
	w := &world{dir: dir, manifests: manifests, known: make(map[asked]stubresolver.Response), servers: map[netip.Addr]*server{
		portolan1: startPortolan(t, dir, portolan1, manifests, ""),
		portolan2: startPortolan(t, dir, portolan2, manifests, "  hosts: {lines: [192.0.2.7 broken.one.test]}\n"),
		deafAddr:  listenDeaf(t),
	}}
	for _, addr := range []netip.Addr{portolan1, portolan2} {
		w.awaitLoaded(t, addr)
	}
	return w
}

// awaitLoaded waits until the server has read its manifests; before, it answers
// SERVFAIL.
func (w *world) awaitLoaded(t *testing.T, addr netip.Addr) {
	t.Helper()
	q := stubresolver.Query{Name: "web.shop.svc.cluster.local.", Type: dnswire.TypeA, Size: 512}
	await.NoError(t, func() error {
		if exchange(addr, q).Records == 0 {
			return fmt.Errorf("%s does not know %s", addr, q.Name)
		}
		return nil
	})
}

// etc are the files other than resolv.conf that resolvers read.
var etc = map[string]string{
	"nsswitch.conf": "hosts: files dns\n",
	"hosts":         "127.0.0.1 localhost\n::1 localhost\n",
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// loopbackUp brings the namespace's only device up.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return os.NewSyscallError("SIOCSIFFLAGS", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo))
}

// line is the query log's.
var line = regexp.MustCompile(`msg=query .*proto=(\w+) qname=(\S+) qtype=(\w+) `)

// startPortolan serves the manifests at addr, until the test ends, and reads what
// it logs.
func startPortolan(t *testing.T, dir string, addr netip.Addr, manifests, more string) *server {
	t.Helper()
	config := filepath.Join(t.TempDir(), "portolan.yaml")
	write(t, config, fmt.Sprintf(`manifests: %s
admin: {listen: ""}
dns:
  listen: ["%s:53"]
  forward:
    routes:
      - upstreams: [%s]
      - {suffix: refused.example, upstreams: [%s]}
  queryLog: {oneIn: 1}
%s`, manifests, addr, upstream, upstream, more))
	cmd := exec.Command(filepath.Join(dir, "portolan"), "serve", "--config", config)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	// It dies with the thread that starts it, which is of the test's process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	serving, ended := make(chan struct{}), make(chan struct{})
	s := new(server)
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			s.log.WriteString(err.Error())
			return
		}
		s.read(stderr, serving)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		if cmd.Process != nil {
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
		<-ended
		if t.Failed() && testing.Verbose() {
			t.Logf("log of %s:\n%s", addr, s.log.String())
		}
	})
	select {
	case <-serving:
	case <-ended:
		t.Fatalf("portolan ended:\n%s", s.log.String())
	case <-time.After(patience):
		t.Fatal("portolan does not serve")
	}
	return s
}

// read reads a log, and closes serving when it is time.
func (s *server) read(log io.Reader, serving chan<- struct{}) {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		text := lines.Text()
		if m := line.FindStringSubmatch(text); m != nil {
			s.see(sent(m[1] + " " + m[2] + " " + m[3]))
			continue
		}
		fmt.Fprintln(&s.log, text)
		if serving != nil && strings.Contains(text, "msg=serving") {
			close(serving)
			serving = nil
		}
	}
}

// listenDeaf takes queries, and answers only marks.
func listenDeaf(t *testing.T) *server {
	t.Helper()
	s := new(server)
	handle := func(w dns.ResponseWriter, r *dns.Msg) {
		q := r.Question[0]
		s.see(sent("udp " + strings.ToLower(q.Name) + " " + dns.TypeToString[q.Qtype]))
		if strings.HasPrefix(q.Name, "mark-") {
			_ = w.WriteMsg(new(dns.Msg).SetReply(r))
		}
	}
	serve(t, netip.AddrPortFrom(deafAddr, 53), handle)
	return s
}

// serve answers over UDP until the test ends.
func serve(t *testing.T, at netip.AddrPort, handle dns.HandlerFunc) {
	t.Helper()
	conn, err := net.ListenPacket("udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: handle}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.ActivateAndServe()
	}()
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
}

// mark queries every server for a unique name, and returns and forgets the queries
// that each received before it.
func (w *world) mark(t *testing.T) map[netip.Addr][]sent {
	t.Helper()
	w.marks++
	name := fmt.Sprintf("mark-%d.test.", w.marks)
	all := make(map[netip.Addr][]sent)
	for addr, s := range w.servers {
		if reply := exchange(addr, stubresolver.Query{Name: name, Type: dnswire.TypeA, Size: 512}); reply.Loss != stubresolver.None {
			t.Fatalf("%s does not answer", addr)
		}
		all[addr] = s.until(t, sent("udp "+name+" A"))
	}
	return all
}

// await waits until n queries were seen, for 2 s at most: a resolver may end before
// all servers have answered.
func (s *server) await(n int) {
	_ = await.Within(patience/10, func() error { // the caller compares what was seen
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.seen) < n {
			return errors.New("too few queries")
		}
		return nil
	})
}

// until waits until q was seen, and returns and forgets the queries before it.
func (s *server) until(t *testing.T, q sent) (before []sent) {
	t.Helper()
	await.NoError(t, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := slices.Index(s.seen, q)
		if i < 0 {
			return fmt.Errorf("%q is not in the log", q)
		}
		before, s.seen = s.seen[:i:i], s.seen[i+1:]
		return nil
	})
	return before
}

// ask asks the real servers, each question once.
func (w *world) ask(addr netip.Addr, q stubresolver.Query) stubresolver.Response {
	switch addr {
	case deafAddr:
		return stubresolver.Response{Loss: stubresolver.Timeout}
	case closedAt:
		return stubresolver.Response{Loss: stubresolver.Unreachable}
	}
	key := asked{addr, q}
	reply, ok := w.known[key]
	if !ok {
		reply = exchange(addr, q)
		w.known[key] = reply
	}
	return reply
}

// exchange sends one query over a socket.
func exchange(addr netip.Addr, q stubresolver.Query) stubresolver.Response {
	query := new(dns.Msg).SetQuestion(q.Name, uint16(q.Type))
	client := &dns.Client{Net: "udp", Timeout: patience, UDPSize: uint16(q.Size)}
	if q.TCP {
		client.Net = "tcp"
	} else if q.Size > dns.MinMsgSize {
		query.SetEdns0(uint16(q.Size), false)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, _, err := client.ExchangeContext(ctx, query, netip.AddrPortFrom(addr, 53).String())
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return stubresolver.Response{Loss: stubresolver.Unreachable}
	case err != nil:
		return stubresolver.Response{Loss: stubresolver.Timeout}
	}
	reply := stubresolver.Response{RCode: dnswire.RCode(m.Rcode), Truncated: m.Truncated}
	for _, rr := range m.Answer {
		if rr.Header().Rrtype == uint16(q.Type) {
			reply.Records++
		}
		if alias, ok := rr.(*dns.CNAME); ok {
			reply.Alias = alias.Target
		}
	}
	return reply
}
