package attack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/test/child"
)

// memoryLimit is that of the shipped manifests (deploy/kustomize/base), in octets.
const memoryLimit = 256 << 20

// Addresses of the server and of the upstream.
const (
	serverAddr   = "127.0.0.1:53"
	adminAddr    = "127.0.0.1:9153"
	tlsAddr      = "127.0.0.1:853"
	httpsAddr    = "127.0.0.1:443"
	upstreamAddr = "127.1.0.1:53"
	deadAddr     = "127.1.0.2:53"
	deadTLSAddr  = "127.1.0.2:853"
)

// contextOfBuild bounds the build of the program.
func contextOfBuild() (context.Context, context.CancelFunc) {
	const most = 10 * time.Minute
	return context.WithTimeout(context.Background(), most)
}

// server is a server under attack.
type server struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   string // file
	group string // the memory control group
	// manifests is the directory of a gateway's.
	manifests string
	ended     <-chan struct{}
	most      usage
	// unseen counts the requests to the admin server that failed.
	unseen atomic.Int32
}

// usage is what a process uses.
type usage struct {
	memory     int // resident, in octets
	goroutines int
	files      int
}

func (u usage) String() string {
	return fmt.Sprintf("%d MiB resident, %d goroutines, %d files", u.memory>>20, u.goroutines, u.files)
}

// start starts a server with the shipped memory limit, settings beside its addresses, and
// the names of a small cluster.
func start(t *testing.T, settings string) *server {
	t.Helper()
	s := launch(t, memoryLimit, "serve", fmt.Sprintf("manifests: %s\n%s", manifests(t, t.TempDir()), settings))
	s.awaitReady()
	return s
}

// launch starts the program in a control group with a memory limit, with a command and settings beside the
// address of the admin server.
func launch(t *testing.T, limit int, command, settings string) *server {
	t.Helper()
	return launchWith(t, limit, command, fmt.Sprintf("admin: {listen: '%s'}\n%s", adminAddr, settings))
}

// launchWith is launch with all settings.
func launchWith(t *testing.T, limit int, command, text string) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{t: t, log: filepath.Join(dir, "log")}
	s.group = memoryGroup(t, limit)
	config := filepath.Join(dir, "portolan.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	// The shell enters the group before it becomes the server.
	s.cmd = exec.Command("sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, s.group, portolan, command, "--config", config)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if s.ended, err = child.Start(s.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// memoryGroup makes a control group with a limit in octets, version 1 or 2, below that of this
// process.
func memoryGroup(t *testing.T, limit int) string {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	parent, file := "", ""
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case fields[1] == "memory":
			parent, file = "/sys/fs/cgroup/memory"+fields[2], "memory.limit_in_bytes"
		case fields[0] == "0" && parent == "":
			parent, file = "/sys/fs/cgroup"+fields[2], "memory.max"
		}
	}
	group := filepath.Join(parent, fmt.Sprintf("portolan-attack-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o700); err != nil {
		t.Skipf("no control group can be made here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Rmdir(group) })
	if err := os.WriteFile(filepath.Join(group, file), []byte(strconv.Itoa(limit)), 0o600); err != nil {
		t.Skipf("no memory limit can be set here: %v", err)
	}
	return group
}

// manifests writes a cluster of one Service.
func manifests(t *testing.T, dir string) (path string) {
	t.Helper()
	path = filepath.Join(dir, "manifests")
	const text = `apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.7, ports: [{port: 80}]}
`
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "shop.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	<-s.ended
	if s.t.Failed() {
		text, _ := os.ReadFile(s.log)
		s.t.Logf("log:\n%s", text[:min(len(text), 4000)])
	}
}

// awaitReady waits until the server is ready.
func (s *server) awaitReady() {
	s.t.Helper()
	const patience = 30 * time.Second
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		response, err := http.Get("http://" + adminAddr + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(end) || s.hasEnded() {
			s.t.Fatalf("the server is not ready: %v", err)
		}
	}
}

func (s *server) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// observe records what the server uses until ctx is done.
func (s *server) observe(ctx context.Context) {
	const interval = 50 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 0; ; n++ {
		s.most.memory = max(s.most.memory, s.resident())
		s.most.files = max(s.most.files, s.openFiles())
		if n%10 == 0 {
			s.most.goroutines = max(s.most.goroutines, s.goroutines())
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// resident returns the peak of the resident memory.
func (s *server) resident() int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kib << 10
		}
	}
	return 0
}

func (s *server) openFiles() int {
	files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
	return len(files)
}

var goroutines = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

func (s *server) goroutines() int {
	found := goroutines.FindSubmatch(s.metrics())
	if found == nil {
		s.unseen.Add(1)
		return 0
	}
	n, _ := strconv.Atoi(string(found[1]))
	return n
}

// metrics returns the server's metrics; nil if it does not answer.
func (s *server) metrics() []byte {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + adminAddr + "/metrics")
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return text
}

var refusal = regexp.MustCompile(`(?m)^portolan_budget_refused_total\{(.*)\} ([1-9].*)$`)

// refusals lists how many entries each account of the server refused or ended for others.
func (s *server) refusals() string {
	var all []string
	for _, found := range refusal.FindAllSubmatch(s.metrics(), -1) {
		all = append(all, fmt.Sprintf("%s: %s", found[1], found[2]))
	}
	return strings.Join(all, ", ")
}
