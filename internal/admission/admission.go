// Package admission answers the API server's admission reviews
// (admission.k8s.io/v1). It gives Pods that want it the DNS policy
// ClusterFirstWithAutopath of the KEP DNS Autopath in PodSpec, which no API
// server takes; and it warns of objects, or denies them, whose users would meet
// trouble with names. It makes and renews its own certificate.
//
// Where it is in doubt it lets an object through unchanged, with a warning: a
// cluster must be able to start Pods whatever becomes of this webhook.
package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"
	"unicode"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// Config is what the webhook goes by.
type Config struct {
	Listen netip.AddrPort
	// Service is what the API server reaches the webhook by. The Secret beside
	// it, and the two configurations that register the webhook, have its name.
	Service Service
	// ClusterDNS and ClusterDomain are those of the cluster's kubelets.
	ClusterDNS    []netip.Addr
	ClusterDomain string
	// Timeout bounds one review, MaxInFlight how many there are at once.
	Timeout     time.Duration
	MaxInFlight int
	// CertificateLife is how long a certificate is good.
	CertificateLife time.Duration
	// Deny and Ignore are rules; what the others find is a warning.
	Deny, Ignore []string
}

// Service names a Service.
type Service struct{ Namespace, Name string }

// host is the name that the API server wants in the certificate.
func (s Service) host() string { return s.Name + "." + s.Namespace + ".svc" }

// Observer is told of reviews.
type Observer interface {
	// Reviewed is told of each that was answered; webhook is mutate or validate.
	Reviewed(webhook, operation, resource, result string, took time.Duration)
	// Refused is told of requests that are no review, or had no place.
	Refused()
}

// Results of reviews.
const (
	ResultUnchanged = "unchanged" // there was nothing to do, or nothing was found
	ResultChanged   = "changed"
	ResultWarned    = "warned"
	ResultDenied    = "denied"
	ResultFailed    = "failed" // let through, since it could not be reviewed
)

// verdict is what came of a review; the zero value lets the object through.
type verdict struct {
	patch    []operation
	warnings []string
	denied   string // why; "" is allowed
	failed   bool
}

func (v *verdict) result() string {
	switch {
	case v.failed:
		return ResultFailed
	case v.denied != "":
		return ResultDenied
	case len(v.patch) > 0:
		return ResultChanged
	case len(v.warnings) > 0:
		return ResultWarned
	}
	return ResultUnchanged
}

// review answers a request. An error lets the object through, with a warning.
type review func(context.Context, *admissionv1.AdmissionRequest) (verdict, error)

// Handler answers reviews over HTTP.
type Handler struct {
	timeout  time.Duration
	places   chan struct{} // holds a token for each review under way
	observer Observer
	log      *slog.Logger
	mux      http.ServeMux
}

// NewHandler makes a Handler.
func NewHandler(cfg Config, namespaces Namespaces, observer Observer, log *slog.Logger) *Handler {
	return newHandler(cfg, namespaces, newAlone(&cfg).judge, observer, log)
}

func newHandler(cfg Config, namespaces Namespaces, of judge, observer Observer, log *slog.Logger) *Handler {
	h := &Handler{timeout: cfg.Timeout, places: make(chan struct{}, cfg.MaxInFlight), observer: observer, log: log}
	m := mutator{namespaces: namespaces, clusterDNS: cfg.ClusterDNS, clusterDomain: cfg.ClusterDomain}
	v := validator{judge: of, deny: cfg.Deny, ignore: cfg.Ignore}
	h.mux.Handle("POST /mutate", h.answer("mutate", m.review))
	h.mux.Handle("POST /validate", h.answer("validate", v.review))
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// maxBody is how long a review may be, in octets: it holds an object as it was
// and as it will be, and the API server takes at most 3 MiB of JSON.
const maxBody = 7 << 20

// answer answers requests for one webhook. What is no review gets a status; the
// API server goes by its failurePolicy then.
func (h *Handler) answer(webhook string, do review) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(r.Context(), h.timeout)
		defer cancel()
		select {
		case h.places <- struct{}{}:
		case <-ctx.Done():
			h.observer.Refused()
			http.Error(w, "too many reviews at once", http.StatusServiceUnavailable)
			return
		}
		request, err := h.read(w, r)
		if err != nil {
			<-h.places
			h.observer.Refused()
			http.Error(w, err.Error(), err.status)
			return
		}
		v := h.bounded(ctx, request, do) // gives the place back
		if v.failed {
			h.log.Warn("let through unreviewed", "webhook", webhook, "resource", request.Resource.Resource,
				"namespace", request.Namespace, "name", request.Name, "reason", v.warnings[0])
		}
		write(w, respond(request, &v))
		h.observer.Reviewed(webhook, operationLabel(request), resourceLabel(request), v.result(), time.Since(began))
	})
}

// statusError is why a request is no review.
type statusError struct {
	status int
	reason string
}

func (e *statusError) Error() string { return e.reason }

func (h *Handler) read(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionRequest, *statusError) {
	wrong := func(status int, format string, args ...any) (*admissionv1.AdmissionRequest, *statusError) {
		return nil, &statusError{status, fmt.Sprintf(format, args...)}
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return wrong(http.StatusUnsupportedMediaType, "the body is not application/json")
	}
	// Where it can't be set, the server's own limit holds.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.timeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
		return wrong(http.StatusRequestEntityTooLarge, "the body is longer than %d octets", maxBody)
	} else if err != nil {
		return wrong(http.StatusBadRequest, "the body can't be read: %v", err)
	}
	review := new(admissionv1.AdmissionReview)
	if err := decode(body, review); err != nil {
		return wrong(http.StatusBadRequest, "the body is no AdmissionReview: %v", err)
	}
	switch {
	case review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Kind != "AdmissionReview":
		return wrong(http.StatusBadRequest, "the body is no AdmissionReview of %s", admissionv1.SchemeGroupVersion)
	case review.Request == nil || review.Request.UID == "":
		return wrong(http.StatusBadRequest, "the AdmissionReview has no request with a uid")
	}
	return review.Request, nil
}

// decode reads JSON as the API server does: case matters.
func decode(data []byte, into any) error { return kjson.UnmarshalCaseSensitivePreserveInts(data, into) }

// bounded reviews until ctx is done. A review that goes on keeps its place.
func (h *Handler) bounded(ctx context.Context, r *admissionv1.AdmissionRequest, do review) verdict {
	done := make(chan verdict, 1)
	go func() {
		defer func() { <-h.places }()
		done <- h.safely(ctx, r, do)
	}()
	select {
	case v := <-done:
		return v
	case <-ctx.Done():
		return open(fmt.Errorf("no answer within %s", h.timeout))
	}
}

// safely makes an error, or a panic, a verdict that lets the object through.
func (h *Handler) safely(ctx context.Context, r *admissionv1.AdmissionRequest, do review) (v verdict) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("panic in a review", "panic", p, "stack", string(debug.Stack()))
			v = open(errors.New("internal error"))
		}
	}()
	v, err := do(ctx, r)
	if err != nil {
		return open(err)
	}
	return v
}

func open(err error) verdict {
	return verdict{failed: true, warnings: []string{"portolan did not review this: " + err.Error()}}
}

func respond(r *admissionv1.AdmissionRequest, v *verdict) *admissionv1.AdmissionReview {
	response := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: v.denied == ""}
	for _, warning := range v.warnings {
		response.Warnings = append(response.Warnings, plain(warning))
	}
	if v.denied != "" {
		response.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: v.denied,
		}
	}
	if len(v.patch) > 0 {
		response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		response.Patch = encode(v.patch)
	}
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: response,
	}
}

// plain is a warning as the API server hands it on: one line, not too long.
func plain(warning string) string {
	const most = 256
	warning = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, warning)
	if len(warning) <= most {
		return warning
	}
	return strings.ToValidUTF8(warning[:most-3], "") + "..."
}

func write(w http.ResponseWriter, review *admissionv1.AdmissionReview) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the API server has gone, and nobody is there to be told
}

// operationLabel and resourceLabel are what metrics tell: few words, whoever asks.
func operationLabel(r *admissionv1.AdmissionRequest) string {
	switch r.Operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
		return string(r.Operation)
	}
	return "other"
}

func resourceLabel(r *admissionv1.AdmissionRequest) string {
	if _, known := kinds[r.Resource]; known && r.SubResource == "" {
		return r.Resource.Resource
	}
	return "other"
}
