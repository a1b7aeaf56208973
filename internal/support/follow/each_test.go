package follow

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestEach checks that a change of a file, or of one below a directory that came later, has the function called again,
// and that other files have not.
func TestEach(t *testing.T) {
	t.Parallel()
	dir, beside := t.TempDir(), t.TempDir()
	file := filepath.Join(beside, "file")
	text := ""
	put := func(path string) {
		text += "x" // another size, as the time may be the same
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(file)
	ctx, stop := context.WithCancel(t.Context())
	calls, done := make(chan int), make(chan error)
	written := 0 // how often the function has written beside its file
	isYAML := func(path string) bool { return filepath.Ext(path) == ".yaml" }
	go func() {
		done <- Each(ctx, []string{file, dir}, isYAML, func(context.Context) error {
			written++
			calls <- written
			return os.WriteFile(filepath.Join(beside, "output"), make([]byte, written), 0o600)
		})
	}()
	want := 0
	await := func(what string) {
		want++
		select {
		case n := <-calls:
			if n != want {
				t.Fatalf("call %d %s, want %d", n, what, want)
			}
		case <-time.After(time.Minute):
			t.Fatal("no call ", what)
		}
	}
	await("at once")
	for what, path := range map[string]string{
		"a file beside it":            filepath.Join(beside, "other.yaml"),
		"a file of another kind":      filepath.Join(dir, "output.txt"),
		"a file whose name is hidden": filepath.Join(dir, ".file.yaml"),
	} {
		put(path)
		select {
		case <-calls:
			t.Fatal("a call after a change of ", what)
		case <-time.After(500 * time.Millisecond): // awaitQuiet takes 200 ms
		}
	}
	put(file)
	await("after a file has changed")
	put(file + "~")
	if err := os.Rename(file+"~", file); err != nil {
		t.Fatal(err)
	}
	await("after a file was replaced")
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(filepath.Join(dir, "below", "file.yaml"))
	await("after a file in a new directory was made")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	await("after a file was deleted")
	put(file)
	await("after it was written again")
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestEachAbsent: a file that was never there is a mistake.
func TestEachAbsent(t *testing.T) {
	t.Parallel()
	err := Each(t.Context(), []string{filepath.Join(t.TempDir(), "absent")}, nil, func(context.Context) error {
		t.Error("called")
		return nil
	})
	if !os.IsNotExist(err) {
		t.Errorf("Each: %v, want that the file does not exist", err)
	}
}
