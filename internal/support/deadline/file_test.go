package deadline_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/support/deadline"
)

// TestReadFile checks what ReadFile returns of regular files, directories and devices.
func TestReadFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const limit = 1 << 20
	exact := bytes.Repeat([]byte("x"), limit)
	for name, content := range map[string][]byte{"empty": nil, "exact": exact, "longer": append(exact, 'x')} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "empty"):  "0 octets",
		filepath.Join(dir, "exact"):  "1048576 octets",
		filepath.Join(dir, "longer"): "read " + filepath.Join(dir, "longer") + ": longer than 1 MiB",
		filepath.Join(dir, "none"):   "open " + filepath.Join(dir, "none") + ": no such file or directory",
		dir:                          "read " + dir + ": is a directory",
		"/dev/zero":                  "read /dev/zero: longer than 1 MiB",
	} {
		data, err := deadline.ReadFile(path, time.Minute, limit)
		got := fmt.Sprintf("%d octets", len(data))
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("ReadFile(%s): %s, want %s", path, got, want)
		}
	}
}

// TestReadPipe checks that a read of a named pipe awaits a writer, and ends in time if
// there is none or if the writer does not end.
func TestReadPipe(t *testing.T) {
	t.Parallel()
	const within = 200 * time.Millisecond
	for claim, tt := range map[string]struct {
		write func(pipe *os.File, release <-chan struct{})
		want  string // the text read; empty if the time ends first
	}{
		"no writer": {nil, ""},
		"a writer that comes late": {func(pipe *os.File, _ <-chan struct{}) {
			fmt.Fprint(pipe, "late")
		}, "late"},
		"a writer that pauses": {func(pipe *os.File, _ <-chan struct{}) {
			fmt.Fprint(pipe, "one ")
			time.Sleep(within / 4)
			fmt.Fprint(pipe, "two")
		}, "one two"},
		"a writer that does not end": {func(pipe *os.File, release <-chan struct{}) {
			fmt.Fprint(pipe, "half")
			<-release
		}, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "pipe")
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			within, release, written := within, make(chan struct{}), make(chan struct{})
			if tt.want != "" {
				within = time.Minute
			}
			go func() {
				defer close(written)
				if tt.write == nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
				// Opening a pipe for reading and writing does not await its reader.
				pipe, err := os.OpenFile(path, os.O_RDWR, 0)
				if err != nil {
					t.Error(err)
					return
				}
				defer pipe.Close()
				tt.write(pipe, release)
			}()
			data, err := deadline.ReadFile(path, within, deadline.Small)
			close(release)
			<-written
			switch {
			case tt.want != "" && (err != nil || string(data) != tt.want):
				t.Errorf("ReadFile: %q, %v, want %q", data, err, tt.want)
			case tt.want == "" && (!errors.Is(err, deadline.ErrExceeded) || !strings.HasPrefix(err.Error(), "read "+path+": ")):
				t.Errorf("ReadFile: %q, %v, want %v that names the file", data, err, deadline.ErrExceeded)
			}
		})
	}
}
