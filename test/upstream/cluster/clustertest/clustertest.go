//go:build linux

// Package clustertest has the main function of tests on clusters of package cluster.
package clustertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"portolan.dev/portolan/test/e2e/pinned"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/upstream/cluster"
	"portolan.dev/portolan/test/upstream/node"
)

// Main runs the tests of a package in a network namespace of their own, where cluster.Prepared has the
// programs, and exits. Without root, with -short, and where the programs can't be built (unless the environment
// variable CI is set) it runs none.
func Main(m *testing.M) {
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
		status, err := cluster.Isolate(context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
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
