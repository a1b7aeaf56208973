package app

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/datagram"
	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/stream"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/evidence"
)

// TestEvidence verifies the reasons and texts of events.
func TestEvidence(t *testing.T) {
	t.Parallel()
	rule := &table.Rule{Object: "httproute shop/web"}
	get := func(r proxy.Record) func(*evidenceOf) {
		r.Request = httptest.NewRequest(http.MethodGet, "http://shop.example/a%20b?secret=1", nil)
		r.Request.RemoteAddr, r.Host = "10.1.2.3:4000", "shop.example"
		return func(e *evidenceOf) { e.request(&r) }
	}
	for claim, test := range map[string]struct {
		tell                    func(*evidenceOf)
		reason, subject, detail string
	}{
		"an answer":      {get(proxy.Record{Status: 200, Rule: rule}), "ok", "shop.example/a%20b", "GET 200 httproute/shop/web"},
		"an upgrade":     {get(proxy.Record{Status: 101, Rule: rule}), "ok", "shop.example/a%20b", "GET 101 httproute/shop/web"},
		"a client error": {get(proxy.Record{Status: 404, Rule: rule}), "upstream-4xx", "shop.example/a%20b", "GET 404 httproute/shop/web"},
		"a server error": {get(proxy.Record{Status: 503, Rule: rule}), "upstream-5xx", "shop.example/a%20b", "GET 503 httproute/shop/web"},
		"no route":       {get(proxy.Record{Status: 404, Reason: proxy.NoRoute}), "no-route", "shop.example/a%20b", "GET 404"},
		"no endpoint": {
			get(proxy.Record{Status: 503, Reason: proxy.NoEndpoint, Rule: rule}), "no-endpoint", "shop.example/a%20b",
			"GET 503 httproute/shop/web",
		},
		"a rule": {
			get(proxy.Record{Status: 500, Reason: "Service shop/gone does not exist", Rule: rule}), "rule", "shop.example/a%20b",
			"GET 500 httproute/shop/web",
		},
		"a refusal": {
			func(e *evidenceOf) { e.refused(h1.Refusal{Remote: "10.1.2.3:4000", Reason: "TLS handshake failed"}) },
			"malformed", "", "TLS handshake failed",
		},
		"a connection": {
			func(e *evidenceOf) {
				e.passed(&stream.Record{Client: "10.1.2.3:4000", ServerName: "db.example", Listener: "l", Reason: stream.BrokenOff})
			},
			"broken-off", "db.example", "TCP",
		},
		"a connection without a name": {
			func(e *evidenceOf) { e.passed(&stream.Record{Client: "10.1.2.3:4000", Listener: "shop/web/db"}) },
			"ok", "shop/web/db", "TCP",
		},
		"a session": {
			func(e *evidenceOf) {
				e.session(&datagram.Record{Client: netip.MustParseAddrPort("10.1.2.3:4000"), Listener: "l", Reason: datagram.NoRoom})
			},
			"too-many-sessions", "l", "UDP",
		},
	} {
		ring := evidence.New(evidence.Config{Size: 10, OneIn: 1, Mask: evidence.MaskNone})
		e := newEvidence(ring, 1, nil)
		test.tell(&e)
		events := ring.Events()
		if len(events) != 1 {
			t.Errorf("%s: %d events, want 1", claim, len(events))
			continue
		}
		got := events[0]
		if got.Reason != test.reason || got.Subject != test.subject || got.Detail != test.detail || got.ClientText() != "10.1.2.3" {
			t.Errorf("%s: event %s of %s, %q %q; want %s, %q %q", claim, got.Reason, got.ClientText(), got.Subject, got.Detail,
				test.reason, test.subject, test.detail)
		}
	}
}

// TestEvidenceScheme verifies the scheme of requests, and that connections have none.
func TestEvidenceScheme(t *testing.T) {
	t.Parallel()
	request := func(url string) func(*evidenceOf) {
		// NewRequest sets TLS if the URL is one of https.
		r := &proxy.Record{Request: httptest.NewRequest(http.MethodGet, url, nil), Host: "shop.example", Status: 404}
		return func(e *evidenceOf) { e.request(r) }
	}
	for claim, test := range map[string]struct {
		tell   func(*evidenceOf)
		scheme string
	}{
		"a request":          {request("http://shop.example/"), "http"},
		"a request over TLS": {request("https://shop.example/"), "https"},
		"a connection":       {func(e *evidenceOf) { e.passed(&stream.Record{ServerName: "db.example"}) }, ""},
	} {
		ring := evidence.New(evidence.Config{Size: 10, OneIn: 1, Mask: evidence.MaskNone})
		e := newEvidence(ring, 1, nil)
		test.tell(&e)
		if events := ring.Events(); len(events) != 1 || events[0].Scheme != test.scheme {
			t.Errorf("%s: events %+v, want one with the scheme %q", claim, events, test.scheme)
		}
	}
}

// TestEvidenceReasons verifies that each reason has a word of its own and a meaning, and that of a record
// is known.
func TestEvidenceReasons(t *testing.T) {
	t.Parallel()
	words := make(map[string]bool)
	for _, r := range requestReasons {
		if r.Word == "" || r.Meaning == "" || words[r.Word] {
			t.Errorf("reason %+v is incomplete, or there twice", r)
		}
		words[r.Word] = true
		if r.of != "" && !proxy.Known(r.of) && !stream.Known(r.of) && !datagram.Known(r.of) {
			t.Errorf("reason %q is no record's", r.of)
		}
	}
}

// TestNoEvidence verifies that a gateway without evidence tells nothing.
func TestNoEvidence(t *testing.T) {
	t.Parallel()
	e := newEvidence(nil, 1, nil)
	e.refused(h1.Refusal{Remote: "10.1.2.3:4000"})
	e.session(&datagram.Record{Began: time.Now()})
}
