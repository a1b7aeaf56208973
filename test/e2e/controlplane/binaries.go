package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// module is the module that pins the versions of the programs.
const module = "portolan.dev/portolan/test/e2e"

// The programs of a control plane.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	kubeProxy         = "kube-proxy"
)

// Binaries are a control plane's programs.
type Binaries struct {
	dir string
	// Version is that of Kubernetes, without v.
	Version string
}

func (b Binaries) path(program string) string { return filepath.Join(b.dir, program) }

// KubeProxy is the file of the kube-proxy.
func (b Binaries) KubeProxy() string { return b.path(kubeProxy) }

// ErrBuild is the error that Prepare wraps, such as for no network or no space.
var ErrBuild = errors.New("control plane: its programs can't be built")

// Prepare builds the programs that the user's cache directory does not hold in these
// versions. The first time takes about seven minutes on two cores. Several processes
// may call it at once.
func Prepare(ctx context.Context, log *slog.Logger) (Binaries, error) {
	b, err := newBuilder(ctx)
	if err == nil {
		err = b.buildMissing(ctx, log)
	}
	if err != nil {
		return Binaries{}, fmt.Errorf("%w: %w", ErrBuild, err)
	}
	return Binaries{b.out, strings.TrimPrefix(b.kubernetes, "v")}, nil
}

// builder builds the versions that the module requires.
type builder struct {
	dir        string // of the module
	out        string
	kubernetes string // version
}

func newBuilder(ctx context.Context) (*builder, error) {
	b := new(builder)
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	if b.dir, err = runGo(ctx, ".", "list", "-m", "-f", "{{.Dir}}", module); err != nil {
		return nil, err
	}
	versions, err := runGo(ctx, b.dir, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes",
		"go.etcd.io/etcd/server/v3")
	if err != nil {
		return nil, err
	}
	goVersion, err := runGo(ctx, b.dir, "env", "GOVERSION")
	if err != nil {
		return nil, err
	}
	kubernetes, etcd, _ := strings.Cut(versions, "\n")
	b.kubernetes = kubernetes
	b.out = filepath.Join(cache, "portolan", fmt.Sprintf("kubernetes-%s-etcd-%s-%s", kubernetes, etcd, goVersion))
	return b, nil
}

func (b *builder) packages() map[string]string {
	return map[string]string{
		etcd:              "go.etcd.io/etcd/server/v3",
		apiServer:         "k8s.io/kubernetes/cmd/kube-apiserver",
		controllerManager: "k8s.io/kubernetes/cmd/kube-controller-manager",
		kubeProxy:         "k8s.io/kubernetes/cmd/kube-proxy",
	}
}

func (b *builder) buildMissing(ctx context.Context, log *slog.Logger) error {
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(b.out, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	for program, pkg := range b.packages() {
		if _, err := os.Stat(filepath.Join(b.out, program)); err == nil {
			continue
		}
		log.Warn("building a program of the control plane; all of them take about 7 minutes, once", "program", program,
			"into", b.out)
		if err := b.build(ctx, program, pkg); err != nil {
			return err
		}
	}
	return nil
}

// build builds one program under another name and renames it, so that a file with the
// program's name is always complete.
func (b *builder) build(ctx context.Context, program, pkg string) error {
	part := filepath.Join(b.out, program+".part")
	defer os.Remove(part)
	if _, err := runGo(ctx, b.dir, "build", "-trimpath", "-ldflags="+b.linkerFlags(), "-o", part, pkg); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(b.out, program))
}

// linkerFlags tells the programs their version: an API server that knows none
// answers as version 0.0.
func (b *builder) linkerFlags() string {
	numbers := append(strings.Split(strings.TrimPrefix(b.kubernetes, "v"), "."), "", "")
	const version = "-X k8s.io/component-base/version."
	return fmt.Sprintf("-s -w %[1]sgitVersion=%[2]s %[1]sgitMajor=%[3]s %[1]sgitMinor=%[4]s", version, b.kubernetes,
		numbers[0], numbers[1])
}

// runGo runs the go command and returns its output without the last line's end.
func runGo(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}

// lock waits until this process alone has the file's lock.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
