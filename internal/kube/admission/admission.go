// Package admission is an admission webhook (admission.k8s.io/v1; Kubernetes
// documentation, "Dynamic Admission Control"). It mutates Pods that request the DNS
// policy ClusterFirstWithAutopath of the KEP "DNS Autopath in PodSpec", which no API
// server accepts, and it validates objects by the rules of package lint, with warnings
// or denials. It issues and renews its own certificate.
//
//	request ─► begin (limits, decode) ─► mutator or validator ─► verdict ─► respond
//	CertificateRotator ─► Secret, CA bundles ─► certificate of ReviewServer
//
// If in doubt it admits an object unchanged, with a warning: a cluster must be able to
// start Pods whatever the state of this webhook.
package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/pod/dnsconfig"
)

// Config configures the webhook.
type Config struct {
	Listen netip.AddrPort
	// Service is the Service through which the API server reaches the webhook. The
	// Secret in its Namespace and the two webhook configurations have its name.
	Service ServiceName
	// ClusterDNS and ClusterDomain are those of the cluster's kubelets. NodeDNS are
	// the addresses of the agent on each node, the first nameservers of Pods that get
	// the policy. AutopathSuffix ends their search domain, see dnsconfig.Node.
	ClusterDNS, NodeDNS []netip.Addr
	ClusterDomain       string
	AutopathSuffix      string
	// Timeout limits one review, MaxInFlight the number of concurrent reviews.
	Timeout     time.Duration
	MaxInFlight int
	// CertificateLife is the validity period of a certificate.
	CertificateLife time.Duration
	// Deny and Ignore are rules. Findings of all other rules are warnings.
	Deny, Ignore []string
}

// ServiceName identifies a Service.
type ServiceName struct{ Namespace, Name string }

// host returns the name that the API server requires in the certificate.
func (s ServiceName) host() string { return s.Name + "." + s.Namespace + ".svc" }

// ReviewObserver is notified of reviews.
type ReviewObserver interface {
	// Reviewed is called for each review that was answered; webhook is mutate or
	// validate.
	Reviewed(webhook, operation, resource, result string, took time.Duration)
	// Refused is called for requests that are not a review or exceed the limits.
	Refused()
}

// Results of reviews.
const (
	ResultUnchanged = "unchanged" // nothing to do, or no finding
	ResultChanged   = "changed"
	ResultWarned    = "warned"
	ResultDenied    = "denied"
	ResultFailed    = "failed" // admitted because the review failed
)

// verdict is the outcome of a review; the zero value admits the object.
type verdict struct {
	patch    []operation
	warnings []string
	denied   []string // reasons; empty admits the object
	failed   bool
}

func (v *verdict) result() string {
	switch {
	case v.failed:
		return ResultFailed
	case len(v.denied) > 0:
		return ResultDenied
	case len(v.patch) > 0:
		return ResultChanged
	case len(v.warnings) > 0:
		return ResultWarned
	}
	return ResultUnchanged
}

// review decides on a request. An error admits the object, with a warning.
type review func(context.Context, *admissionv1.AdmissionRequest) (verdict, error)

// Handler answers reviews over HTTP.
type Handler struct {
	timeout  time.Duration
	slots    chan struct{} // holds a token per review in flight
	large    chan struct{} // holds a token for the large review in flight
	octets   atomic.Int64  // of the bodies in memory
	warnings logLimit      // of objects admitted without a review
	observer ReviewObserver
	log      *slog.Logger
	mux      http.ServeMux
}

// NewHandler returns a Handler.
func NewHandler(cfg Config, namespaces Namespaces, observer ReviewObserver, log *slog.Logger) *Handler {
	return newHandler(cfg, namespaces, newAlone(&cfg).judge, observer, log)
}

func newHandler(cfg Config, namespaces Namespaces, of judge, observer ReviewObserver, log *slog.Logger) *Handler {
	h := &Handler{
		timeout:  cfg.Timeout,
		slots:    make(chan struct{}, cfg.MaxInFlight),
		large:    make(chan struct{}, 1),
		observer: observer,
		log:      log,
	}
	m := mutator{namespaces: newNamespaceCache(namespaces), node: dnsconfig.NodeSettings{
		ClusterDomain:  cfg.ClusterDomain,
		ClusterDNS:     slices.Concat(cfg.NodeDNS, cfg.ClusterDNS),
		AutopathSuffix: cfg.AutopathSuffix,
	}}
	v := validator{judge: of, deny: cfg.Deny, ignore: cfg.Ignore}
	h.mux.Handle("POST /mutate", h.answer("mutate", m.review))
	h.mux.Handle("POST /validate", h.answer("validate", v.review))
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// answer answers requests for one webhook. A request that is not a review gets an HTTP
// error, upon which the API server applies its failurePolicy.
func (h *Handler) answer(webhook string, do review) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(r.Context(), h.timeout)
		defer cancel()
		request, done, err := h.begin(ctx, w, r)
		if err != nil {
			h.observer.Refused()
			http.Error(w, err.Error(), err.status)
			return
		}
		v := h.bounded(ctx, request, do, done)
		if v.failed {
			if suppressed, allowed := h.warnings.allow(time.Now()); allowed {
				h.log.Warn("admitted without review", "webhook", webhook, "resource", resourceLabel(request),
					"namespace", plain(request.Namespace), "name", plain(request.Name), "reason", plain(v.warnings[0]),
					"suppressed", suppressed)
			}
		}
		write(w, respond(request, &v))
		h.observer.Reviewed(webhook, operationLabel(request), resourceLabel(request), v.result(), time.Since(began))
	})
}

// warningInterval is the shortest interval between warnings about objects that are
// admitted without a review.
const warningInterval = time.Second

// logLimit allows one log line per warningInterval.
type logLimit struct {
	mu         sync.Mutex
	next       time.Time
	suppressed int
}

// allow reports whether a line may be logged now, and how many were suppressed since
// the last one.
func (l *logLimit) allow(now time.Time) (suppressed int, allowed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.suppressed++
		return 0, false
	}
	suppressed, l.suppressed, l.next = l.suppressed, 0, now.Add(warningInterval)
	return suppressed, true
}

// bounded reviews a request until ctx is done. It calls done when the review has
// ended, which may be later.
func (h *Handler) bounded(ctx context.Context, r *admissionv1.AdmissionRequest, do review, done func()) verdict {
	made := make(chan verdict, 1)
	go func() {
		defer done()
		made <- h.safely(ctx, r, do)
	}()
	select {
	case v := <-made:
		return v
	case <-ctx.Done():
		return open(fmt.Errorf("no answer within %s", h.timeout))
	}
}

// safely turns an error or a panic of a review into a verdict that admits the object.
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
	response := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: len(v.denied) == 0, Warnings: first(v.warnings)}
	if len(v.denied) > 0 {
		response.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: strings.Join(first(v.denied), "; "),
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

// first returns the first texts of many, and the number of the rest. The API server
// forwards 4,096 characters of warnings (apiserver, endpoints/filters).
func first(texts []string) (said []string) {
	const most = 14 // of 256 octets each
	for _, text := range texts[:min(len(texts), most)] {
		said = append(said, plain(text))
	}
	if more := len(texts) - most; more > 0 {
		said = append(said, fmt.Sprintf("and %d more", more))
	}
	return said
}

// plain returns a warning in the form that the API server forwards: one line of at most
// 256 octets.
func plain(warning string) string {
	const most = 256
	cut := len(warning) > 4*most // and most characters are left, of four octets at most
	if cut {
		warning = warning[:4*most]
	}
	warning = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, warning)
	if len(warning) <= most && !cut {
		return warning
	}
	return strings.ToValidUTF8(warning[:most-3], "") + "..."
}

func write(w http.ResponseWriter, review *admissionv1.AdmissionReview) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) //nolint:errchkjson // the API server has gone
}

// operationLabel and resourceLabel return labels of metrics. They have few values,
// whatever clients send.
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
