package gateway

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"time"

	"portolan.dev/portolan/bench/gateway/calls"
	"portolan.dev/portolan/internal/support/testcert"
)

// certificate is that of all contenders, for host, with a P-256 key.
type certificate struct {
	file       string // PEM, with the key
	chain, key string // base64 of PEM
	secure     *calls.Secure
}

func newCertificate(dir string) (certificate, error) {
	c, err := testcert.New(host, time.Now().Add(12*time.Hour))
	if err != nil {
		return certificate{}, err
	}
	chain, key := c.PEM()
	file := filepath.Join(dir, "bench.pem")
	return certificate{
		file: file, chain: base64.StdEncoding.EncodeToString(chain), key: base64.StdEncoding.EncodeToString(key),
		secure: &calls.Secure{Host: host, Roots: chain},
	}, os.WriteFile(file, slices.Concat(chain, key), 0o600)
}
