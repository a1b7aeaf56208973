//go:build linux

package cri

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// log is the file of what a container prints, in the format that kubelets read: a time, the
// stream, F for a full line or P for a part, and the text (design proposal "CRI: Log management
// for container stdout/stderr streams").
type log struct {
	mu   sync.Mutex
	file *os.File
}

func openLog(path string) (*log, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return &log{file: f}, err
}

func (l *log) Close() error { return l.file.Close() }

// stream writes one of the streams, a line of the log for each line and for each part that comes
// alone.
func (l *log) stream(name string) io.Writer { return &stream{l, name} }

type stream struct {
	*log
	name string
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UTC().Format(time.RFC3339Nano)
	for line := range bytes.Lines(p) {
		text, full := bytes.CutSuffix(line, []byte("\n"))
		tag := "P"
		if full {
			tag = "F"
		}
		if _, err := fmt.Fprintf(s.file, "%s %s %s %s\n", now, s.name, tag, text); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
