package controlplane

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"portolan.dev/portolan/test/e2e/pinned"
)

// The programs of a control plane.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	kubeProxy         = "kube-proxy"
)

// Binaries are a control plane's programs.
type Binaries struct {
	programs pinned.Programs
	// Version is that of Kubernetes, without v.
	Version string
}

func (b Binaries) path(program string) string { return b.programs.Path(program) }

// KubeProxy is the file of the kube-proxy.
func (b Binaries) KubeProxy() string { return b.path(kubeProxy) }

// ErrBuild is the error that Prepare wraps, such as for no network or no space.
var ErrBuild = pinned.ErrBuild

// Prepare builds the programs that the user's cache directory does not hold in these
// versions. The first time takes about seven minutes on two cores. Several processes
// may call it at once.
func Prepare(ctx context.Context, log *slog.Logger) (Binaries, error) {
	programs, err := pinned.Set{
		Module: "portolan.dev/portolan/test/e2e",
		Name:   "kubernetes-%s-etcd-%s",
		Packages: map[string]string{
			etcd:              "go.etcd.io/etcd/server/v3",
			apiServer:         "k8s.io/kubernetes/cmd/kube-apiserver",
			controllerManager: "k8s.io/kubernetes/cmd/kube-controller-manager",
			kubeProxy:         "k8s.io/kubernetes/cmd/kube-proxy",
		},
		Versions:    []string{"k8s.io/kubernetes", "go.etcd.io/etcd/server/v3"},
		Environment: []string{"CGO_ENABLED=0"}, // as releases are
	}.Prepare(ctx, log)
	if err != nil {
		return Binaries{}, fmt.Errorf("control plane: %w", err)
	}
	return Binaries{programs, strings.TrimPrefix(programs.Version, "v")}, nil
}
