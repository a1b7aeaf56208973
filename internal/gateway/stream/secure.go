package stream

import (
	"crypto/tls"
	"sync"
	"unique"

	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/upstream"
)

// secures are the configurations of TLS with endpoints, with the sessions that can be resumed.
type secures struct {
	mu  sync.Mutex
	all map[secured]*tls.Config
}

type secured struct {
	by          unique.Handle[table.TLS]
	certificate *tls.Certificate
}

// maxSecures is how many are kept. With more, all are made again.
const maxSecures = 256

// config returns the configuration for an upstream. It fails if TLS cannot be spoken with it.
func (s *secures) config(up table.Upstream, certificate *tls.Certificate) (*tls.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := secured{up.TLS, certificate}
	if known := s.all[of]; known != nil {
		return known, nil
	}
	made, err := upstream.ClientConfig(new(up.TLS.Value()), certificate)
	if err != nil {
		return nil, err
	}
	if s.all == nil || len(s.all) >= maxSecures {
		s.all = make(map[secured]*tls.Config)
	}
	s.all[of] = made
	return made, nil
}
