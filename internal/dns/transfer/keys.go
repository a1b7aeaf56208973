package transfer

import (
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
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

// readKeys reads all keys.
func readKeys(files []KeyFile) (map[dnsname.Name]*dnswire.TSIGKey, error) {
	keys := make(map[dnsname.Name]*dnswire.TSIGKey, len(files))
	for _, f := range files {
		key, err := f.Read()
		if err != nil {
			return nil, err
		}
		keys[f.Name] = key
	}
	return keys, nil
}

// Read reads the key.
func (f KeyFile) Read() (*dnswire.TSIGKey, error) {
	secret, err := readSecret(f.File)
	if err != nil {
		return nil, fmt.Errorf("transfer key %s: %w", f.Name, err)
	}
	return &dnswire.TSIGKey{Name: f.Name, Algorithm: f.Algorithm, Secret: secret}, nil
}

// readSecret reads a secret. Its errors do not reveal the file's content.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
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

// rereadKeys reads the keys again. If that fails, the previous keys stay in
// use. It logs an error that differs from last and returns it.
func (s *Sender) rereadKeys(log *slog.Logger, last error) (problem error) {
	keys, err := readKeys(s.cfg.Keys)
	switch {
	case err == nil:
		s.keys.Store(&keys)
	case last == nil || last.Error() != err.Error():
		log.Error("cannot use transfer keys; the previous ones stay in use", "err", err)
	}
	return err
}
