package transfer

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/support/deadline"
)

// KeyFile is a key whose secret is in a file, in base64.
type KeyFile struct {
	Name      dnsname.Name
	Algorithm dnswire.TSIGAlgorithm
	File      string
}

// Limits of the length of a secret, in octets. A secret shorter than a SHA-1
// hash is too easy to guess (RFC 8945, section 10), and a very long one is some
// other file.
const (
	minSecret  = 16
	maxKeyFile = 4096
)

// KeyReader reads a key file again and again, one read at a time, since a read may
// block for ever.
type KeyReader struct {
	KeyFile
	call deadline.Call[*dnswire.TSIGKey]
}

// Read reads the key and waits for it within that time. The result of a read that takes
// longer is returned by the next call.
func (r *KeyReader) Read(ctx context.Context, within time.Duration) (*dnswire.TSIGKey, error) {
	key, err := r.call.Do(ctx, within, "read "+r.File, r.read)
	if err != nil {
		return nil, fmt.Errorf("transfer key %s: %w", r.Name, err)
	}
	return key, nil
}

func (f KeyFile) read() (*dnswire.TSIGKey, error) {
	secret, err := readSecret(f.File)
	if err != nil {
		return nil, err
	}
	return &dnswire.TSIGKey{Name: f.Name, Algorithm: f.Algorithm, Secret: secret}, nil
}

// keyring is the keys of a Sender.
type keyring struct {
	readers []*KeyReader
	keys    atomic.Pointer[map[dnsname.Name]*dnswire.TSIGKey]
}

// open reads the keys of all files. A file that blocks its reader keeps the key that
// before, which may be nil, has of it.
func (r *keyring) open(files []KeyFile, before *keyring) error {
	known := make(map[*KeyReader]*dnswire.TSIGKey)
	for _, f := range files {
		reader := before.reader(f)
		if reader != nil {
			known[reader] = before.key(f.Name)
		} else {
			reader = &KeyReader{KeyFile: f}
		}
		r.readers = append(r.readers, reader)
	}
	return r.read(context.Background(), known)
}

// reader returns the reader of a file, nil if there is none.
func (r *keyring) reader(f KeyFile) *KeyReader {
	if r != nil {
		for _, reader := range r.readers {
			if reader.KeyFile == f {
				return reader
			}
		}
	}
	return nil
}

// key returns the key with the given name, nil if there is none.
func (r *keyring) key(name dnsname.Name) *dnswire.TSIGKey { return (*r.keys.Load())[name] }

// read reads all files. A file that blocks its reader keeps its known key; with any other
// error the previous keys stay in use.
func (r *keyring) read(ctx context.Context, known map[*KeyReader]*dnswire.TSIGKey) error {
	keys := make(map[dnsname.Name]*dnswire.TSIGKey, len(r.readers))
	for _, reader := range r.readers {
		key, err := reader.Read(ctx, deadline.File)
		if errors.Is(err, deadline.ErrExceeded) && known[reader] != nil {
			key, err = known[reader], nil
		}
		if err != nil {
			return err
		}
		keys[reader.Name] = key
	}
	r.keys.Store(&keys)
	return nil
}

// reread reads the keys again. If that fails, the previous keys stay in use. It logs an
// error that differs from last and returns it.
func (r *keyring) reread(ctx context.Context, log *slog.Logger, last error) error {
	err := r.read(ctx, nil)
	if err != nil && ctx.Err() == nil && (last == nil || last.Error() != err.Error()) {
		log.Error("cannot use transfer keys; the previous ones stay in use", "err", err)
	}
	return err
}

// readSecret reads a secret. Its errors do not reveal the file's content.
func readSecret(path string) ([]byte, error) {
	f, err := deadline.Open(path, deadline.File, deadline.Small)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, err
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	switch {
	case len(text) > maxKeyFile || err != nil:
		return nil, fmt.Errorf("%s: not a secret in base64", path)
	case len(secret) < minSecret:
		return nil, fmt.Errorf("%s: a secret of %d octets; the minimum is %d", path, len(secret), minSecret)
	}
	return secret, nil
}
