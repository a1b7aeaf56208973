package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	kjson "sigs.k8s.io/json"
)

const (
	// maxBody is the greatest length of a review in octets. It holds the old and the
	// new object, and the API server accepts at most 3 MiB of JSON.
	maxBody = 7 << 20
	// octetsInFlight limits the octets of all bodies being read or reviewed. Clients
	// are not authenticated.
	octetsInFlight = 4 * maxBody
	// Only one review longer than large is in flight at a time: an object in memory is
	// up to ten times as long as its JSON.
	large = 1 << 20
)

// statusError is the reason why a request is refused, with its HTTP status.
type statusError struct {
	status int
	reason string
}

func (e *statusError) Error() string { return e.reason }

// wrong returns a statusError.
func wrong(status int, format string, args ...any) *statusError {
	return &statusError{status, fmt.Sprintf(format, args...)}
}

// begin reads a request and acquires a slot for its review; done releases the slot and
// the octets of the body.
func (h *Handler) begin(
	ctx context.Context,
	w http.ResponseWriter,
	r *http.Request,
) (request *admissionv1.AdmissionRequest, done func(), wrongly *statusError) {
	body := &metered{octets: &h.octets}
	text, wrongly := h.read(w, r, body)
	if wrongly != nil {
		body.release()
		return nil, nil, wrongly
	}
	slots := []chan struct{}{h.slots}
	if len(text) > large {
		slots = []chan struct{}{h.large, h.slots}
	}
	done = body.release
	for _, slot := range slots {
		select {
		case slot <- struct{}{}:
		case <-ctx.Done():
			done()
			return nil, nil, wrong(http.StatusServiceUnavailable, "too many reviews at once")
		}
		before := done
		done = func() {
			<-slot
			before()
		}
	}
	if request, wrongly = parse(text); wrongly != nil {
		done()
	}
	return request, done, wrongly
}

// metered counts the octets that it reads towards octetsInFlight.
type metered struct {
	from   io.Reader
	octets *atomic.Int64
	taken  int64
}

var errFull = errors.New("too many octets at once")

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	m.taken += int64(n)
	if m.octets.Add(int64(n)) > octetsInFlight {
		return n, errFull
	}
	return n, err
}

func (m *metered) release() { m.octets.Add(-m.taken) }

// read returns the body of a request.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, body *metered) ([]byte, *statusError) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, wrong(http.StatusUnsupportedMediaType, "the body is not application/json")
	}
	if r.ContentLength > maxBody {
		return nil, wrong(http.StatusRequestEntityTooLarge, "the body is longer than %d octets", maxBody)
	}
	// If it cannot be set, the server's own limit applies.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.timeout))
	body.from = http.MaxBytesReader(w, r.Body, maxBody)
	text, err := io.ReadAll(body)
	long := (*http.MaxBytesError)(nil)
	switch {
	case errors.As(err, &long):
		return nil, wrong(http.StatusRequestEntityTooLarge, "the body is longer than %d octets", maxBody)
	case errors.Is(err, errFull):
		return nil, wrong(http.StatusServiceUnavailable, "too many octets at once")
	case err != nil:
		return nil, wrong(http.StatusBadRequest, "cannot read the body: %v", err)
	}
	return text, nil
}

// parse returns the request of a review.
func parse(body []byte) (*admissionv1.AdmissionRequest, *statusError) {
	review := new(admissionv1.AdmissionReview)
	if err := decode(body, review); err != nil {
		return nil, wrong(http.StatusBadRequest, "the body is not an AdmissionReview: %v", err)
	}
	switch {
	case review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Kind != "AdmissionReview":
		return nil, wrong(http.StatusBadRequest, "the body is not an AdmissionReview of %s", admissionv1.SchemeGroupVersion)
	case review.Request == nil || review.Request.UID == "":
		return nil, wrong(http.StatusBadRequest, "the AdmissionReview has no request with a uid")
	}
	return review.Request, nil
}

// decode decodes JSON as the API server does, with case-sensitive field names.
func decode(data []byte, into any) error { return kjson.UnmarshalCaseSensitivePreserveInts(data, into) }
