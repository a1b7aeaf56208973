package statefile_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"portolan.dev/portolan/internal/support/statefile"
)

const kind = statefile.Format("test 1\n")

func write(t *testing.T, path, contents string) {
	t.Helper()
	must(t, kind.Write(path, func(w io.Writer) error {
		_, err := io.WriteString(w, contents)
		return err
	}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantContents(t *testing.T, path, want string) {
	t.Helper()
	must(t, kind.Read(path, func(contents []byte) error {
		if string(contents) != want {
			t.Errorf("Read passes %d octets that are not the last ones written", len(contents))
		}
		return nil
	}))
}

// TestTwoWriters verifies that of two concurrent writers each writes a complete file, and
// the last one wins.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state")
	half := bytes.Repeat([]byte("a"), 1<<16) // more than the buffer holds
	must(t, kind.Write(path, func(w io.Writer) error {
		if _, err := w.Write(half); err != nil {
			return err
		}
		write(t, path, "another's")
		wantContents(t, path, "another's")
		_, err := w.Write(half)
		return err
	}))
	wantContents(t, path, string(half)+string(half))
}

// TestLeftovers verifies that a write removes old temporary files, and leaves those of
// other writers.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	old, fresh, other := path+".new-1", path+".new-2", filepath.Join(dir, "other.new-1")
	for _, name := range []string{old, fresh, other} {
		must(t, os.WriteFile(name, []byte("half"), 0o600))
	}
	before := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(old, before, before))
	must(t, os.Chtimes(other, before, before))
	write(t, path, "contents")
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"other.new-1", "state", "state.new-2"}; !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
}
