package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/support/certfile"
	"portolan.dev/portolan/internal/support/deadline"
)

// Files are paths; empty ones are not set.
type Files struct {
	// Token has the token that lets clients in, on its first line.
	Token string
	// Certificate and Key are those of the admin server, for TLS. ClientCA has the certificates of the
	// authorities whose client certificates let clients in.
	Certificate, Key, ClientCA string
}

// Open returns the Guard of the files, and the configuration of TLS; that is nil if there is no
// certificate.
func Open(f Files, log *slog.Logger) (*Guard, *tls.Config, error) {
	cfg := Config{Certificates: f.ClientCA != "", TLSOnly: f.Certificate != ""}
	if f.Token != "" {
		t := &tokenFile{path: f.Token, log: log}
		if err := t.open(); err != nil {
			return nil, nil, fmt.Errorf("admin.tokenFile: %w", err)
		}
		cfg.Token = t.get
	}
	if f.Certificate == "" {
		return New(cfg), nil, nil
	}
	own, err := certfile.Open(f.Certificate, f.Key, log)
	if err != nil {
		return nil, nil, fmt.Errorf("admin.tls: %w", err)
	}
	secure := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.Get(), nil },
	}
	if f.ClientCA != "" {
		if secure.ClientCAs, err = authorities(f.ClientCA); err != nil {
			return nil, nil, fmt.Errorf("admin.tls.clientCA: %w", err)
		}
		secure.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return New(cfg), secure, nil
}

// authorities returns the certificates in a file.
func authorities(file string) (*x509.CertPool, error) {
	text, err := deadline.ReadFile(file, deadline.File, deadline.Small)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate in PEM", file)
	}
	return pool, nil
}

const (
	// tokenInterval is the shortest interval between looks at the file of the token.
	tokenInterval = time.Second
	// mostToken is the greatest length of the file, and leastToken the smallest of a token, in octets.
	mostToken  = 4 << 10
	leastToken = 16
)

// tokenFile is the file of a token, which is read again when it changes.
type tokenFile struct {
	path    string
	log     *slog.Logger
	token   atomic.Pointer[string]
	reading deadline.Call[struct{}] // guards changed and failure
	changed time.Time               // the modification time of the content that was read; zero if none was
	failure string                  // the error in the log; empty after a success

	mu     sync.Mutex // guards looked
	looked time.Time
}

// open reads the file for the first time.
func (t *tokenFile) open() error {
	_, err := t.reading.Do(context.Background(), deadline.File, "read "+t.path, func() (struct{}, error) {
		at := modified(t.path)
		err := t.read()
		if err == nil {
			t.changed = at
		}
		return struct{}{}, err
	})
	return err
}

// get returns the token in force. It reads the file again if that changed or could not be read, at most
// once in tokenInterval. A file that cannot be read, or that has no token, lets nobody in: it may be taken
// away for that. A read that does not end in time leaves the token before in force.
func (t *tokenFile) get() string {
	if t.due(time.Now()) {
		_, err := t.reading.Do(context.Background(), deadline.Prompt, "read "+t.path, func() (struct{}, error) {
			t.reload()
			return struct{}{}, nil
		})
		if err != nil {
			t.log.Error("the token cannot be read; the one before stays in force", "err", err)
		}
	}
	return *t.token.Load()
}

func (t *tokenFile) due(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.looked) < tokenInterval {
		return false
	}
	t.looked = now
	return true
}

// reload reads the file if it changed, or if the last read failed. The modification time of the content is
// the one from before the read, so that a change during the read is seen by the next reload.
func (t *tokenFile) reload() {
	at := modified(t.path)
	if !at.IsZero() && at.Equal(t.changed) {
		return
	}
	err := t.read()
	switch {
	case errors.Is(err, deadline.ErrExceeded): // get logs it
	case err == nil:
		t.changed, t.failure = at, ""
		t.log.Info("token reloaded", "file", t.path)
	case errors.Is(err, errShort):
		t.revoke(at, err)
	default:
		t.revoke(time.Time{}, err)
	}
}

// revoke accepts no token until a read succeeds. changed is the modification time of the content; zero
// has the next reload read the file again. An error that comes again is logged once.
func (t *tokenFile) revoke(changed time.Time, err error) {
	t.token.Store(new(string))
	t.changed = changed
	if text := err.Error(); text != t.failure {
		t.failure = text
		t.log.Error("no token is accepted until the file has one", "setting", "admin.tokenFile", "err", err)
	}
}

// read reads the token in the file and puts it in force. Its error wraps errShort if the file was read and
// has no token, and deadline.ErrExceeded if reading takes too long.
func (t *tokenFile) read() error {
	text, err := deadline.ReadFile(t.path, deadline.File, mostToken)
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if line = strings.TrimSpace(line); len(line) < leastToken {
		return fmt.Errorf("%s: %w", t.path, errShort)
	}
	t.token.Store(&line)
	return nil
}

var errShort = errors.New("the token has less than 16 characters; `openssl rand -hex 32` makes one")

// modified returns the modification time of a file; zero if it cannot be read.
func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
