package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
)

// namespaces are Namespaces by name; others can't be read.
type namespaces map[string]*corev1.Namespace

func (n namespaces) Namespace(_ context.Context, name string) (*corev1.Namespace, error) {
	if n[name] == nil {
		return nil, errors.New("not found")
	}
	return n[name], nil
}

// seen keeps what a ReviewObserver is told.
type seen struct {
	mu      sync.Mutex
	results []string
	refused int
}

func (s *seen) Reviewed(webhook, operation, resource, result string, _ time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results = append(s.results, strings.Join([]string{webhook, operation, resource, result}, " "))
}

func (s *seen) Refused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused++
}

func (s *seen) last(t *testing.T) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.results) == 0 {
		t.Fatal("no review was told of")
	}
	return s.results[len(s.results)-1]
}

var settings = Config{
	ClusterDNS:    []netip.Addr{netip.MustParseAddr("10.96.0.10")},
	ClusterDomain: "cluster.local",
	Timeout:       time.Minute, // machines are crowded
	MaxInFlight:   8,
}

func newTestHandler(cfg Config, n namespaces) (*Handler, *seen) {
	s := new(seen)
	return NewHandler(cfg, n, s, slog.New(slog.DiscardHandler)), s
}

// newJudgedHandler has objects judged otherwise.
func newJudgedHandler(cfg Config, of judge) (*Handler, *seen) {
	s := new(seen)
	return newHandler(cfg, nil, of, s, slog.New(slog.DiscardHandler)), s
}

// request is one to create an object, in JSON.
func request(resource metav1.GroupVersionResource, namespace, object string) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		UID: "0a-1b", Resource: resource, Namespace: namespace, Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(object)},
	}
}

// ask sends a review, and gives the response.
func ask(t *testing.T, h http.Handler, path string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: r,
	})
	if err != nil {
		t.Fatal(err)
	}
	answer := post(h, path, "application/json", body)
	if answer.Code != http.StatusOK {
		t.Fatalf("POST %s: %d %s", path, answer.Code, answer.Body)
	}
	return responseOf(t, answer.Body.Bytes(), r)
}

func post(h http.Handler, path, media string, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", media)
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer
}

// responseOf reads an answer, and checks what all have in common.
func responseOf(t *testing.T, body []byte, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		t.Fatalf("answer %q: %v", body, err)
	}
	switch {
	case review.APIVersion != "admission.k8s.io/v1" || review.Kind != "AdmissionReview" || review.Response == nil:
		t.Fatalf("answer %q is no AdmissionReview with a response", body)
	case review.Response.UID != r.UID:
		t.Fatalf("answer to %q, want to %q", review.Response.UID, r.UID)
	case (review.Response.Patch == nil) != (review.Response.PatchType == nil):
		t.Fatalf("answer %q: a patch and its type come together", body)
	}
	for _, w := range review.Response.Warnings {
		if len(w) > 256 || strings.ContainsAny(w, "\n\r") {
			t.Errorf("warning %q is longer than 256 octets, or than a line", w)
		}
	}
	return review.Response
}

const aPod = `{"metadata": {"name": "p"}, "spec": {"dnsPolicy": "ClusterFirst"}}`

// TestInvalidReviews checks the status of requests that are not reviews.
func TestInvalidReviews(t *testing.T) {
	h, s := newTestHandler(settings, nil)
	const good = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1"}}`
	for claim, tt := range map[string]struct {
		method, path, media, body string
		status                    int
	}{
		"a review":               {"POST", "/mutate", "application/json", good, 200},
		"a review, with charset": {"POST", "/validate", "application/json; charset=utf-8", good, 200},
		"GET":                    {"GET", "/mutate", "", "", 405},
		"another path":           {"POST", "/", "application/json", good, 404},
		"another type":           {"POST", "/mutate", "application/yaml", good, 415},
		"no type":                {"POST", "/mutate", "", good, 415},
		"nothing":                {"POST", "/mutate", "application/json", "", 400},
		"no JSON":                {"POST", "/mutate", "application/json", "{", 400},
		"a list":                 {"POST", "/mutate", "application/json", "[]", 400},
		"two reviews":            {"POST", "/mutate", "application/json", good + good, 400},
		"another kind":           {"POST", "/mutate", "application/json", strings.Replace(good, "AdmissionReview", "Pod", 1), 400},
		"an older version":       {"POST", "/mutate", "application/json", strings.Replace(good, "/v1", "/v1beta1", 1), 400},
		"no request":             {"POST", "/mutate", "application/json", strings.Replace(good, "request", "response", 1), 400},
		"no uid":                 {"POST", "/mutate", "application/json", strings.Replace(good, `"1"`, `""`, 1), 400},
		"longer than any":        {"POST", "/mutate", "application/json", strings.Repeat(" ", maxBody+1), 413},
	} {
		before := s.refused
		r := httptest.NewRequest(tt.method, tt.path, strings.NewReader(tt.body))
		r.Header.Set("Content-Type", tt.media)
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		if answer.Code != tt.status {
			t.Errorf("%s: status %d %q, want %d", claim, answer.Code, answer.Body, tt.status)
		}
		if told := s.refused > before; told != (tt.status == 400 || tt.status == 413 || tt.status == 415) {
			t.Errorf("%s: told as refused: %t", claim, told)
		}
	}
}

// TestUnreviewableObjectsAreAdmitted checks that objects that cannot be reviewed are
// admitted with a warning.
func TestUnreviewableObjectsAreAdmitted(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	for claim, tt := range map[string]struct {
		path, object string
		judge        judge
		warning      string
	}{
		"a panic":         {"/validate", aPod, func(string, runtime.Object) []lint.Finding { panic("oh") }, "internal error"},
		"no answer":       {"/validate", aPod, func(string, runtime.Object) []lint.Finding { <-hang; return nil }, "no answer within 50ms"},
		"a strange Pod":   {"/mutate", `{"spec": {"dnsPolicy": 7}}`, nil, "cannot decode the Pod"},
		"no object":       {"/validate", `null`, nil, ""},
		"a strange field": {"/validate", `{"spec": []}`, nil, "cannot decode the object"},
		"no Namespace":    {"/mutate", aPod, nil, "read namespace shop: not found"},
	} {
		cfg := settings
		if claim == "no answer" {
			cfg.Timeout = 50 * time.Millisecond
		}
		h, s := newTestHandler(cfg, nil)
		if tt.judge != nil {
			h, s = newJudgedHandler(cfg, tt.judge)
		}
		response := ask(t, h, tt.path, request(pods, "shop", tt.object))
		if !response.Allowed || response.Patch != nil {
			t.Errorf("%s: %+v, want it let through unchanged", claim, response)
		}
		if tt.warning == "" {
			continue
		}
		if len(response.Warnings) != 1 || !strings.Contains(response.Warnings[0], tt.warning) {
			t.Errorf("%s: warnings %q, want %q", claim, response.Warnings, tt.warning)
		}
		if got := s.last(t); !strings.HasSuffix(got, " CREATE pods failed") {
			t.Errorf("%s: told %q", claim, got)
		}
	}
}

// TestMaxInFlight checks that a review that hangs counts towards the limit, and that
// requests above the limit are rejected in time.
func TestMaxInFlight(t *testing.T) {
	cfg := settings
	cfg.Timeout, cfg.MaxInFlight = 50*time.Millisecond, 2
	hang := make(chan struct{})
	h, s := newJudgedHandler(cfg, func(string, runtime.Object) []lint.Finding { <-hang; return nil })
	for range cfg.MaxInFlight {
		ask(t, h, "/validate", request(pods, "shop", aPod))
	}
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request(pods, "shop", aPod),
	})
	if err != nil {
		t.Fatal(err)
	}
	if answer := post(h, "/validate", "application/json", body); answer.Code != http.StatusServiceUnavailable || s.refused != 1 {
		t.Errorf("one more: %d %q, told of %d, want %d", answer.Code, answer.Body, s.refused, http.StatusServiceUnavailable)
	}
	close(hang)
	for range 2 * cfg.MaxInFlight { // the places come back
		h.slots <- struct{}{}
		<-h.slots
	}
}

// TestSlowBodies checks that a client that sends a review slowly delays no other.
func TestSlowBodies(t *testing.T) {
	cfg := settings
	cfg.MaxInFlight = 1
	h, _ := newTestHandler(cfg, nil)
	sent, slow := io.Pipe()
	ended := make(chan int)
	go func() {
		r := httptest.NewRequest(http.MethodPost, "/validate", sent)
		r.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		ended <- answer.Code
	}()
	if _, err := slow.Write([]byte("{")); err != nil { // it is being read
		t.Fatal(err)
	}
	ask(t, h, "/validate", request(pods, "shop", aPod))
	slow.Close()
	if code := <-ended; code != http.StatusBadRequest {
		t.Errorf("half a review: status %d, want %d", code, http.StatusBadRequest)
	}
}

// TestLargeReviewsAreSerialized checks that large reviews, which need many times their
// size in memory, are processed one at a time, and small ones concurrently.
func TestLargeReviewsAreSerialized(t *testing.T) {
	cfg := settings
	cfg.Timeout = 300 * time.Millisecond
	hang := make(chan struct{})
	h, s := newJudgedHandler(cfg, func(string, runtime.Object) []lint.Finding { <-hang; return nil })
	body := func(size int) []byte {
		text, err := json.Marshal(&admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request(pods, "shop", aPod),
		})
		if err != nil {
			t.Fatal(err)
		}
		return append(text, bytes.Repeat([]byte(" "), size)...)
	}
	for _, of := range []struct{ size, status int }{{large, 200}, {large, 503}, {0, 200}} {
		if answer := post(h, "/validate", "application/json", body(of.size)); answer.Code != of.status {
			t.Errorf("%d octets: status %d, want %d", of.size, answer.Code, of.status)
		}
	}
	if s.refused != 1 {
		t.Errorf("told of %d, want 1", s.refused)
	}
	close(hang)
	h.large <- struct{}{} // it comes back
}

// TestOctetsInFlight checks that request bodies in flight use no more memory than the
// limit, and release it.
func TestOctetsInFlight(t *testing.T) {
	cfg := settings
	cfg.MaxInFlight = 100
	h, s := newTestHandler(cfg, nil)
	begin := func() (code chan int, end func()) {
		sent, w := io.Pipe()
		code = make(chan int, 1)
		go func() {
			r := httptest.NewRequest(http.MethodPost, "/validate", sent)
			r.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, r)
			sent.Close()
			code <- answer.Code
		}()
		if _, err := w.Write(bytes.Repeat([]byte(" "), maxBody)); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
		return code, func() { w.Close() }
	}
	var codes []chan int
	var ends []func()
	for range octetsInFlight / maxBody {
		code, end := begin()
		codes, ends = append(codes, code), append(ends, end)
	}
	over, end := begin()
	if code := <-over; code != http.StatusServiceUnavailable || s.refused != 1 {
		t.Errorf("one more body: status %d, told of %d", code, s.refused)
	}
	end()
	for i := range codes {
		ends[i]()
		if code := <-codes[i]; code != http.StatusBadRequest {
			t.Errorf("body %d: status %d, want %d", i, code, http.StatusBadRequest)
		}
	}
	if left := h.octets.Load(); left != 0 {
		t.Errorf("%d octets are held in the end", left)
	}
	ask(t, h, "/validate", request(pods, "shop", aPod))
	for n := 0; n < 100 && h.octets.Load() != 0; n++ { // after the answer
		time.Sleep(10 * time.Millisecond)
	}
	if left := h.octets.Load(); left != 0 {
		t.Errorf("%d octets are held after a review", left)
	}
}

// TestResponseSizeLimit checks that a response with many findings is short and reports
// that there are more.
func TestResponseSizeLimit(t *testing.T) {
	var ports []string
	for len(ports) < 200_000 {
		ports = append(ports, `{"port": 80}`)
	}
	object := `{"metadata": {"name": "s"}, "spec": {"ports": [` + strings.Join(ports, ",") + `]}}`
	for _, deny := range [][]string{nil, {lint.ServicePortNames}} {
		cfg := settings
		cfg.Deny = deny
		h, _ := newTestHandler(cfg, nil)
		response := ask(t, h, "/validate", request(services, "shop", object))
		said := response.Warnings
		if deny != nil {
			if response.Allowed {
				t.Fatal("it is not denied")
			}
			said = []string{response.Result.Message}
		}
		text := strings.Join(said, "")
		if len(text) > 4<<10 || len(said) == 0 || !strings.Contains(said[len(said)-1], " more") {
			t.Errorf("deny %v: %d octets in %d texts, the last %q", deny, len(text), len(said), said[len(said)-1])
		}
	}
}

// TestUnreviewedObjectsAreLogged checks that log lines about objects admitted without
// review are short and few.
func TestUnreviewedObjectsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		h := NewHandler(settings, namespaces{}, new(seen), slog.New(slog.NewTextHandler(&text, nil)))
		r := request(pods, "shop", `{"spec": []}`)
		r.Name = letters(100_000)
		for range 100 {
			ask(t, h, "/validate", r)
		}
		time.Sleep(warningInterval)
		ask(t, h, "/validate", r)
		if n := strings.Count(text.String(), "\n"); n != 2 || text.Len() > 4<<10 {
			t.Errorf("%d lines of %d octets", n, text.Len())
		}
		if !strings.Contains(text.String(), "suppressed=99") {
			t.Errorf("the log does not say how many it left out: %s", &text)
		}
	})
}

// TestNamespacesAreCached checks that reviews of Pods in one Namespace read it once in a
// few seconds, that failures are not cached, and that the cache is limited.
func TestNamespacesAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		fails := true
		of := namespacesFunc(func(_ context.Context, name string) (*corev1.Namespace, error) {
			time.Sleep(time.Second)
			asked.Add(1)
			if fails {
				return nil, errors.New("no")
			}
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
		})
		k := newNamespaceCache(of)
		together := func(want int64) {
			t.Helper()
			before := asked.Load()
			for range 10 {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					if n, err := k.Namespace(ctx, "shop"); (err != nil) != fails || err == nil && n.Name != "shop" {
						t.Errorf("%v, %v", n, err)
					}
				}()
			}
			time.Sleep(1500 * time.Millisecond)
			synctest.Wait()
			if got := asked.Load() - before; got != want {
				t.Errorf("asked %d times, want %d", got, want)
			}
		}
		together(1)
		fails = false
		together(1)
		together(0)
		time.Sleep(namespaceTTL)
		together(1)

		// Who gives up does not take the answer from the others.
		time.Sleep(namespaceTTL)
		given, giveUp := context.WithCancel(t.Context())
		go func() { _, _ = k.Namespace(given, "shop") }()
		synctest.Wait()
		giveUp()
		if _, err := k.Namespace(t.Context(), "shop"); err != nil {
			t.Error(err)
		}
		for i := range 2 * maxNamespaces {
			go func() { _, _ = k.Namespace(t.Context(), fmt.Sprint("n", i)) }()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := len(k.kept); n > maxNamespaces {
			t.Errorf("%d Namespaces are kept", n)
		}
	})
}

type namespacesFunc func(context.Context, string) (*corev1.Namespace, error)

func (f namespacesFunc) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return f(ctx, name)
}

// FuzzBody checks that the response to any body is a status of 400 or above, or a
// review.
func FuzzBody(f *testing.F) {
	for _, path := range []string{"/mutate", "/validate"} {
		for _, object := range []string{
			aPod, `{"spec": {"dnsPolicy": "clusterFirstWithAutopath", "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]}}}`,
			`{"spec": {"type": "ExternalName", "externalName": "10.0.0.1"}}`, `null`, `[]`,
		} {
			for resource := range kinds {
				body, err := json.Marshal(&admissionv1.AdmissionReview{
					TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request(resource, "shop", object),
				})
				if err != nil {
					f.Fatal(err)
				}
				f.Add(path, body)
			}
		}
	}
	cfg := settings
	cfg.Timeout, cfg.Deny = 10*time.Second, []string{lint.ExternalNameAddress}
	autopath := map[string]string{policyKey: string(dnsconfig.ClusterFirstWithAutopath)}
	h, _ := newTestHandler(cfg, namespaces{"shop": {ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: autopath}}})
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		if path != "/mutate" && path != "/validate" {
			t.Skip()
		}
		answer := post(h, path, "application/json", body)
		var sent admissionv1.AdmissionReview
		err := decode(body, &sent)
		isReview := err == nil && sent.APIVersion == "admission.k8s.io/v1" && sent.Kind == "AdmissionReview" && sent.Request != nil && sent.Request.UID != ""
		if !isReview {
			if answer.Code < 400 || answer.Code >= 500 {
				t.Fatalf("status %d for what is no review: %v", answer.Code, err)
			}
			return
		}
		if answer.Code != http.StatusOK {
			t.Fatalf("status %d %s for a review", answer.Code, answer.Body)
		}
		response := responseOf(t, answer.Body.Bytes(), sent.Request)
		var patch []operation
		if response.Patch != nil && json.Unmarshal(response.Patch, &patch) != nil {
			t.Errorf("patch %q", response.Patch)
		}
		for _, warning := range response.Warnings {
			if strings.Contains(warning, "internal error") || strings.Contains(warning, "no answer within") {
				t.Errorf("warning %q", warning)
			}
		}
	})
}
