package healthcheck

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
)

// limit is how long changes may wait in tests, as in kube-proxy's.
const limit = 10 * time.Second

// begin is the time at which tests begin.
var begin = time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)

// probesTest is a Probes with a clock, and what it has responded.
type probesTest struct {
	health *Health
	now    time.Time
	node   *cluster.Node
	counts map[string]int
	pages  http.Handler
}

func newProbesTest() *probesTest {
	p := &probesTest{now: begin, node: new(cluster.Node), counts: make(map[string]int)}
	p.health = NewHealth(limit, func() time.Time { return p.now })
	probes := &Probes{
		Health: p.health, Node: func() *cluster.Node { return p.node },
		Observe: func(path string, code int) { p.counts[fmt.Sprint(path, " ", code)]++ },
	}
	p.pages = probes.Handler()
	return p
}

// get requests a page and checks the header.
func (p *probesTest) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	p.pages.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	if got := w.Header(); got.Get("Content-Type") != "application/json" || got.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("GET %s: header %v", path, got)
	}
	return w.Code, w.Body.String()
}

// What happens in a case of TestProbes.
var (
	queued4  = func(p *probesTest) { p.health.Queued(cluster.IPv4) }
	queued6  = func(p *probesTest) { p.health.Queued(cluster.IPv6) }
	updated4 = func(p *probesTest) { p.health.Updated(cluster.IPv4) }
	updated6 = func(p *probesTest) { p.health.Updated(cluster.IPv6) }
	later    = func(p *probesTest) { p.now = p.now.Add(25 * time.Second) }
	soon     = func(p *probesTest) { p.now = p.now.Add(5 * time.Second) }
	leaving  = func(p *probesTest) { p.node = &cluster.Node{Leaving: true} }
	stays    = func(p *probesTest) { p.node = new(cluster.Node) }
	noNode   = func(p *probesTest) { p.node = nil }
)

// familyState is what a response should say about a family; zero if it has never been updated.
type familyState struct {
	updated time.Duration // after begin
	state   string        // "" for none, "late" or "well"
}

// TestProbes replays testProxyHealthUpdater of kube-proxy's healthcheck_test.go from its first
// step to its last, in order, with TestHealthzServer's and TestLivezServer's steps after it, and
// compares whole bodies with what encoding/json makes of kube-proxy's ProxyHealth.
func TestProbes(t *testing.T) {
	t.Parallel()
	type steps []func(*probesTest)
	p := newProbesTest()
	const s = time.Second
	for i, step := range []struct {
		claim         string
		do            steps
		ipv4, ipv6    familyState
		last          time.Duration // after begin, where unhealthy
		ineligible    bool
		healthz, live int
	}{
		{"healthy by default", nil, familyState{}, familyState{}, 0, false, 200, 200},
		{"healthy after the first updates", steps{updated4, updated6}, familyState{0, "well"}, familyState{0, "well"}, 0, false, 200, 200},
		{"healthy while nothing is queued", steps{later}, familyState{0, "well"}, familyState{0, "well"}, 0, false, 200, 200},
		{"IPv4 is late", steps{queued4, later}, familyState{0, "late"}, familyState{0, "well"}, 0, false, 503, 503},
		{"both were updated", steps{updated4, updated6, soon}, familyState{50 * s, "well"}, familyState{50 * s, "well"}, 0, false, 200, 200},
		{"IPv6 is late", steps{queued6, later}, familyState{50 * s, "well"}, familyState{50 * s, "late"}, 50 * s, false, 503, 503},
		{"both were updated again", steps{updated4, updated6, soon}, familyState{80 * s, "well"}, familyState{80 * s, "well"}, 0, false, 200, 200},
		{"both are late", steps{queued4, queued6, later}, familyState{80 * s, "late"}, familyState{80 * s, "late"}, 80 * s, false, 503, 503},
		{"both were updated a third time", steps{updated4, updated6, soon}, familyState{110 * s, "well"}, familyState{110 * s, "well"}, 0, false, 200, 200},
		{"IPv6 alone is late", steps{queued6, later}, familyState{110 * s, "well"}, familyState{110 * s, "late"}, 110 * s, false, 503, 503},
		{"an update of IPv4 does not help IPv6", steps{updated4}, familyState{140 * s, "well"}, familyState{110 * s, "late"}, 140 * s, false, 503, 503},
		{"IPv6 was updated", steps{updated6}, familyState{140 * s, "well"}, familyState{140 * s, "well"}, 0, false, 200, 200},
		{"both are late again", steps{queued4, queued6, later}, familyState{140 * s, "late"}, familyState{140 * s, "late"}, 140 * s, false, 503, 503},
		{"one update of two", steps{updated4}, familyState{165 * s, "well"}, familyState{140 * s, "late"}, 165 * s, false, 503, 503},
		{"the other one", steps{updated6}, familyState{165 * s, "well"}, familyState{165 * s, "well"}, 0, false, 200, 200},
		{"a change that is not late", steps{queued4, soon}, familyState{165 * s, "well"}, familyState{165 * s, "well"}, 0, false, 200, 200},
		{"a second change does not hide the first", steps{queued4, soon}, familyState{165 * s, "late"}, familyState{165 * s, "well"}, 165 * s, false, 503, 503},
		{"it was made", steps{updated4}, familyState{175 * s, "well"}, familyState{165 * s, "well"}, 0, false, 200, 200},
		{"the node is leaving", steps{leaving}, familyState{175 * s, "well"}, familyState{165 * s, "well"}, 175 * s, true, 503, 200},
		{"the node stays", steps{stays}, familyState{175 * s, "well"}, familyState{165 * s, "well"}, 0, false, 200, 200},
		{"the node is gone", steps{noNode}, familyState{175 * s, "well"}, familyState{165 * s, "well"}, 175 * s, true, 503, 200},
	} {
		for _, do := range step.do {
			do(p)
		}
		at := func(d time.Duration) string { return begin.Add(d).Format(time.RFC3339Nano) }
		now := p.now.Format(time.RFC3339Nano)
		var families []string
		for _, f := range []struct {
			name string
			familyState
		}{{"IPv4", step.ipv4}, {"IPv6", step.ipv6}} {
			if f.state != "" {
				families = append(families, fmt.Sprintf(`"%s":{"lastUpdated":"%s","healthy":%v}`, f.name, at(f.updated), f.state == "well"))
			}
		}
		status := ""
		if families != nil {
			status = `,"status":{` + strings.Join(families, ",") + `}`
		}
		for path, page := range map[string]struct {
			code     int
			eligible string
		}{
			"/healthz": {step.healthz, fmt.Sprintf(`"nodeEligible":%v,`, !step.ineligible)},
			"/livez":   {step.live, ""},
		} {
			last := now
			if page.code != http.StatusOK {
				last = at(step.last)
			}
			want := fmt.Sprintf(`{"lastUpdated":"%s","currentTime":"%s",%s"healthy":%v%s}`, last, now, page.eligible, step.live == 200, status)
			if code, body := p.get(t, path); code != page.code || body != want {
				t.Errorf("%d, %s: GET %s = %d\n%s, want %d\n%s", i, step.claim, path, code, body, page.code, want)
			}
		}
	}
	for response, want := range map[string]int{"/healthz 200": 11, "/healthz 503": 10, "/livez 200": 13, "/livez 503": 8} {
		if p.counts[response] != want {
			t.Errorf("%d responses %s were observed, want %d", p.counts[response], response, want)
		}
	}
}

// TestFirstUpdateFails: a proxy whose first update never succeeds is not healthy, unlike kube-proxy.
func TestFirstUpdateFails(t *testing.T) {
	t.Parallel()
	p := newProbesTest()
	for _, step := range []struct {
		do   func(*probesTest)
		want int
	}{{queued4, 200}, {soon, 200}, {later, 503}, {updated4, 200}} {
		step.do(p)
		for _, path := range []string{"/healthz", "/livez"} {
			if code, body := p.get(t, path); code != step.want {
				t.Errorf("%v after the first update was queued: GET %s = %d %s, want %d", p.now.Sub(begin), path, code, body, step.want)
			}
		}
	}
}
