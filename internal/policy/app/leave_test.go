package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cni/conflist"
	"portolan.dev/portolan/internal/policy/settings"
)

// TestLeave verifies what an agent that ends removes from the node, by what the API server says of its DaemonSet.
func TestLeave(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		removed       bool
		err           error
		table, plugin bool // which stay
		log           string
	}{
		"the Pod is replaced":     {table: true, plugin: true},
		"the agents were removed": {removed: true, log: "the agents were removed"},
		"the agent lost its rights": {
			err: fmt.Errorf("%w: forbidden", fs.ErrPermission), table: true, log: "run portolan cleanup here",
		},
		"the API server is away": {
			err: errors.New("connection refused"), table: true, plugin: true, log: "run portolan cni uninstall and portolan cleanup",
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			const original = `{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "ptp"}]}`
			dir := t.TempDir()
			list := filepath.Join(dir, "10-net.conflist")
			if err := os.WriteFile(list, []byte(original), 0o600); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			p := &Policy{
				cfg: Config{
					Removed: func(context.Context) (bool, error) { return test.removed, test.err },
					Log:     slog.New(slog.NewTextHandler(&log, nil)),
				},
				settings: settings.Compiled{Table: "policies", Install: true, BinDir: dir, ConfDir: dir},
			}
			if _, err := conflist.Join(p.network()); err != nil {
				t.Fatal(err)
			}
			table := true
			p.leave(func(name string) (bool, error) {
				table = name != "policies"
				return true, nil
			})
			text, err := os.ReadFile(list)
			plugin := strings.Contains(string(text), "portolan")
			if err != nil || table != test.table || plugin != test.plugin {
				t.Errorf("leave: table stays = %v, plugin stays = %v, %v, want %v, %v; %s", table, plugin, err, test.table, test.plugin, text)
			}
			if got := log.String(); !strings.Contains(got, test.log) || (got == "") != (test.log == "") {
				t.Errorf("log %q, want %q in it", got, test.log)
			}
		})
	}
}
