package follow_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/support/follow"
)

// followed is a file with a Follower that refuses texts with "bad".
type followed struct {
	*testing.T
	path     string
	mu       sync.Mutex
	events   []string
	nextTime time.Time // of the file
}

var errBad = errors.New("bad")

func followFile(t *testing.T, text string) *followed {
	t.Helper()
	f := &followed{T: t, path: filepath.Join(t.TempDir(), "list"), nextTime: time.Unix(1e9, 0)}
	f.put(text)
	first, err := follow.Read(t.Context(), f.path)
	if err != nil {
		t.Fatal(err)
	}
	follower := follow.Follower{
		Path: f.path, InUse: first.Version,
		Use: func(c *follow.Content) error {
			if strings.Contains(string(c.Text), "bad") {
				return errBad
			}
			f.add(fmt.Sprintf("use %q", c.Text))
			return nil
		},
		Report: func(err error) {
			f.add(strings.ReplaceAll(fmt.Sprint(err), f.path, "FILE"))
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- follower.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v, want %v", err, context.Canceled)
		}
	})
	return f
}

func (f *followed) add(event string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, event)
}

// put overwrites the file in place; each time is another one.
func (f *followed) put(text string) {
	f.Helper()
	if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
	f.nextTime = f.nextTime.Add(time.Second)
	if err := os.Chtimes(f.path, f.nextTime, f.nextTime); err != nil {
		f.Fatal(err)
	}
}

// want waits and compares what happened meanwhile.
func (f *followed) want(when string, wait time.Duration, events ...string) {
	f.Helper()
	time.Sleep(wait)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if fmt.Sprintf("%q", f.events) != fmt.Sprintf("%q", events) {
		f.Errorf("%s, for %s: %q, want %q", when, wait, f.events, events)
	}
	f.events = nil
}

// TestFollower checks when a file is used, and that each outcome is reported once.
func TestFollower(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := followFile(t, "one\ntwo\n")
		f.want("unchanged", 10*time.Second)
		f.put("one\ntwo\n")
		f.want("touched", 10*time.Second)
		f.put("uno\ntwo\n")
		f.want("changed", 2*time.Second, `use "uno\ntwo\n"`)
		f.put("uno\n")
		f.want("the beginning", 4*time.Second)
		f.want("the beginning", 3*time.Second, `use "uno\n"`)
		f.put("dos")
		f.want("without newline", 4*time.Second)
		f.want("without newline", 3*time.Second, `use "dos"`)
		f.put("dos\ntr")
		f.want("longer, without newline as before", 2*time.Second, `use "dos\ntr"`)
		f.put("dos\n")
		f.want("the beginning of one without newline", 4*time.Second)
		f.want("the beginning of one without newline", 3*time.Second, `use "dos\n"`)
		f.put("bad\n")
		f.want("refused", 10*time.Second, "bad")
		f.put("bad two\n")
		f.want("refused for the same reason", 10*time.Second)
		f.put("dos\n")
		f.want("as in use again", 7*time.Second, "<nil>")
		if err := os.Remove(f.path); err != nil {
			t.Fatal(err)
		}
		f.want("gone", 10*time.Second, "stat FILE: no such file or directory")
		f.put("tres\n")
		f.want("back", 2*time.Second, `use "tres\n"`, "<nil>")
	})
}
