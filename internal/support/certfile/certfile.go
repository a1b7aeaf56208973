// Package certfile reads a certificate and its key from files, again when they change.
package certfile

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/support/deadline"
)

// Certificate is a certificate with its key. It is read again when its files change.
type Certificate struct {
	file, key string
	log       *slog.Logger

	pair    atomic.Pointer[tls.Certificate]
	reading deadline.Call[struct{}] // guards version
	version [2]time.Time            // modification times of the files

	mu     sync.Mutex // guards looked
	looked time.Time
}

// Open returns the certificate in the files.
func Open(file, key string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{file: file, key: key, log: log}
	_, err := c.reading.Do(context.Background(), deadline.File, c.doing(), func() (struct{}, error) {
		c.version = c.versions()
		return struct{}{}, c.read()
	})
	return c, err
}

// doing describes a read for errors.
func (c *Certificate) doing() string { return fmt.Sprintf("read %s and %s", c.file, c.key) }

// interval is the shortest interval between checks of the files.
const interval = time.Second

// Get returns the certificate for a handshake. If new files are unusable or their read
// blocks, the previous certificate stays in force.
func (c *Certificate) Get() *tls.Certificate {
	if c.due(time.Now()) {
		_, _ = c.reading.Do(context.Background(), deadline.Prompt, c.doing(), func() (struct{}, error) {
			c.reload()
			return struct{}{}, nil
		})
	}
	return c.pair.Load()
}

// due reports whether interval has passed since the last check, and if so
// records a check at now.
func (c *Certificate) due(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.looked) < interval {
		return false
	}
	c.looked = now
	return true
}

// reload reads the files if they changed.
func (c *Certificate) reload() {
	version := c.versions()
	if version == c.version {
		return
	}
	c.version = version
	if err := c.read(); err != nil {
		c.log.Error("the certificate cannot be used; the one before stays in force", "err", err)
		return
	}
	c.log.Info("certificate reloaded", "file", c.file)
}

func (c *Certificate) read() error {
	certificate, err := deadline.ReadFile(c.file, deadline.File, deadline.Small)
	if err != nil {
		return err
	}
	key, err := deadline.ReadFile(c.key, deadline.File, deadline.Small)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.file, c.key, err)
	}
	c.pair.Store(&pair)
	return nil
}

// versions returns the modification times of the files, zero for a file that cannot be
// read.
func (c *Certificate) versions() (v [2]time.Time) {
	for i, name := range []string{c.file, c.key} {
		if info, err := os.Stat(name); err == nil {
			v[i] = info.ModTime()
		}
	}
	return v
}
