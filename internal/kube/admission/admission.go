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

// Config is what the webhook goes by.
type Config struct {
	Listen netip.AddrPort
	// Service is what the API server reaches the webhook by. The Secret beside
	// it, and the two configurations that register the webhook, have its name.
	Service ServiceName
	// ClusterDNS and ClusterDomain are those of the cluster's kubelets. NodeDNS are
	// the addresses of the agent on each node, which Pods that get the policy ask
	// first; AutopathSuffix ends their search domain, see dnsconfig.Node.
	ClusterDNS, NodeDNS []netip.Addr
	ClusterDomain       string
	AutopathSuffix      string
	// Timeout bounds one review, MaxInFlight how many there are at once.
	Timeout     time.Duration
	MaxInFlight int
	// CertificateLife is how long a certificate is good.
	CertificateLife time.Duration
	// Deny and Ignore are rules; what the others find is a warning.
	Deny, Ignore []string
}

// ServiceName identifies a Service.
type ServiceName struct{ Namespace, Name string }

// host is the name that the API server wants in the certificate.
func (s ServiceName) host() string { return s.Name + "." + s.Namespace + ".svc" }

// ReviewObserver is told of reviews.
type ReviewObserver interface {
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
	denied   []string // why; none is allowed
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

// review answers a request. An error lets the object through, with a warning.
type review func(context.Context, *admissionv1.AdmissionRequest) (verdict, error)

// Handler answers reviews over HTTP.
type Handler struct {
	timeout  time.Duration
	places   chan struct{} // holds a token for each review under way
	large    chan struct{} // holds one for the large review that is under way
	octets   atomic.Int64  // of bodies that are held
	told     rarely        // of what was let through
	observer ReviewObserver
	log      *slog.Logger
	mux      http.ServeMux
}

// NewHandler makes a Handler.
func NewHandler(cfg Config, namespaces Namespaces, observer ReviewObserver, log *slog.Logger) *Handler {
	return newHandler(cfg, namespaces, newAlone(&cfg).judge, observer, log)
}

func newHandler(cfg Config, namespaces Namespaces, of judge, observer ReviewObserver, log *slog.Logger) *Handler {
	h := &Handler{timeout: cfg.Timeout, places: make(chan struct{}, cfg.MaxInFlight), large: make(chan struct{}, 1), observer: observer, log: log}
	m := mutator{namespaces: newKeptNamespaces(namespaces), node: dnsconfig.NodeSettings{
		ClusterDomain: cfg.ClusterDomain, ClusterDNS: slices.Concat(cfg.NodeDNS, cfg.ClusterDNS), AutopathSuffix: cfg.AutopathSuffix,
	}}
	v := validator{judge: of, deny: cfg.Deny, ignore: cfg.Ignore}
	h.mux.Handle("POST /mutate", h.answer("mutate", m.review))
	h.mux.Handle("POST /validate", h.answer("validate", v.review))
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// answer answers requests for one webhook. What is no review gets a status; the
// API server goes by its failurePolicy then.
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
			if untold, now := h.told.again(time.Now()); now {
				h.log.Warn("let through unreviewed", "webhook", webhook, "resource", resourceLabel(request),
					"namespace", plain(request.Namespace), "name", plain(request.Name), "reason", plain(v.warnings[0]), "untold", untold)
			}
		}
		write(w, respond(request, &v))
		h.observer.Reviewed(webhook, operationLabel(request), resourceLabel(request), v.result(), time.Since(began))
	})
}

// unreviewedEvery is how often the log tells of what is let through.
const unreviewedEvery = time.Second

// rarely has something told once in unreviewedEvery.
type rarely struct {
	mu     sync.Mutex
	next   time.Time
	untold int
}

// again says whether it is to be told now, and how often it was not since it
// last was.
func (r *rarely) again(now time.Time) (untold int, tell bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.next) {
		r.untold++
		return 0, false
	}
	untold, r.untold, r.next = r.untold, 0, now.Add(unreviewedEvery)
	return untold, true
}

// bounded reviews until ctx is done, and calls done when the review has ended,
// which may be later.
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

// first are the first texts of many, and how many more there are. The API server
// hands on 4,096 characters of warnings (apiserver, endpoints/filters).
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

// plain is a warning as the API server hands it on: one line, not too long.
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
