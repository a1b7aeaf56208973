package app

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is the server's, from two files that are read again when they
// change.
type certificate struct {
	file, key string
	log       *slog.Logger

	mu      sync.Mutex
	looked  time.Time
	version [2]time.Time // of the files
	pair    *tls.Certificate
}

// newCertificate reads the files.
func newCertificate(file, key string, log *slog.Logger) (*certificate, error) {
	c := &certificate{file: file, key: key, log: log}
	c.version = c.versions()
	pair, err := tls.LoadX509KeyPair(file, key)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	c.pair = &pair
	return c, nil
}

// certificateTime is the shortest interval between looks at the files.
const certificateTime = time.Second

// get returns the certificate for a handshake. New files that cannot be used leave
// the certificate before in force.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= certificateTime {
		c.looked = now
		if version := c.versions(); version != c.version {
			c.version = version
			c.read()
		}
	}
	return c.pair, nil
}

func (c *certificate) read() {
	pair, err := tls.LoadX509KeyPair(c.file, c.key)
	if err != nil {
		c.log.Error("the certificate cannot be used; the one before stays in force", "err", err)
		return
	}
	c.pair = &pair
	c.log.Info("certificate reloaded", "file", c.file)
}

// versions are the times when the files were modified; zero for one that cannot be
// read.
func (c *certificate) versions() (v [2]time.Time) {
	for i, name := range []string{c.file, c.key} {
		if info, err := os.Stat(name); err == nil {
			v[i] = info.ModTime()
		}
	}
	return v
}
