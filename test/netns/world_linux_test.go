package netns

import (
	"bufio"
	"bytes"
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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/stub"
)

// inside is the variable that holds, inside of the namespaces, the directory of
// the programs.
const inside = "PORTOLAN_NETNS"

// patience is how long is waited for what must come.
const patience = 20 * time.Second

// types by the words of the command line.
var types = map[string]dnswire.Type{"0": 0, "A": dnswire.TypeA, "AAAA": dnswire.TypeAAAA, "SRV": dnswire.TypeSRV}

// The servers.
var (
	portolan1 = netip.MustParseAddr("127.0.0.1")
	portolan2 = netip.MustParseAddr("127.0.0.2")
	deafAddr  = netip.MustParseAddr("127.0.0.8")
	closedAt  = netip.MustParseAddr("127.0.0.9")
	upstream  = netip.MustParseAddr("127.0.0.100")
)

// enter builds the programs, and runs this test in namespaces of its own.
func enter(t *testing.T) {
	dir := t.TempDir()
	if err := exec.Command("unshare", "--mount", "--net", "--uts", "true").Run(); err != nil {
		missing(t, "namespaces of one's own need root, and unshare (Debian: util-linux): %v", err)
	}
	for _, tool := range []string{"gcc", "musl-gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, "%s is missing (Debian: apt-get install gcc musl-tools)", tool)
		}
	}
	build(t, dir, nil, "gcc", "-o", "glibc", source("testdata/resolve.c"), "-lresolv")
	build(t, dir, nil, "musl-gcc", "-static", "-o", "musl", source("testdata/resolve.c"))
	build(t, dir, []string{"CGO_ENABLED=0"}, "go", "build", "-o", filepath.Join(dir, "go"), "./cmd/resolve")
	build(t, dir, nil, "go", "build", "-o", filepath.Join(dir, "portolan"), "portolan.dev/portolan/cmd/portolan")

	// The child dies with the thread that made it.
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

// missing skips the test, but not in CI.
func missing(t *testing.T, why string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(why, args...)
	}
	t.Skipf(why, args...)
}

func source(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		panic(err)
	}
	return abs
}

// build runs a compiler: a C compiler in dir, go here.
func build(t *testing.T, dir string, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), env...)
	if name != "go" {
		cmd.Dir = dir
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// world is what is inside of the namespaces.
type world struct {
	dir string
	// servers are those that tell what they saw.
	servers map[netip.Addr]*server
	marks   int
	known   map[asked]stub.Reply
}

type asked struct {
	server netip.Addr
	stub.Question
}

// server holds what was seen since it was last taken.
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
	w := &world{dir: dir, known: make(map[asked]stub.Reply), servers: map[netip.Addr]*server{
		portolan1: startPortolan(t, dir, portolan1, manifests, ""),
		portolan2: startPortolan(t, dir, portolan2, manifests, "hosts: {lines: [192.0.2.7 broken.one.test]}\n"),
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
	q := stub.Question{Name: "web.shop.svc.cluster.local.", Type: dnswire.TypeA, Size: 512}
	for deadline := time.Now().Add(patience); exchange(addr, q).Records == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not know %s", addr, q.Name)
		}
	}
}

// etc are the files that resolvers read beside resolv.conf.
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
listen: ["%s:53"]
admin: {listen: ""}
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

// mark asks every server for a name that nobody else asks for, and gives what
// each saw before it, which is then forgotten.
func (w *world) mark(t *testing.T) map[netip.Addr][]sent {
	t.Helper()
	w.marks++
	name := fmt.Sprintf("mark-%d.test.", w.marks)
	all := make(map[netip.Addr][]sent)
	for addr, s := range w.servers {
		if reply := exchange(addr, stub.Question{Name: name, Type: dnswire.TypeA, Size: 512}); reply.Loss != stub.None {
			t.Fatalf("%s does not answer", addr)
		}
		all[addr] = s.until(t, sent("udp "+name+" A"))
	}
	return all
}

// await waits a while until so many queries were seen: a resolver may be content
// before all servers have answered.
func (s *server) await(n int) {
	for deadline := time.Now().Add(patience / 10); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		have := len(s.seen)
		s.mu.Unlock()
		if have >= n {
			return
		}
	}
}

// until waits until q was seen, and takes what was before it.
func (s *server) until(t *testing.T, q sent) []sent {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		for i, have := range s.seen {
			if have == q {
				before := s.seen[:i:i]
				s.seen = s.seen[i+1:]
				s.mu.Unlock()
				return before
			}
		}
		s.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("%q is not in the log", q)
		}
	}
}

// ask asks the real servers, each question once.
func (w *world) ask(addr netip.Addr, q stub.Question) stub.Reply {
	switch addr {
	case deafAddr:
		return stub.Reply{Loss: stub.Timeout}
	case closedAt:
		return stub.Reply{Loss: stub.Unreachable}
	}
	key := asked{addr, q}
	reply, ok := w.known[key]
	if !ok {
		reply = exchange(addr, q)
		w.known[key] = reply
	}
	return reply
}

// exchange asks one question over a socket.
func exchange(addr netip.Addr, q stub.Question) stub.Reply {
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
		return stub.Reply{Loss: stub.Unreachable}
	case err != nil:
		return stub.Reply{Loss: stub.Timeout}
	}
	reply := stub.Reply{RCode: dnswire.RCode(m.Rcode), Truncated: m.Truncated}
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

// elsewhere are the names that are not the cluster's: what is not here is
// NXDOMAIN, or a name without records where something is below it.
const elsewhere = `
www.example.test. A 192.0.2.1
www.example.test. AAAA 2001:db8::1
six.example.test. AAAA 2001:db8::2
four.example.test. A 192.0.2.4
nodata.example.test. TXT none
alias.example.test. CNAME www.example.test.
dangling.example.test. CNAME nodata.example.test.
half.example.test. TXT none
a.b.c.d.e.example.test. A 192.0.2.5
nodata.one.test. TXT none
nodata.two.test. A 192.0.2.6
mixed.one.test. AAAA 2001:db8::6
mixed.two.test. A 192.0.2.8
alias.one.test. CNAME nodata.example.test.
alias.two.test. A 192.0.2.9
gone.one.test. CNAME missing.example.test.
gone.two.test. A 192.0.2.10
late.three.test. A 192.0.2.11
late.one.test. TXT none
broken.two.test. A 192.0.2.12
onlysix.one.test. AAAA 2001:db8::12
sixbroken.one.test. A 192.0.2.13
_broken._tcp.two.test. SRV 0 0 80 www.example.test.
twobroken.two.test. TXT none
`

// broken are the questions that are answered SERVFAIL.
var broken = map[string]bool{
	"broken.one.test. A": true, "broken.one.test. AAAA": true,
	"onlysix.one.test. A":      true,
	"sixbroken.one.test. AAAA": true,
	"twobroken.one.test. A":    true, "twobroken.one.test. AAAA": true,
	"_broken._tcp.one.test. SRV": true,
}

// serveUpstream answers what is elsewhere.
func serveUpstream(t *testing.T) {
	t.Helper()
	records := make(map[string][]dns.RR)
	for text := range strings.Lines(elsewhere) {
		name, rest, ok := strings.Cut(strings.TrimSpace(text), " ")
		if !ok {
			continue
		}
		rr, err := dns.NewRR(name + " 60 IN " + rest)
		if err != nil {
			t.Fatal(err)
		}
		records[name] = append(records[name], rr)
	}
	serve(t, netip.AddrPortFrom(upstream, 53), func(w dns.ResponseWriter, r *dns.Msg) {
		_ = w.WriteMsg(answer(r, records))
	})
}

func answer(r *dns.Msg, records map[string][]dns.RR) *dns.Msg {
	m := new(dns.Msg).SetReply(r)
	m.RecursionAvailable = true
	q := r.Question[0]
	name := strings.ToLower(q.Name)
	switch {
	case broken[name+" "+dns.TypeToString[q.Qtype]]:
		m.Rcode = dns.RcodeServerFailure
		return m
	case dns.IsSubDomain("refused.example.", name):
		m.Rcode = dns.RcodeRefused
		return m
	}
	for range 3 { // aliases
		var alias *dns.CNAME
		for _, rr := range records[name] {
			if c, ok := rr.(*dns.CNAME); ok {
				alias = c
			}
			if rr.Header().Rrtype == q.Qtype || rr.Header().Rrtype == dns.TypeCNAME {
				m.Answer = append(m.Answer, rr)
			}
		}
		if alias == nil {
			break
		}
		name = strings.ToLower(alias.Target)
	}
	if !exists(name, records) {
		m.Rcode = dns.RcodeNameError
	}
	return m
}

func exists(name string, records map[string][]dns.RR) bool {
	for owner := range records {
		if dns.IsSubDomain(name, owner) {
			return true
		}
	}
	return false
}

// sizes are headless Services with so many endpoints.
var sizes = map[string]int{"many": 40, "n23": 23, "n24": 24, "n25": 25, "n26": 26, "n50": 50, "n51": 51, "n81": 81, "n82": 82, "n83": 83, "n84": 84}

// cluster is the manifests.
func cluster() string {
	var b bytes.Buffer
	for _, ns := range []string{"default", "shop", "data"} {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n---\n", ns)
	}
	service := func(ns, name, spec string) {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s}\nspec: {%s}\n---\n", name, ns, spec)
	}
	const http = ", ports: [{name: http, port: 80}]"
	service("default", "kubernetes", "clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ipFamilies: [IPv4]"+http)
	service("shop", "web", "clusterIP: 10.96.0.20, clusterIPs: [10.96.0.20], ipFamilies: [IPv4]"+http)
	service("data", "web", "clusterIP: 10.96.0.21, clusterIPs: [10.96.0.21], ipFamilies: [IPv4]"+http)
	service("shop", "dual", `clusterIP: 10.96.0.22, clusterIPs: [10.96.0.22, "fd00::22"], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack`+http)
	service("shop", "six", `clusterIP: "fd00::23", clusterIPs: ["fd00::23"], ipFamilies: [IPv6]`+http)
	service("data", "six", "clusterIP: 10.96.0.24, clusterIPs: [10.96.0.24], ipFamilies: [IPv4]"+http)
	service("data", "db", "clusterIP: None, clusterIPs: [None], ipFamilies: [IPv4]"+http)
	for name := range sizes {
		service("data", name, "clusterIP: None, clusterIPs: [None], ipFamilies: [IPv4]"+http)
	}
	service("shop", "peers", "clusterIP: None, clusterIPs: [None], ipFamilies: [IPv4]"+http)
	service("shop", "ext", "type: ExternalName, externalName: www.example.test")
	service("shop", "gone", "type: ExternalName, externalName: missing.example.test")
	service("shop", "half", "type: ExternalName, externalName: half.example.test")
	service("shop", "extmany", "type: ExternalName, externalName: n25.data.svc.cluster.local")
	service("shop", "literal", "type: ExternalName, externalName: 10.0.0.9")
	slice := func(ns, service, endpoints string) {
		fmt.Fprintf(&b, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-1, namespace: %s, labels: {kubernetes.io/service-name: %s}}\n"+
			"addressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints: [%s]\n---\n", service, ns, service, endpoints)
	}
	slice("data", "db", "{addresses: [10.0.1.1], hostname: db-0}")
	slice("shop", "peers", "{addresses: [10.0.1.2], conditions: {ready: false}}")
	for service, n := range sizes {
		var many []string
		for i := range n {
			many = append(many, fmt.Sprintf("{addresses: [10.0.3.%d]}", i+1))
		}
		slice("data", service, strings.Join(many, ", "))
	}
	b.WriteString("apiVersion: v1\nkind: Pod\nmetadata: {name: one, namespace: shop}\nspec: {containers: [{name: c, image: i}]}\nstatus: {phase: Running, podIP: 10.0.2.1, podIPs: [{ip: 10.0.2.1}]}\n")
	return b.String()
}
