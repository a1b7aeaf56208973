package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/child"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// TestWith: a namespace is found by an address that a process in it has, and no thread stays in it.
func TestWith(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	const text = "198.18.207.33"
	addr := netip.MustParseAddr(text)
	if _, err := With(addr); !errors.Is(err, ErrNotFound) {
		t.Fatalf("With(%s) before = %v, want ErrNotFound", addr, err)
	}
	n := namespacetest.New(t)
	namespacetest.Do(t, n, func() { namespacetest.SetUp(t, "lo", netip.PrefixFrom(addr, 32)) })
	start(t, n)
	var found []*Namespace
	await.NoError(t, func() (err error) {
		found, err = With(addr)
		return err
	})
	if len(found) != 1 {
		t.Fatalf("With(%s) = %d namespaces, want 1", addr, len(found))
	}
	defer found[0].Close()
	has := false
	if err := found[0].Do(func() (err error) { has, err = hasAddress(addr); return err }); err != nil || !has {
		t.Errorf("Do is in the namespace of %s: %t, %v", addr, has, err)
	}
	await.NoError(t, func() error { return noneIn(found[0]) }) // those of the test itself are about to end
}

// noneIn returns an error if a thread of this process is in a namespace.
func noneIn(n *Namespace) error {
	it, err := n.File().Stat()
	if err != nil {
		return err
	}
	files, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		return err
	}
	for _, file := range files {
		if in, err := os.Stat(file); err == nil && os.SameFile(in, it) {
			return fmt.Errorf("thread %s is in the namespace", file)
		}
	}
	return nil
}

// start starts a program in a namespace that ends with the test.
func start(t *testing.T, n *namespace.Network) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "nsenter", "--net="+n.Path(), "sleep", "60")
	ended, err := child.Start(cmd)
	if err != nil {
		t.Skipf("nsenter, of util-linux, is needed: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
}
