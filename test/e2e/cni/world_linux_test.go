package cni

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/policy/cni"
	"portolan.dev/portolan/test/e2e/pinned"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/program"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// gate is a Gate that a test controls.
type gate struct {
	admit func(context.Context, cni.Attachment) error // may be nil
	check error

	mu       sync.Mutex
	admitted map[attach.ID]cni.Attachment
}

func (g *gate) Admit(ctx context.Context, a cni.Attachment) error {
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

func (g *gate) Release(_ context.Context, ended []cni.Attachment) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range ended {
		delete(g.admitted, a.ID)
	}
	return nil
}

func (g *gate) Check(context.Context, cni.Attachment) error { return g.check }

func (g *gate) all() (names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.admitted {
		names = append(names, a.Name)
	}
	return names
}

// runtime is what a container runtime has: directories, and the network that it loaded.
type runtime struct {
	dir    string
	plugin string // the file of the plugin
	socket string
	cni    *libcni.CNIConfig
	list   *libcni.NetworkConfigList
}

// released is how the program is built for releases, with which it starts sooner than with a dynamic linker.
var released = program.Options{Env: []string{"CGO_ENABLED=0"}}

// TestMain builds the programs before tests run in namespaces without a network.
func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Short() {
		_, err := plugins(context.Background())
		if err == nil {
			_, err = program.Build(context.Background(), released)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// plugins builds programs of the CNI project, and returns their directory.
func plugins(ctx context.Context) (dir string, err error) {
	const module = "github.com/containernetworking/plugins"
	built, err := pinned.Set{
		Module: "portolan.dev/portolan/test/e2e",
		Name:   "cni-plugins-%s",
		Packages: map[string]string{
			"ptp": module + "/plugins/main/ptp", "bridge": module + "/plugins/main/bridge",
			"host-local": module + "/plugins/ipam/host-local",
		},
		Versions:    []string{module},
		Environment: []string{"CGO_ENABLED=0"},
	}.Prepare(ctx, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	return built.Dir, err
}

// newRuntime installs the plugin behind one of these types, and loads the network.
func newRuntime(tb testing.TB, kind, version string) *runtime {
	tb.Helper()
	dir, err := os.MkdirTemp("", "cni") //nolint:usetesting // the name of a test would make that of the socket too long
	must(tb, err)
	tb.Cleanup(func() { os.RemoveAll(dir) })
	bin, conf := filepath.Join(dir, "bin"), filepath.Join(dir, "net.d")
	must(tb, os.Mkdir(bin, 0o755))
	must(tb, os.Mkdir(conf, 0o755))
	built, err := plugins(tb.Context())
	must(tb, err)
	for _, name := range []string{"ptp", "bridge", "host-local"} {
		must(tb, os.Symlink(filepath.Join(built, name), filepath.Join(bin, name)))
	}
	network := fmt.Sprintf(`{"cniVersion": %q, "name": "pods", "plugins": [
	{"type": %q, "bridge": "cni0", "isGateway": true,
		"ipam": {"type": "host-local", "dataDir": %q, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
			"ranges": [[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd00:1::/112"}]]}}
]}`, version, kind, filepath.Join(dir, "ipam"))
	file := filepath.Join(conf, "10-pods.conflist")
	must(tb, os.WriteFile(file, []byte(network), 0o600))
	r := &runtime{dir: dir, plugin: filepath.Join(bin, "portolan"), socket: filepath.Join(dir, "run", "cni.sock")}
	portolan, err := program.Build(tb.Context(), released)
	must(tb, err)
	out, err := exec.CommandContext(
		tb.Context(), portolan, "cni", "install", "--bin-dir", bin, "--conf-dir", conf, "--cni-socket", r.socket,
	).CombinedOutput()
	if err != nil {
		tb.Fatalf("portolan cni install: %v\n%s", err, out)
	}
	r.list, err = libcni.ConfListFromFile(file)
	must(tb, err)
	// libcni makes this itself, but not for concurrent calls.
	starter := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}}
	r.cni = libcni.NewCNIConfigWithCacheDir([]string{bin}, filepath.Join(dir, "cache"), starter)
	return r
}

// serve starts the agent's part, and returns what ends it.
func (r *runtime) serve(tb testing.TB, g *gate, ready func() error) (stop func()) {
	tb.Helper()
	g.admitted = make(map[attach.ID]cni.Attachment)
	s, err := cni.Listen(tb.Context(), cni.Config{Socket: r.socket, Gate: g, Ready: ready, Log: slog.New(slog.DiscardHandler)})
	must(tb, err)
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(stop)
	return stop
}

// pod is a Pod's sandbox.
type pod struct {
	name string
	net  *namespace.Network
}

func newPod(tb testing.TB, name string) pod {
	tb.Helper()
	n, err := namespace.New()
	must(tb, err)
	tb.Cleanup(func() { n.Close() })
	return pod{name, n}
}

// conf is what the runtime passes for a Pod, as containerd does.
func (p pod) conf() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: "sandbox-of-" + p.name, NetNS: p.net.Path(), IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", "shop"},
			{"K8S_POD_NAME", p.name},
			{"K8S_POD_INFRA_CONTAINER_ID", "sandbox-of-" + p.name},
			{"K8S_POD_UID", "uid-of-" + p.name},
		},
	}
}

// add starts a Pod, and returns its addresses.
func (r *runtime) add(ctx context.Context, p pod) (addrs []netip.Addr, err error) {
	result, err := r.cni.AddNetworkList(ctx, r.list, p.conf())
	if err != nil {
		return nil, err
	}
	if result.Version() != r.list.CNIVersion {
		return nil, fmt.Errorf("the result has version %s, want %s", result.Version(), r.list.CNIVersion)
	}
	current, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, err
	}
	if len(current.Interfaces) < 2 || len(current.Routes) != 2 {
		return nil, errors.New("the result is not that of the plugin before")
	}
	for _, ip := range current.IPs {
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		addrs = append(addrs, addr.Unmap())
	}
	return addrs, nil
}

// wantCode checks an error of the plugin.
func wantCode(tb testing.TB, what string, err error, code uint, text string) {
	tb.Helper()
	e, ok := errors.AsType[*types.Error](err)
	if !ok || e.Code != code || !strings.Contains(e.Msg, text) || strings.Contains(e.Msg, "\n") {
		tb.Errorf("%s: %v (%T), want code %d, %q", what, err, err, code, text)
	}
}
