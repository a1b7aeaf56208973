package evidence

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/support/httpserver"
)

func newContext(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}

// get returns the response to a request.
func get(r *Ring, target string, header http.Header) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodGet, target, nil)
	request.Header = header
	w := httptest.NewRecorder()
	r.Pages()[request.URL.Path].ServeHTTP(&recorder{w}, request)
	return w
}

// recorder is a ResponseRecorder with deadlines.
type recorder struct{ *httptest.ResponseRecorder }

func (*recorder) SetWriteDeadline(time.Time) error { return nil }

// subjectsOf returns the subjects of events, one a line.
func subjectsOf(t *testing.T, lines string) string {
	t.Helper()
	var all []string
	for line := range strings.Lines(lines) {
		var e Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, e.Subject)
	}
	return strings.Join(all, " ")
}

func TestTailFilters(t *testing.T) {
	t.Parallel()
	r, s := newTest(Config{})
	drops := r.Source(SourceConfig{Kind: "drop", Reasons: []Reason{{Word: "policy"}}}).Sampler(0)
	record(r, s, usual, "Web.shop.")
	record(r, s, rare, "db.shop.")
	record(r, s, frequent, "web.other.")
	drops.Record(&Sample{Pod: "shop/web-0", Subject: []byte("192.0.2.1:80/TCP"), Time: time.Now()})
	for claim, test := range map[string]struct{ query, want string }{
		"all":                        {"", "Web.shop. db.shop. web.other. 192.0.2.1:80/TCP"},
		"a kind":                     {"kind=drop", "192.0.2.1:80/TCP"},
		"a reason":                   {"reason=rare", "db.shop."},
		"two reasons":                {"reason=rare,frequent", "db.shop. web.other."},
		"two reasons, one by one":    {"reason=rare&reason=ok", "Web.shop. db.shop."},
		"a subject in other case":    {"subject=WEB.", "Web.shop. web.other."},
		"a client":                   {"client=10.1.2.3", "Web.shop. db.shop. web.other."},
		"another client":             {"client=10.1.2.4", ""},
		"a prefix":                   {"client=10.1.0.0/16", "Web.shop. db.shop. web.other."},
		"a Pod":                      {"client=shop/web-0", "192.0.2.1:80/TCP"},
		"a subject and a reason":     {"subject=shop&reason=ok", "Web.shop."},
		"the last one":               {"limit=1&kind=query", "web.other."},
		"the last two of a reason":   {"limit=2&reason=rare", "db.shop."},
		"a kind without such events": {"kind=drop&subject=shop", ""},
	} {
		w := get(r, TailPath+"?"+test.query, nil)
		if got := subjectsOf(t, w.Body.String()); w.Code != http.StatusOK || got != test.want {
			t.Errorf("%s: GET %s?%s = %d %q, want %q", claim, TailPath, test.query, w.Code, got, test.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	r, _ := newTest(Config{})
	for target, want := range map[string]string{
		TailPath + "?kind=drop":               `kind: this process has no events of the kind "drop"`,
		TailPath + "?reason=rare,none":        `reason: this process has no events with the reason "none"`,
		TailPath + "?client=web-0":            `client: "web-0" is no address, prefix, or Pod as NAMESPACE/NAME`,
		TailPath + "?limit=-1":                `limit: "-1" is not a number from 1 to 65536`,
		TopPath + "?by=name":                  `by: "name" is not one of subject, client and route`,
		TopPath + "?limit=0":                  `limit: "0" is not a number from 1 to 65536`,
		TopPath + "?limit=many":               `limit: "many" is not a number from 1 to 65536`,
		TopPath + "?kind=query&reason=policy": `reason: this process has no events with the reason "policy"`,
	} {
		w := get(r, target, nil)
		var got map[string]string
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusBadRequest || got["error"] != want {
			t.Errorf("GET %s = %d %s, want the error %q", target, w.Code, w.Body, want)
		}
	}
}

func TestTopPage(t *testing.T) {
	t.Parallel()
	r, s := newTest(Config{})
	record(r, s, rare, "web.shop.")
	record(r, s, rare, "web.shop.")
	record(r, s, frequent, "db.shop.")
	for query, want := range map[string][]Item{
		"":                       {{"query", "rare", "web.shop.", 2, 2. / 3}, {"query", "frequent", "db.shop.", 1, 1. / 3}},
		"limit=1":                {{"query", "rare", "web.shop.", 2, 2. / 3}},
		"reason=frequent":        {{"query", "frequent", "db.shop.", 1, 1}},
		"reason=rare&by=client":  {{"query", "rare", "10.1.2.3", 2, 1}},
		"reason=rare&by=route":   {{"query", "rare", "by hand", 2, 1}},
		"kind=query&reason=ok":   {},
		"kind=query&reason=rare": {{"query", "rare", "web.shop.", 2, 1}},
	} {
		w := get(r, TopPath+"?"+query, nil)
		var got Top
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Errorf("GET %s?%s: %v", TopPath, query, err)
		}
		if diff := cmp.Diff(want, got.Items); diff != "" {
			t.Errorf("GET %s?%s (-want +got):\n%s", TopPath, query, diff)
		}
	}
}

// serveRing returns the address of a server with the pages of a Ring that runs.
func serveRing(t *testing.T, r *Ring) string {
	t.Helper()
	mux := http.NewServeMux()
	for path, page := range r.Pages() {
		mux.Handle(path, page)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	ctx, stop := newContext(t)
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return server.URL
}

// open sends a request and returns the scanner of its response.
func open(t *testing.T, target string, header http.Header) *bufio.Scanner {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return bufio.NewScanner(response.Body)
}

// TestFollow verifies that followers receive events as they come, and the last ones before.
func TestFollow(t *testing.T) {
	t.Parallel()
	r, s := newTest(Config{})
	at := serveRing(t, r)
	send := func(subject string) { s.Record(&Sample{Reason: rare, Subject: []byte(subject), Time: time.Now()}) }
	send("before")
	lines := open(t, at+TailPath+"?follow&reason=rare", nil)
	for _, want := range []string{"before", "second", "third"} {
		if want != "before" {
			send(want)
		}
		if !lines.Scan() || subjectsOf(t, lines.Text()) != want {
			t.Fatalf("line %q, want one with %q; %v", lines.Text(), want, lines.Err())
		}
	}
	events := open(t, at+TailPath, http.Header{"Accept": {"text/event-stream"}, "Last-Event-Id": {"2"}})
	send("fourth")
	for _, want := range []string{"third", "fourth"} {
		id, data, blank := scan(events), scan(events), scan(events)
		data, isData := strings.CutPrefix(data, "data: ")
		if !strings.HasPrefix(id, "id: ") || !isData || blank != "" || subjectsOf(t, data) != want {
			t.Fatalf("server-sent event %q %q %q, want %q", id, data, blank, want)
		}
	}
}

func scan(s *bufio.Scanner) string {
	s.Scan()
	return s.Text()
}

// TestSlowReader verifies that a reader that does not read misses events, which it is told, and
// that nobody waits for it.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	r, s := newTest(Config{Size: 10})
	_, f, leave := r.follow()
	defer leave()
	for range followerLen + 7 {
		record(r, s, rare, "x")
	}
	if got := f.missed.Load(); got != 7 || len(f.events) != followerLen {
		t.Errorf("%d events missed, %d wait; want 7 and %d", got, len(f.events), followerLen)
	}
	w := httptest.NewRecorder()
	for isStream, want := range map[bool]string{false: "{\"missed\":7}\n", true: "event: missed\ndata: 7\n\n"} {
		w.Body.Reset()
		p := tail{stream: httpserver.NewStream(&recorder{w}, "text/plain"), isStream: isStream}
		if err := p.writeMissed(7); err != nil || w.Body.String() != want {
			t.Errorf("writeMissed(7) of a stream (%t) writes %q, %v; want %q", isStream, w.Body, err, want)
		}
	}
}

// TestIdleRing verifies that a Ring without readers drains a seat before it is full.
func TestIdleRing(t *testing.T) {
	t.Parallel()
	r, s := newTest(Config{Size: 1000})
	serveRing(t, r)
	for range 10 {
		for range seatEvents / 2 {
			s.Record(&Sample{Subject: []byte("x"), Time: time.Now()})
		}
		drained := func() bool {
			s.seat.mu.Lock()
			defer s.seat.mu.Unlock()
			return len(s.seat.now.entries) == 0
		}
		for end := time.Now().Add(20 * time.Second); !drained(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the seat is not drained")
			}
		}
	}
	if _, dropped := s.source.figures(); dropped > 0 {
		t.Errorf("%d events dropped, want none", dropped)
	}
}

// FuzzPages requests pages with any parameters, of events with any texts.
func FuzzPages(f *testing.F) {
	f.Add("kind=query&reason=rare&client=10.0.0.0%2F8&limit=3", "web.shop.svc.cluster.local.")
	f.Add("by=route&subject=%00", "\x00\xff\u202e\n\r\x1b]0;")
	f.Fuzz(func(t *testing.T, query, subject string) {
		r, s := newTest(Config{})
		record(r, s, rare, subject)
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		values.Del(ParamFollow)
		for _, path := range []string{TailPath, TopPath} {
			w := get(r, path+"?"+values.Encode(), nil)
			for line := range strings.Lines(w.Body.String()) {
				if !json.Valid([]byte(line)) {
					t.Errorf("GET %s?%s: %q is not JSON", path, values.Encode(), line)
				}
			}
			if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
				t.Errorf("GET %s?%s: status %d", path, values.Encode(), w.Code)
			}
		}
	})
}
