package deadline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Limits of the length of a file, in octets.
const (
	// Small is for a configuration, a certificate or a key.
	Small = 16 << 20
	// Large is for a list of names.
	Large = 64 << 20
)

// Reader reads a file that may be anything: a named pipe without a writer, or a device
// without an end. It never blocks longer than its time, and never reads more than its
// limit. (The kernel still may block it, in a file system whose server is unreachable.)
type Reader struct {
	file   *os.File
	info   fs.FileInfo
	until  time.Time
	within time.Duration
	left   int64 // octets until the limit
	limit  int64
	begun  bool
}

// Open opens a file for reads that end within that time and after that many octets.
func Open(path string, within time.Duration, limit int64) (*Reader, error) {
	// A pipe without a writer does not block the opening, nor the reading of what is
	// not a regular file.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	r := &Reader{file: file, info: info, until: time.Now().Add(within), within: within, left: limit, limit: limit}
	_ = file.SetReadDeadline(r.until) // regular files have none
	return r, nil
}

// Stat returns the information about the file.
func (r *Reader) Stat() fs.FileInfo { return r.info }

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// Read implements io.Reader. Its errors name the file; after the time they wrap
// ErrExceeded, and after the limit they do not.
func (r *Reader) Read(p []byte) (n int, err error) {
	for {
		n, err = r.file.Read(p[:min(int64(len(p)), r.left+1)])
		if r.begun || n > 0 || err == nil || r.info.Mode().IsRegular() || !errors.Is(err, io.EOF) {
			break
		}
		if time.Now().After(r.until) { // a pipe that nobody wrote to
			return 0, r.exceeded()
		}
		time.Sleep(pipeInterval)
	}
	r.begun = true
	switch r.left -= int64(n); {
	case r.left < 0:
		return 0, r.failed(fmt.Errorf("longer than %d MiB", r.limit>>20))
	case errors.Is(err, os.ErrDeadlineExceeded), err == nil && time.Now().After(r.until):
		return n, r.exceeded()
	}
	return n, err
}

// pipeInterval is the time between two looks at a pipe without a writer.
const pipeInterval = 20 * time.Millisecond

func (r *Reader) exceeded() error { return r.failed(fmt.Errorf("%w (%s)", ErrExceeded, r.within)) }

func (r *Reader) failed(err error) error {
	return &fs.PathError{Op: "read", Path: r.file.Name(), Err: err}
}

// ReadFile is like os.ReadFile, but fails if reading takes longer than the given time or
// the file is longer than limit, in octets.
func ReadFile(path string, within time.Duration, limit int64) ([]byte, error) {
	return new(Call[[]byte]).Do(context.Background(), within, "read "+path, func() ([]byte, error) {
		r, err := Open(path, within, limit)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	})
}
