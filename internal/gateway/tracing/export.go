package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// exporter sends spans to a collector (OTLP/HTTP in protobuf). OpenTelemetry's own exporter would link gRPC and
// text/template, half of this program again (architecture.TestReflectMethod).
type exporter struct {
	endpoint    string
	fields      http.Header
	client      http.Client
	log         *slog.Logger
	failing     bool // the SDK exports one batch at a time
	taken, lost atomic.Uint64
}

func newExporter(cfg *Config) (*exporter, error) {
	const patience = 10 * time.Second
	e := &exporter{
		endpoint: cfg.Endpoint, fields: make(http.Header), client: http.Client{Timeout: patience}, log: cfg.Log,
	}
	for field := range strings.SplitSeq(cfg.Fields, ",") {
		if field == "" {
			continue
		}
		name, value, ok := strings.Cut(field, "=")
		text, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || name == "" || err != nil {
			return nil, errors.New(
				"OTEL_EXPORTER_OTLP_HEADERS is not such as name=value,name=value, with values percent-encoded",
			)
		}
		e.fields.Set(name, text)
	}
	e.fields.Set("Content-Type", "application/x-protobuf")
	return e, nil
}

// Shutdown implements sdktrace.SpanExporter.
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}

// ExportSpans implements sdktrace.SpanExporter. What the collector does not take is lost, and the first time and the
// last in a row are logged.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.send(ctx, spans)
	switch {
	case err != nil && !e.failing:
		e.log.Warn("the collector does not take traces; they are lost until it does", "err", err)
	case err == nil && e.failing:
		e.log.Info("the collector takes traces again")
	}
	if e.failing = err != nil; e.failing {
		e.lost.Add(uint64(len(spans)))
	} else {
		e.taken.Add(uint64(len(spans)))
	}
	return nil // else the SDK logs it
}

func (e *exporter) send(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	text, err := proto.Marshal(request(spans))
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.endpoint, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header = e.fields.Clone()
	response, err := e.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	const enough = 64 << 10
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, enough)); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("POST %s: %s", e.endpoint, response.Status)
	}
	return nil
}

// request returns spans, which all have the same resource and scope, as a request. On the wire a TracesData is an
// ExportTraceServiceRequest.
func request(spans []sdktrace.ReadOnlySpan) *tracepb.TracesData {
	first := spans[0]
	scope := &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: first.InstrumentationScope().Name}}
	for _, s := range spans {
		scope.Spans = append(scope.Spans, encoded(s))
	}
	return &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: keyValues(first.Resource().Attributes())},
		ScopeSpans: []*tracepb.ScopeSpans{scope},
	}}}
}

func encoded(s sdktrace.ReadOnlySpan) *tracepb.Span {
	id, of := s.SpanContext().SpanID(), s.SpanContext().TraceID()
	made := &tracepb.Span{
		TraceId: of[:], SpanId: id[:], TraceState: s.SpanContext().TraceState().String(), Name: s.Name(),
		Kind:              tracepb.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: uint64(s.StartTime().UnixNano()), EndTimeUnixNano: uint64(s.EndTime().UnixNano()),
		Attributes:             keyValues(s.Attributes()),
		DroppedAttributesCount: uint32(s.DroppedAttributes()),
	}
	if parent := s.Parent(); parent.HasSpanID() {
		id := parent.SpanID()
		made.ParentSpanId = id[:]
	}
	if status := s.Status(); status.Code == codes.Error {
		made.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: status.Description}
	}
	return made
}

// keyValues encodes attributes, which are texts and integers.
func keyValues(all []attribute.KeyValue) (made []*commonpb.KeyValue) {
	for _, a := range all {
		value := &commonpb.AnyValue{}
		if a.Value.Type() == attribute.INT64 {
			value.Value = &commonpb.AnyValue_IntValue{IntValue: a.Value.AsInt64()}
		} else {
			value.Value = &commonpb.AnyValue_StringValue{StringValue: a.Value.AsString()}
		}
		made = append(made, &commonpb.KeyValue{Key: string(a.Key), Value: value})
	}
	return made
}
