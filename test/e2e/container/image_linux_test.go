package container

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestRemoveLeft: removeLeft removes directories that no process has locked, and keeps
// those that are locked or still empty.
func TestRemoveLeft(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	left, used, made, other := filepath.Join(dir, imageDir+"1"), filepath.Join(dir, imageDir+"2"), filepath.Join(dir, imageDir+"3"), filepath.Join(dir, "other")
	for _, d := range []string{left, used, made, other} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if d == made {
			continue
		}
		if err := os.WriteFile(filepath.Join(d, "portolan"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := lockDir(used)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	removeLeft()
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was left is there: %v", err)
	}
	for _, d := range []string{used, made, other} {
		if _, err := os.Stat(d); err != nil {
			t.Error(err)
		}
	}
}
