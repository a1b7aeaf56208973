package cri

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/upstream/image"
)

// TestMain runs the tests in a network namespace of their own.
func TestMain(m *testing.M) {
	Main()
	switch {
	case namespace.Isolated():
		os.Exit(m.Run())
	case os.Getuid() != 0:
		fmt.Println("skipped: a network namespace of its own needs root")
	default:
		status, err := namespace.Isolate()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(status)
	}
}

// client is a running server and its client.
type client struct {
	runtimeapi.RuntimeServiceClient
	*testing.T
	dir string
}

func newClient(t *testing.T) *client {
	t.Helper()
	return newClientWith(t, nil)
}

func newClientWith(t *testing.T, plugin *Plugin) *client {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	server, err := New(Config{
		Socket: socket, Streams: netip.MustParseAddrPort("127.0.0.1:10350"), Dir: dir,
		Images:   image.Store{"shell": {Name: "shell", Entrypoint: []string{"sh", "-c"}}},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10:244:1::/64")},
		Plugin:   plugin,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := namespace.IP("link set lo up"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(t.Context()) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	r := &client{runtimeapi.NewRuntimeServiceClient(conn), t, dir}
	await.NoError(t, func() error {
		_, err := r.Version(t.Context(), &runtimeapi.VersionRequest{})
		return err
	})
	return r
}

func (r *client) config(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name}, Hostname: name,
		LogDirectory: filepath.Join(r.dir, "logs-"+name),
		DnsConfig:    &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}, Searches: []string{"svc.cluster.local"}},
		Linux:        &runtimeapi.LinuxPodSandboxConfig{Sysctls: map[string]string{"net.ipv4.tcp_syncookies": "0"}},
	}
}

// sandbox runs a Pod and returns its addresses.
func (r *client) sandbox(name string) (config *runtimeapi.PodSandboxConfig, id string, addresses []string) {
	r.Helper()
	config = r.config(name)
	made, err := r.RunPodSandbox(r.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		r.Fatal(err)
	}
	got, err := r.PodSandboxStatus(r.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: made.GetPodSandboxId()})
	if err != nil {
		r.Fatal(err)
	}
	addresses = []string{got.GetStatus().GetNetwork().GetIp()}
	for _, more := range got.GetStatus().GetNetwork().GetAdditionalIps() {
		addresses = append(addresses, more.GetIp())
	}
	return config, made.GetPodSandboxId(), addresses
}

// container starts a shell script in a Pod.
func (r *client) container(pod string, in *runtimeapi.PodSandboxConfig, script string) (id string) {
	r.Helper()
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "registry.example/shell:1"},
		Args: []string{script}, LogPath: "c/0.log", Envs: []*runtimeapi.KeyValue{{Key: "WORD", Value: []byte("word")}},
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			RunAsUser: &runtimeapi.Int64Value{Value: 1000}, RunAsGroup: &runtimeapi.Int64Value{Value: 1001},
		}},
	}
	made, err := r.CreateContainer(r.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: pod, Config: config, SandboxConfig: in})
	if err != nil {
		r.Fatal(err)
	}
	if _, err := r.StartContainer(r.Context(), &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()}); err != nil {
		r.Fatal(err)
	}
	return made.GetContainerId()
}

func (r *client) status(container string) *runtimeapi.ContainerStatus {
	r.Helper()
	got, err := r.ContainerStatus(r.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: container})
	if err != nil {
		r.Fatal(err)
	}
	return got.GetStatus()
}

func (r *client) exec(container string, args ...string) (stdout string, status int32) {
	r.Helper()
	got, err := r.ExecSync(r.Context(), &runtimeapi.ExecSyncRequest{ContainerId: container, Cmd: args})
	if err != nil {
		r.Fatal(err)
	}
	return string(got.GetStdout()), got.GetExitCode()
}

func TestContainer(t *testing.T) {
	r := newClient(t)
	config, pod, addresses := r.sandbox("pod-1")
	if got, want := strings.Join(addresses, " "), "10.244.1.1 fd00:10:244:1::1"; got != want {
		t.Errorf("the Pod's addresses are %s, want %s", got, want)
	}
	c := r.container(pod, config, "echo $WORD; trap 'exit 7' TERM; while :; do sleep 0.1; done")
	log := filepath.Join(config.GetLogDirectory(), "c/0.log")
	await.NoError(t, func() error {
		text, err := os.ReadFile(log)
		if err == nil && !strings.HasSuffix(string(text), " stdout F word\n") {
			err = fmt.Errorf("the log is %q", text)
		}
		return err
	})
	for command, want := range map[string]string{
		"cat /etc/resolv.conf":                     "nameserver 10.96.0.10\nsearch svc.cluster.local\n",
		"hostname":                                 "pod-1\n",
		"id -u; id -g":                             "1000\n1001\n",
		"echo $WORD":                               "word\n",
		"cat /proc/sys/net/ipv4/tcp_syncookies":    "0\n",
		"test -d /proc/1/fd -a $$ -gt 1; echo $?":  "0\n",
		"echo ok >/tmp/file && cat /tmp/file":      "ok\n",
		"touch /usr/file 2>/dev/null || echo none": "none\n",
	} {
		if got, status := r.exec(c, "sh", "-c", command); got != want || status != 0 {
			t.Errorf("exec %s: %q, status %d, want %q", command, got, status, want)
		}
	}
	if _, status := r.exec(c, "sh", "-c", "exit 3"); status != 3 {
		t.Errorf("exec exit 3: status %d", status)
	}
	if s := r.status(c); s.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("it is %s before its end", s.GetState())
	}
	if _, err := r.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: c, Timeout: 60}); err != nil {
		t.Fatal(err)
	}
	s := r.status(c)
	if s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetExitCode() != 7 || s.GetReason() != "Error" {
		t.Errorf("after its end, it is %s with status %d (%s), want 7 (Error)", s.GetState(), s.GetExitCode(), s.GetReason())
	}
}

func TestProgramThatIsMissing(t *testing.T) {
	r := newClient(t)
	config, pod, _ := r.sandbox("pod-1")
	made, err := r.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: pod, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "shell"},
			Command: []string{"no-such-program"}, LogPath: "c.log",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()}); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, func() error {
		s := r.status(made.GetContainerId())
		if s.GetReason() != "StartError" || !strings.Contains(s.GetMessage(), "no-such-program") {
			return fmt.Errorf("reason %q, message %q", s.GetReason(), s.GetMessage())
		}
		return nil
	})
}

// TestNetwork connects from the node, and from a Pod to another one, with both families. After a
// Pod is gone, nothing of its network is left.
func TestNetwork(t *testing.T) {
	for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	r := newClient(t)
	serving, serverPod, addresses := r.sandbox("server")
	r.container(serverPod, serving, "while :; do echo hello | nc -l -p 80 -q 0; done & while :; do echo hello | nc -6 -l -p 81 -q 0; done")
	asking, clientPod, _ := r.sandbox("client")
	c := r.container(clientPod, asking, "sleep 1000")
	for i, port := range []string{"80", "81"} {
		await.NoError(t, func() error {
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(addresses[i], port), time.Second)
			if err != nil {
				return err
			}
			defer conn.Close()
			if got, err := io.ReadAll(conn); err != nil || string(got) != "hello\n" {
				return fmt.Errorf("read %q: %w", got, err)
			}
			return nil
		})
		await.NoError(t, func() error {
			if got, _ := r.exec(c, "nc", "-w", "2", addresses[i], port); got != "hello\n" {
				return fmt.Errorf("from a Pod: %q", got)
			}
			return nil
		})
	}
	for _, pod := range []string{serverPod, clientPod} {
		if _, err := r.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod}); err != nil {
			t.Fatal(err)
		}
	}
	links, err := net.Interfaces()
	if err != nil || len(links) != 1 {
		t.Errorf("links after the end: %v, %v", links, err)
	}
}

// TestPlugin: the plugin is called when a Pod has its network, and when it ends. A Pod that it refuses has none.
func TestPlugin(t *testing.T) {
	dir := t.TempDir()
	calls, program := filepath.Join(dir, "calls"), filepath.Join(dir, "plugin")
	const script = `#!/bin/sh
[ "$CNI_COMMAND" = DEL ] || [ -e "$CNI_NETNS" ] && echo "$CNI_COMMAND $CNI_ARGS $(/usr/bin/cat)" >>%s
case $CNI_ARGS in *K8S_POD_NAME=refused*) [ "$CNI_COMMAND" = DEL ] || { echo no; exit 1; } ;; esac
`
	if err := os.WriteFile(program, fmt.Appendf(nil, script, calls), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newClientWith(t, &Plugin{Program: program, Configuration: map[string]any{"key": "value"}})
	_, pod, _ := r.sandbox("admitted")
	if _, err := r.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod}); err != nil {
		t.Fatal(err)
	}
	_, err := r.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: r.config("refused")})
	if err == nil || !strings.Contains(err.Error(), "ADD of the CNI plugin: exit status 1: no") {
		t.Errorf("a Pod that is refused: %v", err)
	}
	if links, err := net.Interfaces(); err != nil || len(links) != 1 {
		t.Errorf("links of a Pod that was refused: %v, %v", links, err)
	}
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	want := [][]string{
		{"ADD ", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=admitted;", `"10.244.1.1/32"`, `"fd00:10:244:1::1/128"`, `"key":"value"`},
		{"DEL ", "K8S_POD_NAME=admitted;"},
		{"ADD ", "K8S_POD_NAME=refused;", `"10.244.1.2/32"`},
		{"DEL ", "K8S_POD_NAME=refused;"},
	}
	if len(lines) != len(want) {
		t.Fatalf("calls:\n%s\nwant %d", text, len(want))
	}
	for i, parts := range want {
		for _, part := range parts {
			if !strings.Contains(lines[i], part) {
				t.Errorf("call %d is %s, without %s", i+1, lines[i], part)
			}
		}
	}
}
