package tlsfront

import (
	"crypto/tls"
	"sync"

	"portolan.dev/portolan/internal/gateway/table"
)

// StreamsAt is At for connections that are passed on when TLS is terminated, whatever is spoken on them: no protocol is
// chosen (RFC 7301).
func (f *Front) StreamsAt(at table.Socket) func() *tls.Config {
	ofRequests := f.At(at)
	var begin sync.Once
	var made *tls.Config
	return func() *tls.Config {
		config := ofRequests()
		if config == nil {
			return nil
		}
		begin.Do(func() {
			made = withoutProtocols(config)
			if choose := config.GetConfigForClient; choose != nil {
				made.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
					chosen, err := choose(hello)
					if chosen != nil && len(chosen.NextProtos) > 0 {
						chosen = withoutProtocols(chosen)
					}
					return chosen, err
				}
			}
		})
		return made
	}
}

func withoutProtocols(config *tls.Config) *tls.Config {
	made := config.Clone()
	made.NextProtos = nil
	return made
}
