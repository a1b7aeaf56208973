package tlsfront

import (
	"crypto/tls"
	"sync"
	"time"

	"golang.org/x/crypto/ocsp"

	"portolan.dev/portolan/internal/gateway/table"
)

// staples is until when the OCSP responses of a table's certificates are up to date.
type staples struct {
	of *table.Table

	mu    sync.Mutex
	until map[*tls.Certificate]time.Time // zero for ever
}

// upToDate reports whether the OCSP response of a certificate is.
func (s *staples) upToDate(c *tls.Certificate) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	end, ok := s.until[c]
	if !ok {
		end = time.Now()
		if parsed, err := ocsp.ParseResponseForCert(c.OCSPStaple, c.Leaf, nil); err == nil {
			end = parsed.NextUpdate
		}
		s.until[c] = end
	}
	return end.IsZero() || time.Now().Before(end)
}

// fresh returns a certificate without its OCSP response if that is out of date: clients refuse such a one, and go on
// without any (RFC 6960, section 3.2).
func (f *Front) fresh(t *table.Table, c *tls.Certificate) *tls.Certificate {
	if c == nil || len(c.OCSPStaple) == 0 {
		return c
	}
	known := f.staples.Load()
	if known == nil || known.of != t {
		known = &staples{of: t, until: make(map[*tls.Certificate]time.Time)}
		f.staples.Store(known)
	}
	if known.upToDate(c) {
		return c
	}
	made := *c
	made.OCSPStaple = nil
	return &made
}
