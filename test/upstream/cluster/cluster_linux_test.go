package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"portolan.dev/portolan/test/e2e/namespace"
	"portolan.dev/portolan/test/e2e/pinned"
	"portolan.dev/portolan/test/upstream/node"
	"portolan.dev/portolan/test/upstream/suite"
)

// TestMain runs the tests in a network namespace of their own.
func TestMain(m *testing.M) {
	node.Main()
	flag.Parse()
	switch {
	case namespace.Isolated():
		os.Exit(m.Run())
	case testing.Short():
		fmt.Println("skipped: it starts a cluster")
	case os.Getuid() != 0:
		fmt.Println("skipped: network namespaces need root")
	default:
		status, err := Isolate(context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
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

// TestSpecs runs two of the specs that cmd/conformance runs, on two nodes: one of Services, and one
// that expects an error.
func TestSpecs(t *testing.T) {
	programs, err := Prepared()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(t.Context(), Config{Programs: programs, Proxy: Portolan, Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	s := suite.Suite{
		Program: programs.E2E, Kubeconfig: c.Kubeconfig(), Kubectl: programs.Kubectl, Dir: t.TempDir(),
	}
	specs, err := s.List(t.Context(), "Services should (serve a basic endpoint|be rejected when no endpoints)")
	if err != nil {
		t.Fatal(err)
	}
	if len(specs) != 2 {
		t.Fatalf("specs %q, want two", specs)
	}
	for _, spec := range specs {
		if r, err := s.Run(t.Context(), spec); err != nil || r.State != suite.Passed {
			t.Errorf("%s: %s: %s, %v", spec, r.State, r.Failure+r.Skipped, err)
		}
	}
}
