package cni_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/policy/cni"
	"portolan.dev/portolan/test/await"
)

// gate is a Gate whose calls a test sees and answers.
type gate struct {
	mu       sync.Mutex
	calls    []string
	admitted map[attach.ID]cni.Attachment
	// admit is called by Admit. It may be nil.
	admit func(context.Context, cni.Attachment) error
}

func newGate() *gate { return &gate{admitted: make(map[attach.ID]cni.Attachment)} }

func (g *gate) note(call string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, call)
}

func (g *gate) seen() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

func (g *gate) Admit(ctx context.Context, a cni.Attachment) error {
	g.note("admit " + a.Name)
	if g.admit != nil {
		if err := g.admit(ctx, a); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admitted[a.ID] = a
	return nil
}

func (g *gate) Release(ctx context.Context, ended []cni.Attachment) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	pods := names(ended)
	slices.Sort(pods)
	g.note("release " + strings.Join(pods, " "))
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range ended {
		delete(g.admitted, a.ID)
	}
	return nil
}

func (g *gate) Check(_ context.Context, a cni.Attachment) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.admitted[a.ID]; !ok {
		return errors.New("its chains are missing")
	}
	return nil
}

// agent is a Server in a directory of its own.
type agent struct {
	*cni.Server
	socket string
	stop   func() // ends it, and waits until it has ended
}

func start(t *testing.T, socket string, g cni.Gate, ready func() error) agent {
	t.Helper()
	s, err := cni.Listen(t.Context(), cni.Config{Socket: socket, Gate: g, Ready: ready, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return agent{s, socket, stop}
}

// socketPath returns a path short enough for a socket, in a directory that does not exist.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cni") //nolint:usetesting // the name of a test would make it too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "run", "portolan", "cni.sock")
}

// soon is when requests of tests must be answered.
func soon() time.Time { return time.Now().Add(await.Patience) }

func request(verb attach.Verb, pod string, addrs ...string) attach.Request {
	return attach.Request{Verb: verb, Addresses: addrs, Sandbox: attach.Sandbox{
		ID: attach.ID{ContainerID: "id-of-" + pod, Interface: "eth0"}, Network: "pods", Namespace: "shop", Name: pod, UID: "u-" + pod,
	}}
}

func (a agent) call(t *testing.T, r attach.Request) {
	t.Helper()
	if err := attach.Call(soon(), a.socket, r); err != nil {
		t.Fatalf("%s %s: %v", r.Verb, r.Name, err)
	}
}

func names(all []cni.Attachment) (names []string) {
	for _, a := range all {
		names = append(names, a.Name)
	}
	return names
}

func wantCalls(t *testing.T, g *gate, want ...string) {
	t.Helper()
	if got := g.seen(); !slices.Equal(got, want) {
		t.Errorf("calls of the gate: %q, want %q", got, want)
	}
}

func TestAdmitWaitsForTheGate(t *testing.T) {
	t.Parallel()
	g := newGate()
	open, entered := make(chan struct{}), make(chan cni.Attachment, 1)
	g.admit = func(_ context.Context, a cni.Attachment) error {
		entered <- a
		<-open
		return nil
	}
	a := start(t, socketPath(t), g, nil)
	result := make(chan error, 1)
	go func() {
		result <- attach.Call(soon(), a.socket, request(attach.Admit, "web", "10.244.1.7", "::ffff:10.244.1.8", "fd00::7"))
	}()
	got := <-entered
	select {
	case err := <-result:
		t.Fatalf("Call returns %v before the gate has admitted", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(open)
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	want := []netip.Addr{netip.MustParseAddr("10.244.1.7"), netip.MustParseAddr("10.244.1.8"), netip.MustParseAddr("fd00::7")}
	if !slices.Equal(got.Addresses, want) || got.Pod() != "shop/web" || got.UID != "u-web" || got.Network != "pods" {
		t.Errorf("the gate got %+v", got)
	}
	if err := attach.Call(soon(), a.socket, request(attach.Check, "web", "10.244.1.7", "10.244.1.8", "fd00::7")); err != nil {
		t.Errorf("Check: %v", err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	g := newGate()
	g.admit = func(_ context.Context, a cni.Attachment) error {
		if a.Name == "refused" {
			return errors.New("the kernel has no room")
		}
		return nil
	}
	a := start(t, socketPath(t), g, func() error { return errors.New("Pods are not known yet") })
	a.call(t, request(attach.Admit, "web", "10.244.1.7"))
	noPod := request(attach.Admit, "", "10.244.1.9")
	outside := request(attach.Admit, "web", "10.244.1.9")
	outside.ContainerID = "../../etc/passwd"
	for name, test := range map[string]struct {
		request attach.Request
		want    string
	}{
		"the gate's":         {request(attach.Admit, "refused", "10.244.1.9"), "the kernel has no room"},
		"no address":         {request(attach.Admit, "other"), "the attachment has no address"},
		"no Pod":             {noPod, "the attachment has no Pod"},
		"a path as ID":       {outside, `container ID "../../etc/passwd" has characters that the CNI specification does not allow`},
		"not an address":     {request(attach.Admit, "other", "10.244.1"), `ParseAddr("10.244.1"): IPv4 address too short`},
		"a zone":             {request(attach.Admit, "other", "fe80::1%eth0"), "address fe80::1%eth0 has a zone"},
		"unknown":            {request(attach.Check, "other", "10.244.1.9"), "the agent has not admitted this attachment"},
		"other address":      {request(attach.Check, "web", "10.244.1.9"), "it was admitted with the addresses [10.244.1.7], and has [10.244.1.9]"},
		"not ready":          {attach.Request{Verb: attach.Ready}, "Pods are not known yet"},
		"no verb":            {attach.Request{}, `verb "" is unknown`},
		"release of no name": {attach.Request{Verb: attach.Release}, `container ID "" is not of 1 to 128 octets`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := attach.Call(soon(), a.socket, test.request)
			if _, ok := errors.AsType[*attach.RefusedError](err); !ok || err.Error() != test.want {
				t.Errorf("Call returns %v, want %s", err, test.want)
			}
		})
	}
	t.Cleanup(func() {
		if got := names(a.Registry().All()); !slices.Equal(got, []string{"web"}) {
			t.Errorf("attachments of %q, want web's alone", got)
		}
	})
}

// TestRestart: what was admitted is known after the process was killed, but for what ended meanwhile.
func TestRestart(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	before := start(t, socket, newGate(), nil)
	for i, pod := range []string{"api", "db", "web"} {
		before.call(t, request(attach.Admit, pod, fmt.Sprintf("10.244.1.%d", i)))
	}
	before.call(t, request(attach.Release, "db"))
	// The plugin removes the record of api while no agent is there, see package plugin.
	if err := os.Remove(filepath.Join(attach.Records(socket), "id-of-api,eth0")); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(attach.Records(socket), "id-of-old,eth0")
	if err := os.WriteFile(damaged, []byte("portolan attach"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The process before has not ended: it was killed, or is about to.
	g := newGate()
	after := start(t, socket, g, nil)
	all := after.Registry().All()
	if got := names(all); !slices.Equal(got, []string{"web"}) || all[0].Addresses[0] != netip.MustParseAddr("10.244.1.2") {
		t.Fatalf("after a restart: %+v, want web's attachment", all)
	}
	if _, err := os.Stat(damaged + ".bad"); err != nil {
		t.Errorf("a damaged record is not set aside: %v", err)
	}
	after.call(t, request(attach.Admit, "new", "10.244.1.0"))
	before.stop()
	after.call(t, request(attach.Release, "web"))
	wantCalls(t, g, "admit new", "release web")
}

// agentSocket is the environment variable that makes the test program an agent at that socket.
const agentSocket = "PORTOLAN_TEST_CNI_SOCKET"

func TestMain(m *testing.M) {
	socket := os.Getenv(agentSocket)
	if socket == "" {
		os.Exit(m.Run())
	}
	s, err := cni.Listen(context.Background(), cni.Config{Socket: socket, Gate: newGate(), Log: slog.Default()})
	if err != nil {
		panic(err)
	}
	_ = s.Run(context.Background()) // until it is killed
}

// TestKilled: an agent that is killed when ADD has returned leaves the Pod's addresses to the next one, which has
// them from nowhere else: the Pod's status has none yet.
func TestKilled(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	killed := exec.CommandContext(t.Context(), os.Args[0])
	killed.Env = append(os.Environ(), agentSocket+"="+socket)
	killed.Stderr = os.Stderr
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, func() error { return attach.Call(soon(), socket, attach.Request{Verb: attach.Ready}) })
	for i := range 100 {
		admit := request(attach.Admit, fmt.Sprint("web-", i), fmt.Sprintf("10.244.1.%d", i))
		if err := attach.Call(soon(), socket, admit); err != nil {
			t.Fatal(err)
		}
	}
	_ = killed.Process.Kill()
	_ = killed.Wait()
	if err := attach.Call(soon(), socket, attach.Request{Verb: attach.Ready}); !errors.Is(err, attach.ErrUnreachable) {
		t.Errorf("without an agent: %v, want ErrUnreachable", err)
	}
	all := start(t, socket, newGate(), nil).Registry().All()
	if len(all) != 100 || all[7].Pod() != "shop/web-15" || !slices.Equal(all[7].Addresses, []netip.Addr{netip.MustParseAddr("10.244.1.15")}) {
		t.Errorf("after a restart: %d attachments, want 100: %+v", len(all), all)
	}
}

// TestOtherBoot: no sandbox survives a boot of the node.
func TestOtherBoot(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	start(t, socket, newGate(), nil).call(t, request(attach.Admit, "web", "10.244.1.7"))
	path := filepath.Join(attach.Records(socket), "id-of-web,eth0")
	cni.SetBoot(t, path, "another")
	if all := start(t, socket, newGate(), nil).Registry().All(); len(all) > 0 {
		t.Errorf("attachments of another boot: %+v", all)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record of another boot: %v", err)
	}
}

// TestAddressReused: the Pod that had an address has ended, even if nobody said so.
func TestAddressReused(t *testing.T) {
	t.Parallel()
	g := newGate()
	a := start(t, socketPath(t), g, nil)
	a.call(t, request(attach.Admit, "old", "10.244.1.7", "fd00::7"))
	a.call(t, request(attach.Admit, "new", "10.244.1.8", "fd00::7"))
	a.call(t, request(attach.Release, "old"))
	a.call(t, request(attach.Release, "old")) // which is no error
	wantCalls(t, g, "admit old", "release old", "admit new")
	if got := names(a.Registry().All()); !slices.Equal(got, []string{"new"}) {
		t.Errorf("attachments of %q, want new's alone", got)
	}
}

func TestCollect(t *testing.T) {
	t.Parallel()
	g := newGate()
	a := start(t, socketPath(t), g, nil)
	for i, pod := range []string{"api", "db", "web"} {
		a.call(t, request(attach.Admit, pod, fmt.Sprintf("10.244.1.%d", i)))
	}
	other := request(attach.Admit, "other", "10.245.1.1")
	other.Network = "storage"
	a.call(t, other)
	a.call(t, attach.Request{
		Verb: attach.Collect, Sandbox: attach.Sandbox{Network: "pods"},
		Valid: []attach.ID{{ContainerID: "id-of-db", Interface: "eth0"}, {ContainerID: "id-of-api", Interface: "net1"}},
	})
	if got := names(a.Registry().All()); !slices.Equal(got, []string{"db", "other"}) {
		t.Errorf("attachments of %q after GC, want db's, and that of another network", got)
	}
	wantCalls(t, g, "admit api", "admit db", "admit web", "admit other", "release api web")
	files, err := os.ReadDir(attach.Records(a.socket))
	if err != nil || len(files) != 2 {
		t.Errorf("records %v, %v, want 2", files, err)
	}
}

// TestPluginGone: a plugin that is killed while it waits leaves nothing.
func TestPluginGone(t *testing.T) {
	t.Parallel()
	g := newGate()
	entered := make(chan struct{}, 1)
	g.admit = func(ctx context.Context, _ cni.Attachment) error {
		entered <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	a := start(t, socketPath(t), g, nil)
	conn, err := net.Dial("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(conn, `{"version":1,"verb":"admit","containerID":"abc","ifname":"eth0","network":"pods",
		"namespace":"shop","name":"web","addresses":["10.244.1.7"]}`)
	<-entered
	conn.Close()
	await.NoError(t, func() error {
		if calls := g.seen(); !slices.Equal(calls, []string{"admit web", "release web"}) {
			return fmt.Errorf("calls of the gate: %q", calls)
		}
		return nil
	})
	if all := a.Registry().All(); len(all) > 0 {
		t.Errorf("attachments %+v, want none", all)
	}
}

// TestReleaseCompletes: what ends is released although the plugin that says so does not wait: it says so once.
func TestReleaseCompletes(t *testing.T) {
	t.Parallel()
	g := newGate()
	r, err := cni.OpenRegistry(t.TempDir(), g, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, pod := range []string{"web", "db"} {
		a := cni.Attachment{Sandbox: request(attach.Admit, pod).Sandbox, Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.7")}}
		if err := r.Admit(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		release := func() error { return r.Release(gone, a.ID) }
		if pod == "db" {
			release = func() error { return r.Collect(gone, "pods", nil) }
		}
		if err := release(); err != nil {
			t.Errorf("release of %s: %v", pod, err)
		}
	}
	wantCalls(t, g, "admit web", "release web", "admit db", "release db")
}

// TestEndOfAgent: requests in progress get their answers, or are told, when the agent ends.
func TestEndOfAgent(t *testing.T) {
	t.Parallel()
	g := newGate()
	entered, open := make(chan struct{}, 2), make(chan struct{})
	g.admit = func(ctx context.Context, a cni.Attachment) error {
		entered <- struct{}{}
		if a.Name == "soon" {
			<-open
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	a := start(t, socketPath(t), g, nil)
	results := map[string]chan error{"soon": make(chan error, 1), "never": make(chan error, 1)}
	for name, result := range results {
		go func() {
			result <- attach.Call(soon(), a.socket, request(attach.Admit, name, "10.244.1."+strconv.Itoa(len(name))))
		}()
		<-entered
	}
	ended := make(chan struct{})
	go func() { a.stop(); close(ended) }()
	await.NoError(t, func() error {
		if err := attach.Call(soon(), a.socket, attach.Request{Verb: attach.Ready}); !errors.Is(err, attach.ErrUnreachable) {
			return fmt.Errorf("while it ends: %w", err)
		}
		return nil
	})
	close(open)
	if err := <-results["soon"]; err != nil {
		t.Errorf("Admit that completes: %v", err)
	}
	if err := <-results["never"]; err == nil || err.Error() != "the agent ends" {
		t.Errorf("Admit that does not complete: %v, want: the agent ends", err)
	}
	<-ended
}

func TestHundredAtOnce(t *testing.T) {
	t.Parallel()
	g := newGate()
	const n = 100
	var together sync.WaitGroup
	together.Add(n)
	g.admit = func(context.Context, cni.Attachment) error { // none is admitted before all have asked
		together.Done()
		together.Wait()
		return nil
	}
	a := start(t, socketPath(t), g, nil)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			if err := attach.Call(soon(), a.socket, request(attach.Admit, fmt.Sprint("web-", i), fmt.Sprintf("10.244.1.%d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if got := len(a.Registry().All()); got != n {
		t.Errorf("%d attachments, want %d", got, n)
	}
}

func TestSocket(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	a := start(t, socket, newGate(), nil)
	info, err := os.Lstat(socket)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("socket %v, %v, want mode 0600", info.Mode(), err)
	}
	if files, _ := filepath.Glob(socket + ".*"); len(files) > 0 {
		t.Errorf("left: %q", files)
	}
	a.stop()
	start(t, socket, newGate(), nil).call(t, attach.Request{Verb: attach.Ready}) // a stale socket is replaced
	file := filepath.Join(filepath.Dir(socket), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = cni.Listen(t.Context(), cni.Config{Socket: file, Gate: newGate(), Log: slog.New(slog.DiscardHandler)})
	if want := "listen on " + file + " (socket of the CNI plugin): there is a file that is not a socket"; err == nil || err.Error() != want {
		t.Errorf("Listen at a file: %v, want %s", err, want)
	}
	_, err = cni.Listen(t.Context(), cni.Config{Socket: socket + strings.Repeat("x", 120), Gate: newGate(), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.HasSuffix(err.Error(), "bind: invalid argument") {
		t.Errorf("Listen at a path that is too long: %v", err)
	}
}

// TestForeignClients: what is no request gets an error, or nothing, and the server goes on.
func TestForeignClients(t *testing.T) {
	t.Parallel()
	a := start(t, socketPath(t), newGate(), nil)
	for text, want := range map[string]string{
		"GET / HTTP/1.1\r\n\r\n":                         "request: invalid character 'G' looking for beginning of value",
		`{"version":2,"verb":"admit"}`:                   "the plugin speaks version 2 and the agent version 1: install the plugin again",
		`{"version":"1"}`:                                "request: json: cannot unmarshal string into Go struct field Request.version of type int",
		`{"valid":"` + strings.Repeat("x", 2<<20) + `"}`: "request: it is longer than 1048576 octets",
	} {
		conn, err := net.Dial("unix", a.socket)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(soon())
		go func() { _, _ = conn.Write([]byte(text)) }()
		got := make([]byte, 4096)
		n, err := conn.Read(got)
		if reply := fmt.Sprintf(`{"version":1,"error":%q}`, want); strings.TrimSpace(string(got[:n])) != reply {
			t.Errorf("reply to %.40q: %q, %v, want %s", text, got[:n], err, reply)
		}
		conn.Close()
	}
	a.call(t, attach.Request{Verb: attach.Ready})
}

// BenchmarkAdmit measures the agent's part of ADD, with a Gate that admits at once: a connection, the record and
// the reply.
func BenchmarkAdmit(b *testing.B) {
	socket := filepath.Join(b.TempDir(), "s")
	s, err := cni.Listen(b.Context(), cni.Config{Socket: socket, Gate: newGate(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	go s.Run(b.Context()) //nolint:errcheck // it returns nil
	for i := 0; b.Loop(); i++ {
		if err := attach.Call(soon(), socket, request(attach.Admit, fmt.Sprint("web-", i%250), fmt.Sprintf("10.244.1.%d", i%250))); err != nil {
			b.Fatal(err)
		}
	}
}
