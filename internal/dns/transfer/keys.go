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

// Lengths of a secret, in octets. One that is shorter than a hash of SHA-1 is
// guessed too easily (RFC 8945, section 10); a longer one than a file of secrets
// would be is another file.
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

// readSecret reads a secret. What is in the file is not told by errors.
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
		return nil, fmt.Errorf("%s: a secret of %d octets; %d are the least", path, len(secret), minSecret)
	}
	return secret, nil
}

// rereadKeys reads the keys again. Where they can't be used, those before stay.
func (s *Sender) rereadKeys(log *slog.Logger, last error) (problem error) {
	keys, err := readKeys(s.cfg.Keys)
	switch {
	case err == nil:
		s.keys.Store(&keys)
	case last == nil || last.Error() != err.Error():
		log.Error("transfer keys can't be used; those before stay", "err", err)
	}
	return err
}
