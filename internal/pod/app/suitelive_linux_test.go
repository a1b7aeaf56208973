package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/live"
	"portolan.dev/portolan/internal/pod/suite"
)

// TestSuiteLive: assertions of each kind are compared with packets, and one that does not hold by the model does not by
// packets either. A suite that is canceled while packets have no answer ends at once.
func TestSuiteLive(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs a cluster in network namespaces")
	}
	r := newRig(t, situations(t))
	w := inspected(t, filepath.Join(r.dir, manifestFile))
	for claim, test := range map[string]struct{ text, seen, why string }{
		"a name that resolves":            {"{from: shop/client, to: web, expect: {resolves: [shop/web]}}", "name: ", ""},
		"a connection":                    {"{from: shop/client, to: '10.96.30.2:6379', expect: connects}", "service: connected at 10.96.30.2:6379", ""},
		"a connection that is refused":    {"{from: shop/client, to: 'web:8000', expect: refused}", "service: refused at 10.96.20.1:8000", ""},
		"a connection that policies drop": {"{from: shop/batch, to: '10.96.30.2:6379', expect: dropped}", "policy: no answer", ""},
		"a client outside":                {"{from: 203.0.113.9/n1, to: '192.0.2.20:80', expect: connects}", "service: connected at 192.0.2.20:80", ""},
		"a request that a backend serves": {"{from: shop/client, to: 'http://checkout.shop.example/', expect: {backend: bank/ledger}}", "backend: 200 OK, from Pod bank/ledger-0", ""},
		"a request that no route has":     {"{from: shop/client, to: 'http://wwww.shop.example/', expect: {status: 404}}", "route: 404 Not Found", ""},
		"one that does not hold":          {"{from: shop/client, to: '10.96.30.2:6379', expect: dropped}", "service: connected", "got connects"},
	} {
		t.Run(claim, func(t *testing.T) {
			s, err := suite.Read("f", fmt.Appendf(nil, "tests: [%s]", test.text))
			if err != nil {
				t.Fatal(err)
			}
			results, err := w.TestLive(t.Context(), s, NodeSettings{}, Packets{
				Sending: Sending{Wait: liveWait}, Origins: r.originOf,
			})
			if err != nil || len(results) != 1 {
				t.Fatalf("TestLive(%s) = %d results, %v", test.text, len(results), err)
			}
			got := &results[0]
			if !strings.Contains(got.Seen, test.seen) || got.NotSent != "" || (test.why == "") != got.Passed() ||
				!strings.Contains(got.Why, test.why) {
				t.Errorf("TestLive(%s): seen %q, not sent %q, why %q; want %q, %q", test.text, got.Seen, got.NotSent, got.Why,
					test.seen, test.why)
			}
		})
	}
	t.Run("canceled", func(t *testing.T) { cancelsSuite(t, r, w) })
}

// canceling is a Dialer that ends a context when a connection is begun.
type canceling struct {
	live.Dialer
	cancel context.CancelFunc
}

func (c canceling) Dial(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	c.cancel()
	return c.Dialer.Dial(ctx, network, to)
}

// cancelsSuite cancels a suite whose packets are dropped. Without that it would take as long as answers are waited for,
// which is longer than the test may take.
func cancelsSuite(t *testing.T, r *rig, w *world) {
	t.Helper()
	s, err := suite.Read("f", []byte("tests: [{from: shop/batch, to: '10.96.30.2:6379', expect: dropped}]"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	results, err := w.TestLive(ctx, s, NodeSettings{}, Packets{
		Sending: Sending{Wait: live.Budget},
		Origins: func(c *connection.Client) *live.Origin {
			o := *r.originOf(c)
			o.Dialer = canceling{o.Dialer, cancel}
			return &o
		},
	})
	if !errors.Is(err, context.Canceled) || len(results) != 1 || results[0].Seen != "" {
		t.Errorf("TestLive of a suite that is canceled = %+v, %v", results, err)
	}
}
