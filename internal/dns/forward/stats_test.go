package forward_test

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
)

// TestUpstreamStats checks the counters of connections and the latency of
// replies for each transport.
func TestUpstreamStats(t *testing.T) {
	const slow = 20 * time.Millisecond
	s := serve(t, func(q asked) [][]byte {
		time.Sleep(slow)
		if strings.Contains(strings.ToLower(string(q.packet)), "nowhere") {
			return one(q.reply(dnswire.NXDomain, 0))
		}
		return works(q)
	})
	cert, roots := certify(t, time.Now().Add(time.Hour))
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	for claim, tt := range map[string]struct {
		upstream       forward.Upstream
		opened, reused uint64
	}{
		"UDP has no connections": {forward.Upstream{Addr: s.addr}, 0, 0},
		"TCP":                    {forward.Upstream{Addr: s.addr, Transport: forward.TCP}, 1, 2},
		"TLS":                    {forward.Upstream{Addr: secure(t, s, config), Roots: roots, Transport: forward.TLS}, 1, 2},
		"HTTPS":                  {forward.Upstream{Addr: web(t, s, config, 200), Roots: roots, Transport: forward.HTTPS, Path: "/names"}, 1, 2},
	} {
		t.Run(claim, func(t *testing.T) {
			f := newForwarder(t, settings(t, forward.Route{Timeout: 5 * time.Second, Upstreams: []forward.Upstream{tt.upstream}}))
			for i := range 2 {
				ask(t, f, fmt.Sprintf("n%d.example.", i))
			}
			ask(t, f, "nowhere.example.")
			u := f.Stats().Upstreams[0]
			// On a loaded machine, a question that seems lost is sent again,
			// over another connection if the first is not open yet.
			if u.Opened < tt.opened || u.Opened > tt.opened+u.Late || u.Reused < tt.reused || tt.opened == 0 && u.Opened+u.Reused > 0 {
				t.Errorf("%d connections opened, %d used again; want %d and %d", u.Opened, u.Reused, tt.opened, tt.reused)
			}
			replies := make(map[string]uint64)
			for _, d := range u.Durations {
				replies[d.RCode] = d.Count
				if floor := time.Duration(d.Count) * slow; d.Sum < floor.Seconds() || d.Buckets[0.01] != 0 || d.Buckets[5] != d.Count {
					t.Errorf("%s: %+v, want %s or more in all", d.RCode, d, floor)
				}
			}
			if len(replies) != 2 || replies["NOERROR"] < 2 || replies["NXDOMAIN"] < 1 {
				t.Errorf("replies %v, want 2 NOERROR and 1 NXDOMAIN", replies)
			}
		})
	}
}
