package app

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/ops/metrics"
)

// served returns what became of a request that a route served; of none if the name is empty.
func served(route string, status int, took time.Duration) *proxy.Record {
	r := &proxy.Record{Status: status, Duration: took}
	if route != "" {
		r.Rule = &table.Rule{Object: route}
	}
	return r
}

// exported returns the lines of a metric, but its comments.
func exported(t *testing.T, c prometheus.Collector, name string) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	response := httptest.NewRecorder()
	log := slog.New(slog.DiscardHandler)
	metrics.Handler(registry, log).ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var lines []string
	for line := range strings.Lines(response.Body.String()) {
		if strings.HasPrefix(line, name) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// collector collects the series of routes.
type collector struct{ *routesStats }

func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }
func (c collector) Collect(ch chan<- prometheus.Metric) { c.collect(ch) }

const requestsTotal = "portolan_gateway_requests_total"

// TestRouteSeries has series of the first routes only, and gives those of routes that are gone to others.
func TestRouteSeries(t *testing.T) {
	t.Parallel()
	gone := make(map[string]bool)
	s := newRoutesStats(2, func(name string) bool { return !gone[name] })
	for _, route := range []string{"a", "b", "c", "a", "d", ""} {
		s.count(served(route, 200, 0))
	}
	s.count(served("a", 503, 0))
	s.count(served("", 0, 0))
	s.count(served("a", 999, 0)) // an endpoint may send any
	const want = `portolan_gateway_requests_total{code="0",route="a"} 1
portolan_gateway_requests_total{code="0",route="none"} 1
portolan_gateway_requests_total{code="200",route="a"} 2
portolan_gateway_requests_total{code="200",route="b"} 1
portolan_gateway_requests_total{code="200",route="none"} 1
portolan_gateway_requests_total{code="200",route="other"} 2
portolan_gateway_requests_total{code="503",route="a"} 1
`
	if got := exported(t, collector{s}, requestsTotal); got != want {
		t.Errorf("series\n%swant\n%s", got, want)
	}
	gone["a"] = true
	s.prune()
	s.count(served("a", 200, 0)) // began before it was deleted
	s.count(served("d", 200, 0))
	got := exported(t, collector{s}, requestsTotal)
	if strings.Contains(got, `route="a"`) || !strings.Contains(got, `{code="200",route="d"} 1`) {
		t.Errorf("series after a route was deleted, and another one served\n%s", got)
	}
}

func always(string) bool { return true }

// TestDurations counts durations, but not those of upgraded connections.
func TestDurations(t *testing.T) {
	t.Parallel()
	s := newRoutesStats(1, always)
	for _, took := range []time.Duration{time.Millisecond, 30 * time.Millisecond, time.Minute} {
		s.count(served("a", 200, took))
	}
	s.count(served("a", 101, time.Hour))
	got := exported(t, collector{s}, "portolan_gateway_request_duration_seconds")
	for _, want := range []string{
		`_bucket{route="a",le="0.001"} 1`, `_bucket{route="a",le="0.025"} 1`, `_bucket{route="a",le="0.05"} 2`,
		`_bucket{route="a",le="30"} 2`, `_bucket{route="a",le="+Inf"} 3`, `_sum{route="a"} 60.031`, `_count{route="a"} 3`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no line %s in\n%s", want, got)
		}
	}
}

// TestRouteSeriesConcurrently counts each request once while routes come and go.
func TestRouteSeriesConcurrently(t *testing.T) {
	t.Parallel()
	s := newRoutesStats(3, always)
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for i := range 1000 {
				s.count(served(fmt.Sprint("route-", (n+i)%6), 200, 0))
			}
		})
	}
	all.Wait()
	var total float64
	for line := range strings.Lines(exported(t, collector{s}, requestsTotal)) {
		var value float64
		if _, err := fmt.Sscan(strings.Fields(line)[1], &value); err != nil {
			t.Fatal(err)
		}
		total += value
	}
	if total != 4000 {
		t.Errorf("%v requests counted, want 4000", total)
	}
}
