package accesslog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/gateway/accesslog"
	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
)

// began is when the requests of tests began.
var began = time.Date(2026, time.March, 4, 5, 6, 7, 89_000_000, time.UTC)

// record returns what became of a request with these fields.
func record(target string, header http.Header) *proxy.Record {
	r := httptest.NewRequest(http.MethodGet, "http://shop.example/", nil)
	r.RequestURI, r.RemoteAddr, r.Header = target, "192.0.2.7:4321", header
	return &proxy.Record{
		Request: r, Listener: "Ingress", Host: "shop.example", Path: "/a",
		Rule:     &table.Rule{Object: "Ingress shop/web", Index: 2},
		Upstream: table.Upstream{Namespace: "shop", Service: "web", Port: 80},
		Endpoint: netip.MustParseAddrPort("10.244.1.7:8080"), Attempts: 1, Status: 200, Sent: 1234, Began: began,
		Duration: 1500 * time.Microsecond,
	}
}

// logged returns what a Log writes of what do logs.
func logged(t *testing.T, cfg accesslog.Config, do func(*accesslog.Log)) string {
	t.Helper()
	var out bytes.Buffer
	cfg.Out, cfg.Log = &out, slog.New(slog.DiscardHandler)
	l := accesslog.New(cfg)
	do(l)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestFormats has the lines of requests, which nothing in a request can break.
func TestFormats(t *testing.T) {
	t.Parallel()
	plain := record("/a?b=c", http.Header{"User-Agent": {"curl/8"}, "Referer": {"http://a.example/"}})
	hostile := record("/\"\\", http.Header{"User-Agent": {"a\"\\\x7f\xff\u0085\u2028ü\n"}})
	failed := record("/", nil)
	failed.Rule, failed.Upstream, failed.Endpoint, failed.Attempts = nil, table.Upstream{}, netip.AddrPort{}, 0
	failed.Status, failed.Reason, failed.Sent, failed.Listener = 404, proxy.NoListener, 0, ""
	tests := map[string]struct {
		format accesslog.Format
		record *proxy.Record
		want   string
	}{
		"nothing": {accesslog.Off, plain, ""},
		"JSON": {accesslog.JSON, plain, `{"time":"2026-03-04T05:06:07.089000Z","client":"192.0.2.7","peer":"192.0.2.7:4321",` +
			`"method":"GET","host":"shop.example","target":"/a?b=c","protocol":"HTTP/1.1","status":200,"sent":1234,` +
			`"duration":0.001500,"listener":"Ingress","route":"Ingress shop/web","rule":2,"upstream":"shop/web:80",` +
			`"endpoint":"10.244.1.7:8080","attempts":1,"referer":"http://a.example/","userAgent":"curl/8"}` + "\n"},
		"the reason of a failure in JSON": {accesslog.JSON, failed, `{"time":"2026-03-04T05:06:07.089000Z",` +
			`"client":"192.0.2.7","peer":"192.0.2.7:4321","method":"GET","host":"shop.example","target":"/",` +
			`"protocol":"HTTP/1.1","status":404,"reason":"no listener for the host","sent":0,"duration":0.001500}` + "\n"},
		"combined": {accesslog.Combined, plain, `192.0.2.7 - - [04/Mar/2026:05:06:07 +0000] "GET /a?b=c HTTP/1.1" 200 1234 ` +
			`"http://a.example/" "curl/8"` + "\n"},
		"a failure, combined": {accesslog.Combined, failed, `192.0.2.7 - - [04/Mar/2026:05:06:07 +0000] "GET / HTTP/1.1" 404 - ` +
			`"-" "-"` + "\n"},
		"hostile octets, combined": {accesslog.Combined, hostile, `192.0.2.7 - - [04/Mar/2026:05:06:07 +0000] ` +
			`"GET /\"\\ HTTP/1.1" 200 1234 "-" "a\"\\\x7f\xff\xc2\x85\xe2\x80\xa8\xc3\xbc\x0a"` + "\n"},
	}
	for claim, tt := range tests {
		got := logged(t, accesslog.Config{Format: tt.format}, func(l *accesslog.Log) { l.Request(tt.record) })
		if got != tt.want {
			t.Errorf("%s: logged\n%s\nwant\n%s", claim, got, tt.want)
		}
	}
	line := logged(t, accesslog.Config{Format: accesslog.JSON}, func(l *accesslog.Log) { l.Request(hostile) })
	var got struct{ Target, UserAgent string }
	if err := json.Unmarshal([]byte(line), &got); err != nil || strings.Count(line, "\n") != 1 {
		t.Fatalf("%q: %v", line, err)
	}
	if want := "a\"\\\x7f\ufffd\u0085\u2028ü\n"; got.Target != "/\"\\" || got.UserAgent != want {
		t.Errorf("the line has %+v, want the octets of the request", got)
	}
}

// TestRefused logs requests that were refused.
func TestRefused(t *testing.T) {
	t.Parallel()
	refusal := h1.Refusal{Remote: "[2001:db8::7]:4321", Status: 400, Reason: "method"}
	for format, want := range map[accesslog.Format]string{
		accesslog.Off: "", accesslog.JSON: `"client":"2001:db8::7","peer":"[2001:db8::7]:4321","status":400,"reason":"method"}`,
		accesslog.Combined: `] "-" 400 - "-" "-"`,
	} {
		got := logged(t, accesslog.Config{Format: format}, func(l *accesslog.Log) { l.Refused(refusal) })
		if !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, want %q in it", format, got, want)
		}
	}
}

// TestClient has who the client is, behind clients that are trusted.
func TestClient(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	tests := map[string]struct {
		trusted []netip.Prefix
		fields  []string
		want    string
	}{
		"nobody is trusted":           {nil, []string{"198.51.100.1"}, "192.0.2.7"},
		"the field is missing":        {trusted, nil, "192.0.2.7"},
		"one address":                 {trusted, []string{"198.51.100.1"}, "198.51.100.1"},
		"a forged one before it":      {trusted, []string{"203.0.113.1, 198.51.100.1"}, "198.51.100.1"},
		"trusted ones after it":       {trusted, []string{"198.51.100.1", "192.0.2.9, 2001:db8::1"}, "198.51.100.1"},
		"only trusted ones":           {trusted, []string{"192.0.2.9"}, "192.0.2.9"},
		"no address":                  {trusted, []string{"198.51.100.1, unknown"}, "192.0.2.7"},
		"no address before a trusted": {trusted, []string{"_hidden, 192.0.2.9"}, "192.0.2.9"},
	}
	for claim, tt := range tests {
		got := logged(t, accesslog.Config{Format: accesslog.Combined, Trusted: tt.trusted}, func(l *accesslog.Log) {
			l.Request(record("/", http.Header{"X-Forwarded-For": tt.fields}))
		})
		if client, _, _ := strings.Cut(got, " "); client != tt.want {
			t.Errorf("%s: the client of %q is %s, want %s", claim, tt.fields, client, tt.want)
		}
	}
}

// blocked is a writer that blocks until it is released.
type blocked struct {
	release chan struct{}
	mu      sync.Mutex
	written int
}

func (b *blocked) Write(p []byte) (int, error) {
	<-b.release
	b.mu.Lock()
	defer b.mu.Unlock()
	b.written += bytes.Count(p, []byte("\n"))
	return len(p), nil
}

// TestFull drops and counts lines that nobody takes, and the end of the process does not wait for them.
func TestFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &blocked{release: make(chan struct{})}
		var told bytes.Buffer
		l := accesslog.New(accesslog.Config{
			Out: out, Format: accesslog.Combined, Log: slog.New(slog.NewTextHandler(&told, nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = l.Run(ctx)
		}()
		const lines = 40_000 // of some 80 octets
		for range lines {
			l.Request(record("/", nil))
		}
		if dropped := l.Dropped(); dropped == 0 || dropped == lines {
			t.Errorf("%d of %d lines dropped, want those that do not fit", dropped, lines)
		}
		if n := strings.Count(told.String(), "lines of the access log are dropped"); n != 1 {
			t.Errorf("told %d times that lines are dropped, want once:\n%s", n, told.String())
		}
		cancel()
		<-ended
		close(out.release)
		synctest.Wait()
		if got := out.written + int(l.Dropped()); got != lines {
			t.Errorf("%d lines written or dropped, want %d", got, lines)
		}
	})
}

// TestSetFormat changes the format of later lines.
func TestSetFormat(t *testing.T) {
	t.Parallel()
	got := logged(t, accesslog.Config{Format: accesslog.Off}, func(l *accesslog.Log) {
		for _, f := range []accesslog.Format{accesslog.Off, accesslog.JSON, accesslog.Combined, accesslog.Off} {
			l.SetFormat(f)
			l.Request(record("/", nil))
		}
	})
	var first []string
	for line := range strings.Lines(got) {
		first = append(first, line[:1])
	}
	if want := []string{"{", "1"}; !reflect.DeepEqual(first, want) {
		t.Errorf("lines begin with %q, want %q", first, want)
	}
}

// BenchmarkRequest measures what a line costs.
func BenchmarkRequest(b *testing.B) {
	for _, format := range []accesslog.Format{accesslog.JSON, accesslog.Combined} {
		b.Run(string(format), func(b *testing.B) {
			l := accesslog.New(accesslog.Config{Out: io.Discard, Format: format, Log: slog.New(slog.DiscardHandler)})
			ctx, cancel := context.WithCancel(b.Context())
			var done sync.WaitGroup
			done.Go(func() { _ = l.Run(ctx) })
			r := record("/a?b=c", http.Header{"User-Agent": {"curl/8"}})
			b.ReportAllocs()
			for b.Loop() {
				l.Request(r)
			}
			cancel()
			done.Wait()
		})
	}
}
