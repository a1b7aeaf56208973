//go:build linux

package world

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"portolan.dev/portolan/test/conformance/pods"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/pinned"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/program"
)

// The conformance suite's module, in which the program of its Pods is, too.
const (
	suite = "sigs.k8s.io/gateway-api/conformance"
	echo  = "echo-basic"
)

// programs are the files that are run.
type programs struct{ Portolan, Echo, Nameserver string }

// programsVariable is the environment variable with the programs, in JSON.
const programsVariable = "PORTOLAN_TEST_PROGRAMS"

// Main runs the tests of a package in a network namespace of their own, where Start finds the programs, and exits.
// The first time builds those of Kubernetes, which takes about seven minutes on two cores. Without root, with
// -short, and where the programs can't be built (unless the environment variable CI is set) it runs none.
func Main(m *testing.M) {
	pods.Main()
	flag.Parse()
	switch {
	case namespace.Isolated():
		os.Exit(m.Run())
	case testing.Short():
		fmt.Println("skipped: it starts a control plane")
	case os.Getuid() != 0:
		fmt.Println("skipped: network namespaces need root")
	default:
		status, err := isolate(context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
		if errors.Is(err, pinned.ErrBuild) && os.Getenv("CI") == "" {
			fmt.Println("skipped:", err)
			return
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(status)
	}
}

// isolate builds the programs, as long as there is a network, and runs this one again.
func isolate(ctx context.Context, log *slog.Logger) (status int, err error) {
	if _, err := controlplane.Prepare(ctx, log); err != nil {
		return 1, err
	}
	built, err := pinned.Set{
		Module:      "portolan.dev/portolan/test/conformance",
		Name:        "gateway-api-%s",
		Packages:    map[string]string{echo: suite + "/" + echo},
		Versions:    []string{suite},
		Environment: []string{"CGO_ENABLED=0"}, // it runs in a root of its own
	}.Prepare(ctx, log)
	if err != nil {
		return 1, err
	}
	p := programs{Echo: built.Path(echo)}
	if p.Portolan, err = program.Build(ctx, program.Options{}); err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "nameserver")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if p.Nameserver, err = buildNameserver(ctx, dir); err != nil {
		return 1, err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return 1, err
	}
	return namespace.Isolate(programsVariable + "=" + string(text))
}

// buildNameserver builds the name server of the suite's Pods into a directory.
func buildNameserver(ctx context.Context, dir string) (file string, err error) {
	file = filepath.Join(dir, "nameserver")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", file, "portolan.dev/portolan/test/conformance/nameserver")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // it runs in a root of its own
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the name server: %w: %s", err, out)
	}
	return file, nil
}

// prepared returns what isolate built.
func prepared() (p programs, err error) {
	if err := json.Unmarshal([]byte(os.Getenv(programsVariable)), &p); err != nil {
		return p, fmt.Errorf("%s: %w", programsVariable, err)
	}
	return p, nil
}

// Portolan is the file of the program that is tested.
func (w *World) Portolan() string { return w.programs.Portolan }
