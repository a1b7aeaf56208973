package h1

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// deadlines is a ResponseWriter that must not be used any more when the handler has ended.
type deadlines struct {
	*httptest.ResponseRecorder
	t     *testing.T
	ended bool
	set   int
}

func (d *deadlines) note() error {
	if d.set++; d.ended {
		d.t.Error("the writer is used after the end of the handler")
	}
	return nil
}

func (d *deadlines) SetReadDeadline(time.Time) error  { return d.note() }
func (d *deadlines) SetWriteDeadline(time.Time) error { return d.note() }

// TestEndedStream: what comes when the handler has ended, such as a timer, does not reach the server's writer.
func TestEndedStream(t *testing.T) {
	t.Parallel()
	w := &deadlines{ResponseRecorder: httptest.NewRecorder(), t: t}
	p, r := paced(&Limits{Rate: 1, Grace: time.Hour}, w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("a")))
	if _, err := io.ReadAll(r.Body); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	control := http.NewResponseController(p)
	if err := control.SetWriteDeadline(longAgo); err != nil || w.set != 1 {
		t.Errorf("%v, %d deadlines are set, want 1", err, w.set)
	}
	p.done()
	w.ended = true
	if control.SetWriteDeadline(longAgo) == nil || control.SetReadDeadline(longAgo) == nil ||
		r.Body.(*pacedBody).SetReadDeadline(longAgo) == nil {
		t.Error("a deadline is set after the end of the handler, want an error")
	}
}

// TestWithin checks times for bodies of any size.
func TestWithin(t *testing.T) {
	t.Parallel()
	l := &Limits{Rate: 240, Grace: 20 * time.Second}
	for octets, want := range map[int64]time.Duration{
		0: 20 * time.Second, 240: 21 * time.Second, 24_000_000_000: 20*time.Second + 100_000_000*time.Second,
		math.MaxInt64: 20*time.Second + 100*365*24*time.Hour,
	} {
		if got := l.within(octets); got != want {
			t.Errorf("%d octets: %s, want %s", octets, got, want)
		}
	}
}
