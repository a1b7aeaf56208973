package tlsfront_test

import (
	"crypto/tls"
	"testing"

	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/tlsfront"
)

// TestSharedTickets resumes sessions at another gateway that has the keys, and at none that has not.
func TestSharedTickets(t *testing.T) {
	t.Parallel()
	first, second, third := [32]byte{1}, [32]byte{2}, [32]byte{3}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for claim, tt := range map[string]struct {
			there, here [][32]byte
			want        bool
		}{
			"the same keys":               {[][32]byte{first}, [][32]byte{first}, true},
			"one more key":                {[][32]byte{first}, [][32]byte{second, first}, true},
			"the next key is known":       {[][32]byte{second, first}, [][32]byte{first, second}, true},
			"the key is gone":             {[][32]byte{first}, [][32]byte{third, second}, false},
			"this gateway shares no keys": {[][32]byte{first}, nil, false},
		} {
			a, b := start(t, nil), start(t, nil)
			certificate := a.certificate("a.test")
			config := &tls.Config{
				RootCAs: a.roots, ServerName: "a.test", MinVersion: version, MaxVersion: version, //nolint:gosec // one of two
				ClientSessionCache: tls.NewLRUClientSessionCache(1),
			}
			for _, g := range []*gateway{a, b} {
				g.serve(listener("a.test", certificate))
			}
			a.front.SetTicketKeys(tt.there)
			if tt.here != nil {
				b.front.SetTicketKeys(tt.here)
			}
			if resumed(t, a, config) {
				t.Errorf("TLS %#x, %s: resumed at first", version, claim)
			}
			if got := resumed(t, b, config); got != tt.want {
				t.Errorf("TLS %#x, %s: resumed %t, want %t", version, claim, got, tt.want)
			}
		}
	}
}

// resumed connects, sends a request, and reports whether a session was resumed.
func resumed(t *testing.T, g *gateway, config *tls.Config) bool {
	t.Helper()
	conn, err := visit(g, config)
	must(t, err)
	return conn.ConnectionState().DidResume
}

// TestTicketOfSocket: a session of one socket is not resumed at another one.
func TestTicketOfSocket(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	other := table.Socket{Port: 8443}
	port := table.NewTLSPort([]*table.Listener{listener("a.test", g.certificate("a.test"))}, nil)
	g.proxy.SetTable(table.New(map[table.Socket]*table.Port{g.at: port, other: port}))
	for version, name := range map[uint16]string{tls.VersionTLS12: "1.2", tls.VersionTLS13: "1.3"} {
		config := &tls.Config{
			RootCAs: g.roots, ServerName: "a.test", MinVersion: version, MaxVersion: version, //nolint:gosec // one of two
			ClientSessionCache: tls.NewLRUClientSessionCache(1),
		}
		resumed(t, g, config)
		if !resumed(t, g, config) {
			t.Errorf("TLS %s: not resumed where it began", name)
		}
		elsewhere := *g
		elsewhere.addr = g.listen(g.front, other)
		if resumed(t, &elsewhere, config) {
			t.Errorf("TLS %s: resumed at another socket", name)
		}
	}
}

// TestSuites: suites without authenticated encryption, or forward secrecy, are not served unless they are set.
func TestSuites(t *testing.T) {
	t.Parallel()
	const old, good = tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
	g := start(t, nil)
	g.serve(listener("a.test", g.certificate("a.test")))
	for claim, tt := range map[string]struct {
		config    tlsfront.Config
		suite     uint16
		max       uint16
		handshake bool
	}{
		"one of before":                {tlsfront.Config{}, old, tls.VersionTLS12, false},
		"one of before, which is set":  {tlsfront.Config{Suites: []uint16{old}}, old, tls.VersionTLS12, true},
		"one of today":                 {tlsfront.Config{}, good, tls.VersionTLS12, true},
		"one of today, others are set": {tlsfront.Config{Suites: []uint16{old}}, good, tls.VersionTLS12, false},
		"TLS 1.2, below the lowest":    {tlsfront.Config{MinVersion: tls.VersionTLS13}, good, tls.VersionTLS12, false},
		"TLS 1.3":                      {tlsfront.Config{MinVersion: tls.VersionTLS13}, good, tls.VersionTLS13, true},
	} {
		tt.config.Table = g.proxy.Table
		s := *g
		s.addr = g.listen(tlsfront.New(tt.config), g.at)
		_, err := s.handshake(&tls.Config{
			RootCAs: g.roots, ServerName: "a.test", CipherSuites: []uint16{tt.suite}, MaxVersion: tt.max, MinVersion: tls.VersionTLS12,
		})
		if (err == nil) != tt.handshake {
			t.Errorf("%s: %v", claim, err)
		}
	}
}
