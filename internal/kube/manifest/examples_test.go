package manifest

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

// TestExamples loads the examples. Each directory without directories in it is
// a cluster of its own.
func TestExamples(t *testing.T) {
	for _, root := range []string{"shop", "spec"} {
		root = filepath.Join("../../../examples", root)
		err := filepath.WalkDir(root, func(dir string, e fs.DirEntry, err error) error {
			if err != nil || !e.IsDir() {
				return err
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			var dirs, manifests int
			for _, e := range entries {
				switch {
				case e.IsDir():
					dirs++
				case IsManifest(e.Name()):
					manifests++
				default:
					t.Errorf("%s: not a manifest", filepath.Join(dir, e.Name()))
				}
			}
			if dirs > 0 {
				if manifests > 0 {
					t.Errorf("%s has both manifests and directories, so its manifests are not tried on their own", dir)
				}
				return nil
			}
			report, err := New(Config{Path: dir, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler)}).Load()
			if err != nil {
				t.Errorf("%s: %v", dir, err)
			}
			for _, p := range report.Problems {
				t.Error(p)
			}
			if report.Objects+report.PassedOver == 0 {
				t.Errorf("%s: nothing in it", dir)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
