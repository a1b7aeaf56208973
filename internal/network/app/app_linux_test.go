package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// TestOneAgent: of two agents of a node, with sockets in different directories, one makes the network, and the other
// one when that has ended.
func TestOneAgent(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	agent := func() *Network {
		settings := config.Default()
		settings.Network.CNI.Socket = filepath.Join(t.TempDir(), "cni.sock")
		n, err := New(Config{Settings: settings, Store: cluster.NewStore(), Node: "n1", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first, second := agent(), agent()
	held, err := first.acquireNode(t.Context())
	if held == nil || err != nil {
		t.Fatalf("the first agent: %v, %v", held, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if other, err := second.acquireNode(ended); other != nil || err != nil {
		t.Errorf("the second agent, which ends before the first: %v, %v, want nil", other, err)
	}
	const want = "another process makes the network of this node"
	if missing, remarks := second.Ready(); !strings.Contains(fmt.Sprint(missing, remarks), want) {
		t.Errorf("the second agent is ready but for %q, %q, want %q", missing, remarks, want)
	}
	confDir := t.TempDir()
	conflist := filepath.Join(confDir, "05-portolan.conflist")
	if err := os.WriteFile(conflist, []byte(`{"plugins": [{"type": "portolan"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := config.Default().Network
	settings.CNI.ConfDir, settings.CNI.Socket = confDir, filepath.Join(t.TempDir(), "cni.sock")
	if removed, err := Remove(settings); !errors.Is(err, errRunning) || len(removed) > 0 {
		t.Errorf("Remove beside an agent = %v, %v, want %v", removed, err, errRunning)
	}
	if _, err := os.Stat(conflist); err != nil {
		t.Errorf("beside an agent: %v", err)
	}
	held.Close()
	if held, err = second.acquireNode(t.Context()); held == nil || err != nil {
		t.Fatalf("the second agent after the first: %v, %v", held, err)
	}
	held.Close()
}
