package app

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/live"
	"portolan.dev/portolan/internal/pod/suite"
)

// silence is a network without answers: what is sent there waits until its context ends.
type silence struct {
	dialed func()
	dials  atomic.Int64
}

func (s *silence) Dial(ctx context.Context, _ string, _ netip.AddrPort) (net.Conn, error) {
	s.dials.Add(1)
	s.dialed()
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSuiteLiveIsCanceled: a suite whose packets have no answer ends as soon as its context does, and sends nothing
// after that.
func TestSuiteLiveIsCanceled(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Manifests = "testdata/situations/base.yaml"
	w := newWorld(t, c)
	s, err := suite.Read("f", []byte("tests: [{from: ['*/*'], to: ['10.96.20.1:80', '10.96.30.2:6379'], expect: connects}]"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	network := &silence{dialed: cancel}
	// An answer is waited for as long as the test may take, so that it does not end unless the context ends it.
	results, err := w.TestLive(ctx, s, NodeSettings{}, Packets{
		Sending: Sending{Wait: live.Budget},
		Origins: func(*connection.Client) *live.Origin { return &live.Origin{From: "here", Dialer: network} },
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("TestLive of a suite that is canceled: %v, want %v", err, context.Canceled)
	}
	notSent := 0
	for i := range results {
		if results[i].NotSent != "" {
			notSent++
		}
	}
	// Each of those that run at a time sends to one address and to at most four endpoints of it at once.
	if dials := network.dials.Load(); dials > atOnce*5 || len(results) <= atOnce || notSent < len(results)-atOnce {
		t.Errorf("%d results, of which %d were not sent; %d connections", len(results), notSent, dials)
	}
}

// TestSuiteLiveNotCompared: nothing is sent for a client that is not at hand, not even its lookups, and the result says
// why it was not compared.
func TestSuiteLiveNotCompared(t *testing.T) {
	t.Parallel()
	const away = "the client is on another machine"
	c := config.Default()
	c.Manifests = "testdata/situations/base.yaml"
	w := newWorld(t, c)
	for claim, test := range map[string]struct {
		text, why string
		passed    bool
		origin    live.Origin
	}{
		"a name, of a client elsewhere": {
			"{from: shop/client, to: web, expect: resolves}", away, true, live.Origin{Why: away},
		},
		"a connection, of a client elsewhere": {
			"{from: shop/client, to: 'web:80', expect: dropped}", away, false, live.Origin{Why: away},
		},
		"a host without an address": {
			"{from: outside/n1, to: 'http://nobody.example/', expect: {status: 404}}",
			"service, route: no address of a gateway for nobody.example is known", true, *live.Here(),
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			s, err := suite.Read("f", []byte("tests: ["+test.text+"]"))
			if err != nil {
				t.Fatal(err)
			}
			results, err := w.TestLive(t.Context(), s, NodeSettings{}, Packets{
				Origins: func(*connection.Client) *live.Origin { return &test.origin },
			})
			if err != nil || len(results) != 1 {
				t.Fatalf("TestLive(%s) = %d results, %v", test.text, len(results), err)
			}
			r := &results[0]
			if r.Passed() != test.passed || r.Seen != "" || r.NotSent != test.why || strings.Contains(r.Why, "packets") {
				t.Errorf("TestLive(%s): %q, seen %q, not sent %q, want %q", test.text, r.Why, r.Seen, r.NotSent, test.why)
			}
			if !r.Passed() && len(r.Explanation.Live.Sent) > 0 {
				t.Errorf("TestLive(%s) sent %v", test.text, r.Explanation.Live.Sent)
			}
		})
	}
}

// deaf is a network in which no program listens.
type deaf struct{}

func (deaf) Dial(context.Context, string, netip.AddrPort) (net.Conn, error) {
	return nil, syscall.ECONNREFUSED
}

// TestSuiteLiveRefused: a connection that should be made does not hold if no program listens, also where the target is a
// Pod and the model judges the policies only.
func TestSuiteLiveRefused(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Manifests = "testdata/situations/base.yaml"
	w := newWorld(t, c)
	for _, to := range []string{"shop/web-0:8080", "10.96.20.1:80"} {
		s, err := suite.Read("f", []byte("tests: [{from: shop/client, to: '"+to+"', expect: connects}]"))
		if err != nil {
			t.Fatal(err)
		}
		results, err := w.TestLive(t.Context(), s, NodeSettings{}, Packets{
			Origins: func(*connection.Client) *live.Origin { return &live.Origin{From: "here", Dialer: deaf{}} },
		})
		if err != nil || len(results) != 1 {
			t.Fatalf("TestLive of %s = %d results, %v", to, len(results), err)
		}
		if r := &results[0]; r.Passed() || !strings.Contains(r.Why, "refused") || !strings.Contains(r.Why, "packets") {
			t.Errorf("TestLive of %s: %q, seen %q", to, r.Why, r.Seen)
		}
	}
}
