package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/freeport"
)

// TestServes runs the server with the config.yaml that is shipped and with no
// right but those of the ClusterRole, against a real API server: it must become
// ready, tell the metrics of operate.md, and end as it is told.
func TestServes(t *testing.T) { //nolint:tparallel // calls of a ControlPlane must not be concurrent
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a control plane, which is built first where it never was")
	}
	control := startControlPlane(t.Context(), t)
	bin := buildBinary(t)
	for name, all := range map[string]objects{
		"kustomize/base":       kustomized(t, "base"),
		"helm, pods: disabled": rendered(t, valuesOf(t, "config: {dns: {pods: disabled}}")),
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, control, bin, all)
			s.awaitReady(t)
			changeEndpoints(t, control, name)
			s.query(t)
			if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			s.awaitMetrics(t, documentedMetrics(t, serverMetrics(readFile(t, "../../docs/operate.md"))))
			s.stop(t)
			if log := s.log.String(); strings.Contains(log, "forbidden") {
				t.Errorf("a right is missing:\n%s", log)
			}
		})
	}
}

// server is a process that serves.
type server struct {
	cmd        *exec.Cmd
	log        *buffer
	dns, admin string
}

func startServer(t *testing.T, control *controlplane.ControlPlane, bin string, all objects) *server {
	t.Helper()
	dir := t.TempDir()
	rules := as[rbacv1.ClusterRole](t, all, "ClusterRole").Rules
	user, err := control.NewUser(t.Context(), "portolan", rules...)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(configText(t, all)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{log: new(buffer), dns: freeport.Loopback(t).String(), admin: freeport.Loopback(t).String()}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s.cmd = exec.CommandContext(ctx, bin, "serve", "--config", config, "--kubeconfig", user.Kubeconfig,
		"--snapshot", filepath.Join(dir, "snapshot"), "--listen", s.dns, "--admin", s.admin)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = s.cmd.Wait() // it has ended, or was killed just now
		if t.Failed() {
			t.Logf("the server said:\n%s", s.log)
		}
	})
	return s
}

// get gives the status and the body of a page of the admin server.
func (s *server) get(path string) (status int, body string) {
	response, err := http.Get("http://" + s.admin + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

func (s *server) awaitReady(t *testing.T) {
	t.Helper()
	awaitNothing(t, func() string {
		if status, body := s.get("/readyz"); status != http.StatusOK {
			return "/readyz: " + body
		}
		return ""
	})
	if status, body := s.get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d, %s", status, body)
	}
}

// changeEndpoints makes a Service's endpoints, as the control plane does: with
// the time at which its Pods changed.
func changeEndpoints(t *testing.T, control *controlplane.ControlPlane, name string) {
	t.Helper()
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, name)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if _, err := control.Client().CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{discoveryv1.LabelServiceName: name},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().Format(time.RFC3339Nano)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
	}
	if _, err := control.Client().DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// query asks for the Service that every cluster has and for one that none has,
// and sends what is no query.
func (s *server) query(t *testing.T) {
	t.Helper()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.dns)
	}}
	awaitNothing(t, func() string {
		for _, name := range []string{"kubernetes.default.svc.cluster.local.", "kubernetes.search.default.cluster.local.ap.k8s.io."} {
			addrs, err := resolver.LookupHost(t.Context(), name)
			if err != nil || len(addrs) == 0 {
				return fmt.Sprintf("lookup of the Service kubernetes, %s: %v, %v", name, addrs, err)
			}
		}
		return ""
	})
	if addrs, err := resolver.LookupHost(t.Context(), "nowhere.default.svc.cluster.local."); err == nil {
		t.Errorf("lookup of a Service that is not there: %v", addrs)
	}
	conn, err := net.Dial("udp", s.dns)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
}

// awaitMetrics waits until /metrics has exactly the metrics named, beside those
// of Go and of the process.
func (s *server) awaitMetrics(t *testing.T, names []string) {
	t.Helper()
	slices.Sort(names)
	awaitNothing(t, func() string {
		_, body := s.get("/metrics")
		var got []string
		for _, m := range metricType.FindAllStringSubmatch(body, -1) {
			got = append(got, m[1])
		}
		slices.Sort(got)
		if diff := cmp.Diff(names, got); diff != "" {
			return "metrics (-operate.md +/metrics):\n" + diff
		}
		return ""
	})
}

var metricType = regexp.MustCompile(`(?m)^# TYPE (portolan_\w+) `)

// stop asks the server to end, as the kubelet does.
func (s *server) stop(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	awaitNothing(t, func() string {
		if status, _ := s.get("/readyz"); status == http.StatusOK {
			return "ready after SIGTERM"
		}
		return ""
	})
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// awaitNothing waits until wrong describes no failure.
func awaitNothing(t *testing.T, wrong func() string) {
	t.Helper()
	await.NoError(t, func() error {
		if failure := wrong(); failure != "" {
			return errors.New(failure)
		}
		return nil
	})
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
