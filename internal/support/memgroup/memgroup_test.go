package memgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestFind reads groups of both versions, in containers with and without a namespace of control groups.
func TestFind(t *testing.T) {
	t.Parallel()
	const stat = "anon 5\ninactive_file 100\ntotal_inactive_file 200\n"
	v2 := map[string]string{"memory.max": "5000\n", "memory.current": "1000\n", "memory.stat": stat}
	v1 := map[string]string{
		"memory.limit_in_bytes": "6000\n", "memory.usage_in_bytes": "1000\n", "memory.stat": stat,
		"memory.kmem.tcp.usage_in_bytes": "50\n",
	}
	for claim, test := range map[string]struct {
		groups      string
		dir         string
		files       map[string]string
		limit, used int64 // limit is 0 for none
	}{
		"version 2, namespace":           {"0::/\n", ".", v2, 5000, 900},
		"version 2, path":                {"0::/pods/a\n", "pods/a", v2, 5000, 900},
		"version 2, path of the host":    {"0::/pods/a\n", ".", v2, 5000, 900},
		"version 1, path":                {"5:cpu:/x\n4:memory:/pods/a\n0::/\n", "memory/pods/a", v1, 6000, 850},
		"version 1, path of the host":    {"4:memory:/pods/a\n", "memory", v1, 6000, 850},
		"version 2 without a limit":      {"0::/\n", ".", map[string]string{"memory.max": "max\n"}, 0, 0},
		"version 1 without a limit":      {"4:memory:/\n", "memory", map[string]string{"memory.limit_in_bytes": "9223372036854771712"}, 0, 0},
		"no control groups":              {"", ".", nil, 0, 0},
		"version 2 without any controls": {"0::/\n", ".", nil, 0, 0},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			dir := filepath.Join(root, test.dir)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range test.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			g, err := find(root, test.groups)
			if test.limit == 0 {
				if !errors.Is(err, ErrNoLimit) {
					t.Errorf("find(%q) = %+v, %v, want %v", test.groups, g, err, ErrNoLimit)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if g.Limit() != test.limit || g.Used() != test.used {
				t.Errorf("find(%q): limit %d, used %d, want %d, %d", test.groups, g.Limit(), g.Used(), test.limit, test.used)
			}
		})
	}
}
