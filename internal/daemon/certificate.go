package daemon

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is the server's, of two files that are read again when they
// change: whoever renews certificates need not tell.
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

// certificateTime is how often the files are looked at, at most.
const certificateTime = time.Second

// get gives the certificate for a handshake. Where new files can't be used the
// one before stays.
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
		c.log.Error("certificate can't be used; the one before stays", "err", err)
		return
	}
	c.pair = &pair
	c.log.Info("certificate read again", "file", c.file)
}

// versions tells when the files were changed; zero where one can't be seen.
func (c *certificate) versions() (v [2]time.Time) {
	for i, name := range []string{c.file, c.key} {
		if info, err := os.Stat(name); err == nil {
			v[i] = info.ModTime()
		}
	}
	return v
}
