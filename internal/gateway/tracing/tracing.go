// Package tracing has a span for each request, in the trace that its client began or in one of its own (W3C Trace
// Context; OpenTelemetry, "Semantic conventions for HTTP spans"), and sends them to a collector.
//
//	proxy.Proxy ──Begin──► Tracer ──► Span ──End──► SDK: a queue ──► exporter ──OTLP──► collector
package tracing

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"portolan.dev/portolan/internal/gateway/proxy"
)

// Config is where spans go, and of which requests.
type Config struct {
	// Endpoint is the URL to which a collector takes traces over HTTP, such as http://collector:4318/v1/traces.
	Endpoint string
	// Fields are added to the head of each request to it, such as credentials, as the environment variable
	// OTEL_EXPORTER_OTLP_HEADERS has them: "name=value,name=value", values percent-encoded.
	Fields string
	// OneIn has one of so many requests be in a trace that no client began; 1 is all.
	OneIn int
	Log   *slog.Logger
}

// Tracer has a span for each request.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	exporter *exporter
}

// New returns a Tracer. Requests of a trace that their client began are in it if the client says that it is sampled.
// It returns an error if Fields are malformed.
func New(cfg Config) (*Tracer, error) {
	sampler := sdktrace.ParentBased(sdktrace.TraceIDRatioBased(1 / float64(cfg.OneIn)))
	e, err := newExporter(&cfg)
	if err != nil {
		return nil, err
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(e), sdktrace.WithSampler(sampler),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "portolan-gateway"))),
	)
	return &Tracer{provider, provider.Tracer("portolan.dev/portolan/internal/gateway"), e}, nil
}

// Close sends the spans that wait, until ctx is done.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Sent returns how many spans the collector took, and how many were lost because it did not.
func (t *Tracer) Sent() (taken, lost uint64) { return t.exporter.taken.Load(), t.exporter.lost.Load() }

// Begin implements proxy.Tracer.
func (t *Tracer) Begin(r *http.Request) proxy.Span {
	of := propagation.TraceContext{}
	ctx := of.Extract(context.Background(), propagation.HeaderCarrier(r.Header))
	ctx, s := t.tracer.Start(ctx, method(r), trace.WithSpanKind(trace.SpanKindServer))
	carrier := propagation.MapCarrier{}
	of.Inject(ctx, carrier)
	return &span{s, carrier["traceparent"], carrier["tracestate"]}
}

// span is the span of a request.
type span struct {
	trace.Span
	parent, state string
}

// Fields implements proxy.Span.
func (s *span) Fields() (parent, state string) { return s.parent, s.state }

// End implements proxy.Span.
func (s *span) End(of *proxy.Record) {
	defer s.Span.End(trace.WithTimestamp(of.Began.Add(of.Duration)))
	if !s.IsRecording() {
		return
	}
	s.SetAttributes(attributes(of)...)
	if of.Rule != nil {
		s.SetName(method(of.Request) + " " + of.Rule.Object)
	}
	if of.Status == 0 || of.Status >= http.StatusInternalServerError {
		s.SetStatus(codes.Error, string(of.Reason))
	}
}

// attributes returns what a span says of a request. Its query is left out, which may hold what must not be stored.
func attributes(of *proxy.Record) []attribute.KeyValue {
	r := of.Request
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	all := []attribute.KeyValue{
		attribute.String("http.request.method", method(r)), attribute.String("url.scheme", scheme),
		attribute.String("url.path", r.URL.EscapedPath()),
		attribute.String("server.address", strings.ToValidUTF8(of.Host, "?")),
		attribute.String("network.protocol.version", strconv.Itoa(r.ProtoMajor)+"."+strconv.Itoa(r.ProtoMinor)),
		attribute.Int64("http.response.body.size", of.Sent),
	}
	if client, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		all = append(all, attribute.String("client.address", client))
	}
	if agent := r.UserAgent(); agent != "" {
		all = append(all, attribute.String("user_agent.original", strings.ToValidUTF8(agent, "?")))
	}
	if of.Status != 0 {
		all = append(all, attribute.Int("http.response.status_code", of.Status))
	}
	if of.Reason != "" {
		all = append(all, attribute.String("portolan.reason", string(of.Reason)))
	}
	if of.Rule != nil {
		all = append(all, attribute.String("portolan.route", of.Rule.Object), attribute.Int("portolan.rule", of.Rule.Index))
	}
	if of.Attempts > 0 {
		all = append(
			all, attribute.Int("portolan.attempts", of.Attempts), attribute.String("portolan.endpoint", of.Endpoint.String()),
			attribute.String("portolan.service", of.Upstream.Namespace+"/"+of.Upstream.Service),
		)
	}
	return all
}

// method returns the method of a request, of which there are few.
func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return r.Method
	}
	return "_OTHER"
}
