package tracing

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
)

// The trace of the example in W3C Trace Context, section 3.2.2.
const (
	traceID  = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentID = "00f067aa0ba902b7"
)

// collector takes traces, unless broken.
type collector struct {
	*httptest.Server
	broken atomic.Bool
	got    chan *tracepb.TracesData
	head   http.Header
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{got: make(chan *tracepb.TracesData, 10)}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.broken.Load() {
			http.Error(w, "full", http.StatusServiceUnavailable)
			return
		}
		text, err := io.ReadAll(r.Body)
		data := new(tracepb.TracesData)
		if err != nil || proto.Unmarshal(text, data) != nil {
			http.Error(w, "malformed", http.StatusBadRequest)
			return
		}
		c.head = r.Header
		c.got <- data
	}))
	t.Cleanup(c.Close)
	return c
}

func newTracer(t *testing.T, c *collector, oneIn int, log io.Writer) *Tracer {
	t.Helper()
	tracer, err := New(Config{
		Endpoint: c.URL, Fields: "Api-Key=a%20b, x=y", OneIn: oneIn, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

// record is what became of a request to a Service.
func record(r *http.Request) *proxy.Record {
	return &proxy.Record{
		Request: r, Host: "shop.example", Path: "/cart", Rule: &table.Rule{Object: "HTTPRoute shop/web", Index: 2},
		Reason: proxy.Unreachable, Upstream: table.Upstream{Namespace: "shop", Service: "web", Port: 80},
		Endpoint: netip.MustParseAddrPort("10.0.0.1:8080"), Attempts: 3, Status: http.StatusBadGateway, Sent: 7,
		Began: time.Now(), Duration: time.Second,
	}
}

// TestSpan sends the span of a request that a client's trace has.
func TestSpan(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	tracer := newTracer(t, c, 1_000_000, io.Discard)
	r := httptest.NewRequest("PURGE", "/cart?secret=1", nil)
	r.Header.Set("traceparent", "00-"+traceID+"-"+parentID+"-01")
	r.Header.Set("tracestate", "vendor=value")
	span := tracer.Begin(r)
	parent, state := span.Fields()
	id, ok := strings.CutPrefix(parent, "00-"+traceID+"-")
	if !ok || !strings.HasSuffix(id, "-01") || strings.HasPrefix(id, parentID) || state != "vendor=value" {
		t.Errorf("the upstream gets %q and %q, want a span of the trace and its state", parent, state)
	}
	span.End(record(r))
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	data := <-c.got
	text := data.String()
	for _, want := range []string{
		`"portolan-gateway"`, `"_OTHER HTTPRoute shop/web"`, `"http.response.status_code"`, "int_value:502", `"no endpoint answered"`,
		`"10.0.0.1:8080"`, `"shop/web"`, `"/cart"`, `"192.0.2.1"`,
	} {
		if !strings.Contains(strings.ReplaceAll(text, ":  ", ":"), want) {
			t.Errorf("the collector gets %s, want %s", text, want)
		}
	}
	if strings.Contains(text, "secret") {
		t.Error("the collector gets the query")
	}
	got := data.ResourceSpans[0].ScopeSpans[0].Spans[0]
	if took := time.Duration(got.EndTimeUnixNano - got.StartTimeUnixNano); took < time.Second || took > 2*time.Second {
		t.Errorf("the span took %s, want 1s", took)
	}
	if c.head.Get("Api-Key") != "a b" || c.head.Get("X") != "y" {
		t.Errorf("the collector gets the fields %v", c.head)
	}
	if taken, lost := tracer.Sent(); taken != 1 || lost != 0 {
		t.Errorf("%d spans are taken and %d lost, want 1 and 0", taken, lost)
	}
}

// TestOctetsThatAreNoText: what a client sends that is no UTF-8 loses no spans.
func TestOctetsThatAreNoText(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	tracer := newTracer(t, c, 1, io.Discard)
	r := httptest.NewRequest(http.MethodGet, "/%ff", nil)
	r.Header.Set("User-Agent", "\xff")
	of := record(r)
	of.Host, of.Path = "\xff", "\xff"
	tracer.Begin(r).End(of)
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if taken, lost := tracer.Sent(); taken != 1 || lost != 0 {
		t.Errorf("%d spans are taken and %d lost, want 1 and 0", taken, lost)
	}
}

// TestSampling checks which requests are in traces: as the client says, else one in so many.
func TestSampling(t *testing.T) {
	t.Parallel()
	tracer := newTracer(t, newCollector(t), 4, io.Discard)
	sampled := func(parent string) (n int) {
		for range 4000 {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("traceparent", parent)
			if to, _ := tracer.Begin(r).Fields(); strings.HasSuffix(to, "-01") {
				n++
			}
		}
		return n
	}
	if n := sampled(""); n < 800 || n > 1200 {
		t.Errorf("%d of 4,000 requests are traced, want a fourth", n)
	}
	if n := sampled("00-" + traceID + "-" + parentID + "-00"); n != 0 {
		t.Errorf("%d requests are traced whose client says no", n)
	}
	if n := sampled("00-" + traceID + "-" + parentID + "-01"); n != 4000 {
		t.Errorf("%d of 4,000 requests are traced whose client says yes", n)
	}
	if n := sampled("00-zz"); n < 800 || n > 1200 {
		t.Errorf("%d of 4,000 requests are traced whose field is malformed, want a fourth", n)
	}
}

// TestBrokenCollector loses spans while the collector does not take them, and says so once.
func TestBrokenCollector(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	var log bytes.Buffer
	tracer := newTracer(t, c, 1, &log)
	send := func() {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		tracer.Begin(r).End(record(r))
		if err := tracer.provider.ForceFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c.broken.Store(true)
	send()
	send()
	c.broken.Store(false)
	send()
	if taken, lost := tracer.Sent(); taken != 1 || lost != 2 {
		t.Errorf("%d spans are taken and %d lost, want 1 and 2", taken, lost)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "503") ||
		!strings.Contains(log.String(), "takes traces again") {
		t.Errorf("the log says %q", log.String())
	}
}

// TestMalformedFields checks the error for the environment variable.
func TestMalformedFields(t *testing.T) {
	t.Parallel()
	for _, fields := range []string{"key", "=value", "key=%zz"} {
		if _, err := New(Config{OneIn: 1, Fields: fields}); err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_HEADERS") {
			t.Errorf("%q: %v, want an error that names the variable", fields, err)
		}
	}
}
