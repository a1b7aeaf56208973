package follow

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestEach checks that a change of a file, or of one below a directory that came later, has the function called again.
func TestEach(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "file")
	put := func(path string) {
		if err := os.WriteFile(path, []byte(path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(file)
	ctx, stop := context.WithCancel(t.Context())
	calls, done := make(chan struct{}), make(chan error)
	go func() {
		done <- Each(ctx, []string{file, dir}, func(context.Context) error {
			calls <- struct{}{}
			return nil
		})
	}()
	await := func(what string) {
		select {
		case <-calls:
		case <-time.After(time.Minute):
			t.Fatal("no call ", what)
		}
	}
	await("at once")
	put(file)
	await("after a file has changed")
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	await("after a directory was made")
	put(filepath.Join(dir, "below", "file"))
	await("after a file in it was made")
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
