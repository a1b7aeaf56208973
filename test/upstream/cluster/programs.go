//go:build linux

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/pinned"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/program"
	"portolan.dev/portolan/test/upstream/image"
)

const module = "portolan.dev/portolan/test/upstream"

// Programs are the files of what a cluster and its tests consist of.
type Programs struct {
	Kubelet, Scheduler, Kubectl, KubeProxy string
	Portolan                               string
	// E2E is the program of package cmd/e2e.
	E2E    string
	Images image.Store
}

// programsVariable is the environment variable with the programs, in JSON.
const programsVariable = "PORTOLAN_TEST_PROGRAMS"

// Isolate builds the programs, and runs this one again as namespace.Isolate does; Prepared returns
// them there. Programs of Kubernetes stay in the user's cache directory; the first time takes about
// ten minutes on two cores. An error about builds is pinned.ErrBuild.
func Isolate(ctx context.Context, log *slog.Logger) (status int, err error) {
	programs, err := prepare(ctx, log)
	if err != nil {
		return 1, err
	}
	text, err := json.Marshal(programs)
	if err != nil {
		return 1, err
	}
	return namespace.Isolate(programsVariable + "=" + string(text))
}

// Prepared returns what Isolate built.
func Prepared() (*Programs, error) {
	p := new(Programs)
	if err := json.Unmarshal([]byte(os.Getenv(programsVariable)), p); err != nil {
		return nil, fmt.Errorf("%s: %w", programsVariable, err)
	}
	return p, nil
}

func prepare(ctx context.Context, log *slog.Logger) (*Programs, error) {
	control, err := controlplane.Prepare(ctx, log)
	if err != nil {
		return nil, err
	}
	const kubelet, scheduler, kubectl = "kubelet", "kube-scheduler", "kubectl"
	built, err := pinned.Set{
		Module: module,
		Name:   "node-%s",
		Packages: map[string]string{
			kubelet:   "k8s.io/kubernetes/cmd/kubelet",
			scheduler: "k8s.io/kubernetes/cmd/kube-scheduler",
			kubectl:   "k8s.io/kubernetes/cmd/kubectl",
		},
		Versions:    []string{"k8s.io/kubernetes"},
		Environment: []string{"CGO_ENABLED=0"},
	}.Prepare(ctx, log)
	if err != nil {
		return nil, err
	}
	p := &Programs{
		Kubelet: built.Path(kubelet), Scheduler: built.Path(scheduler),
		Kubectl: built.Path(kubectl), KubeProxy: control.KubeProxy(),
	}
	if p.Images, err = image.Prepare(ctx, log); err != nil {
		return nil, err
	}
	if p.Portolan, err = program.Build(ctx, program.Options{}); err != nil {
		return nil, err
	}
	agent := "/" + filepath.Base(p.Portolan)
	p.Images[portolanImage] = image.Image{Name: portolanImage, Entrypoint: []string{agent}, Program: p.Portolan}
	const e2e, traffic = "e2e", "traffic"
	p.E2E = built.Path(e2e)
	p.Images[traffic] = image.Image{
		Name: traffic, Entrypoint: []string{"/" + traffic}, Program: built.Path(traffic),
	}
	return p, errors.Join(Build(ctx, e2e, p.E2E), Build(ctx, traffic, built.Path(traffic)))
}

// Build builds a program of this module, that of package cmd/name, unless the file is current.
func Build(ctx context.Context, name, file string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, module+"/cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build of %s: %w\n%s", name, err, out)
	}
	return nil
}
