package prometheus

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/program"
)

// inside is the environment variable that holds the path of the program for the process in the network namespace.
const inside = "PORTOLAN_PROMETHEUS"

// TestMain runs the tests in a network namespace of their own, in which only loopback is.
func TestMain(m *testing.M) {
	if file := os.Getenv(inside); file != "" {
		os.Exit(run(m, file))
	}
	if why := missing(); why != "" {
		fmt.Println("skipped: " + why)
		os.Exit(0)
	}
	const patience = 10 * time.Minute
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	file, err := program.Build(ctx, program.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status, err := namespace.Isolate(inside + "=" + file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// missing says what the tests need that is not there, or nothing.
func missing() string {
	if os.Getuid() != 0 {
		return "network namespaces need root"
	}
	for _, name := range []string{"prometheus", "promtool", "ip", "nft", "dig", "curl"} {
		if _, err := exec.LookPath(name); err != nil {
			return "there is no " + name + " (Debian: prometheus, iproute2, nftables, bind9-dnsutils, curl)"
		}
	}
	return ""
}

// run runs the tests with portolan in the search path of programs, as in the runbooks.
func run(m *testing.M, file string) int {
	dir, err := os.MkdirTemp("", "portolan-bin")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Symlink(file, filepath.Join(dir, "portolan"))
	}
	if err == nil {
		err = os.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	}
	if err == nil {
		err = namespace.IP("link set lo up")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
