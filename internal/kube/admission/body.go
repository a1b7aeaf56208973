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
	// maxBody is how long a review may be, in octets: it holds an object as it
	// was and as it will be, and the API server takes at most 3 MiB of JSON.
	maxBody = 7 << 20
	// octetsInFlight is how many octets of bodies there are at once, of those
	// that come and of those that are reviewed. Who asks is not known.
	octetsInFlight = 4 * maxBody
	// large reviews take a place that there is once. An object in memory is up to
	// ten times as long as its JSON.
	large = 1 << 20
)

// statusError is why a request is no review.
type statusError struct {
	status int
	reason string
}

func (e *statusError) Error() string { return e.reason }

// wrong makes a statusError.
func wrong(status int, format string, args ...any) *statusError {
	return &statusError{status, fmt.Sprintf(format, args...)}
}

// begin reads a request and takes a place for its review; done gives back the
// place, and the octets that the body takes.
func (h *Handler) begin(ctx context.Context, w http.ResponseWriter, r *http.Request) (request *admissionv1.AdmissionRequest, done func(), wrongly *statusError) {
	body := &metered{octets: &h.octets}
	text, wrongly := h.read(w, r, body)
	if wrongly != nil {
		body.giveBack()
		return nil, nil, wrongly
	}
	places := []chan struct{}{h.places}
	if len(text) > large {
		places = []chan struct{}{h.large, h.places}
	}
	done = body.giveBack
	for _, place := range places {
		select {
		case place <- struct{}{}:
		case <-ctx.Done():
			done()
			return nil, nil, wrong(http.StatusServiceUnavailable, "too many reviews at once")
		}
		before := done
		done = func() {
			<-place
			before()
		}
	}
	if request, wrongly = parse(text); wrongly != nil {
		done()
	}
	return request, done, wrongly
}

// metered counts the octets that are read among those of all bodies.
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

func (m *metered) giveBack() { m.octets.Add(-m.taken) }

// read reads the body of a request.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, body *metered) ([]byte, *statusError) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, wrong(http.StatusUnsupportedMediaType, "the body is not application/json")
	}
	if r.ContentLength > maxBody {
		return nil, wrong(http.StatusRequestEntityTooLarge, "the body is longer than %d octets", maxBody)
	}
	// Where it can't be set, the server's own limit holds.
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
		return nil, wrong(http.StatusBadRequest, "the body can't be read: %v", err)
	}
	return text, nil
}

// parse gives the request of a review.
func parse(body []byte) (*admissionv1.AdmissionRequest, *statusError) {
	review := new(admissionv1.AdmissionReview)
	if err := decode(body, review); err != nil {
		return nil, wrong(http.StatusBadRequest, "the body is no AdmissionReview: %v", err)
	}
	switch {
	case review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Kind != "AdmissionReview":
		return nil, wrong(http.StatusBadRequest, "the body is no AdmissionReview of %s", admissionv1.SchemeGroupVersion)
	case review.Request == nil || review.Request.UID == "":
		return nil, wrong(http.StatusBadRequest, "the AdmissionReview has no request with a uid")
	}
	return review.Request, nil
}

// decode reads JSON as the API server does: case matters.
func decode(data []byte, into any) error { return kjson.UnmarshalCaseSensitivePreserveInts(data, into) }
