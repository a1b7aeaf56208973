package app

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/ops/metrics"
)

var (
	routeRequests = metrics.Desc(
		"gateway_requests_total", "Requests, by the Ingress or route that served them and the status of the response.",
		"route", "code",
	)
	routeDuration = metrics.Desc(
		"gateway_request_duration_seconds",
		"Time from the head of a request until its response was sent, without upgraded connections.", "route",
	)
)

// The values of the label route of requests that no route served, and of those of routes without series of
// their own.
const (
	noRoute     = "none"
	otherRoutes = "other"
)

// buckets are the upper bounds of durations in seconds.
var buckets = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

// routeStats counts the requests of a route.
type routeStats struct {
	// codes are how many responses had each status from 0 to 599, in pages of 100; status 0 is no response.
	codes [6]atomic.Pointer[[100]atomic.Uint64]
	under [len(buckets) + 1]atomic.Uint64
	nanos atomic.Int64
}

// count counts a request.
func (s *routeStats) count(r *proxy.Record) {
	code := r.Status
	if code < 100 || code >= 100*len(s.codes) {
		code = 0
	}
	page := s.codes[code/100].Load()
	for page == nil {
		s.codes[code/100].CompareAndSwap(nil, new([100]atomic.Uint64))
		page = s.codes[code/100].Load()
	}
	page[code%100].Add(1)
	if code == http.StatusSwitchingProtocols {
		return // it took as long as its users wanted
	}
	n, _ := slices.BinarySearch(buckets[:], r.Duration.Seconds())
	s.under[n].Add(1)
	s.nanos.Add(int64(r.Duration))
}

// collect sends the series of a route.
func (s *routeStats) collect(ch chan<- prometheus.Metric, route string) {
	for class := range s.codes {
		page := s.codes[class].Load()
		if page == nil {
			continue
		}
		for i := range page {
			if n := page[i].Load(); n > 0 {
				metrics.Counter(ch, routeRequests, n, route, strconv.Itoa(100*class+i))
			}
		}
	}
	count, cumulative := uint64(0), make(map[float64]uint64, len(buckets))
	for i, bound := range buckets {
		count += s.under[i].Load()
		cumulative[bound] = count
	}
	count += s.under[len(buckets)].Load()
	if count > 0 {
		seconds := float64(s.nanos.Load()) / 1e9
		ch <- prometheus.MustNewConstHistogram(routeDuration, count, seconds, cumulative, route)
	}
}

// routesStats counts the requests of routes: of the first that get any, up to a number, each has series of
// its own. Others share one.
type routesStats struct {
	most        int
	exists      func(name string) bool // reports whether there is a route of that name
	none, other routeStats

	mu     sync.Mutex // of writers
	byName atomic.Pointer[map[string]*routeStats]
}

func newRoutesStats(most int, exists func(name string) bool) *routesStats {
	s := &routesStats{most: most, exists: exists}
	s.byName.Store(new(map[string]*routeStats))
	return s
}

// of returns the figures of a route by the name of its object.
func (s *routesStats) of(name string) *routeStats {
	all := *s.byName.Load()
	if found := all[name]; found != nil {
		return found
	}
	if len(all) >= s.most {
		return &s.other
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all = *s.byName.Load()
	if found := all[name]; found != nil || len(all) >= s.most || !s.exists(name) {
		return cmp.Or(found, &s.other) // a request may end after its route was deleted
	}
	made := maps.Clone(all)
	if made == nil {
		made = make(map[string]*routeStats)
	}
	made[name] = new(routeStats)
	s.byName.Store(&made)
	return made[name]
}

// count counts a request.
func (s *routesStats) count(r *proxy.Record) {
	if r.Rule == nil {
		s.none.count(r)
		return
	}
	s.of(r.Rule.Object).count(r)
}

// label returns the value of the label route for what a rule serves, which may be none.
func (s *routesStats) label(of *table.Rule) string {
	switch {
	case of == nil:
		return noRoute
	case s.of(of.Object) == &s.other:
		return otherRoutes
	}
	return of.Object
}

// prune removes the figures of routes that are no more, so that others can have some, and returns their names.
func (s *routesStats) prune() (gone []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := maps.Clone(*s.byName.Load())
	maps.DeleteFunc(made, func(name string, _ *routeStats) bool {
		if s.exists(name) {
			return false
		}
		gone = append(gone, name)
		return true
	})
	s.byName.Store(&made)
	return gone
}

// collect sends the series of all routes.
func (s *routesStats) collect(ch chan<- prometheus.Metric) {
	s.none.collect(ch, noRoute)
	s.other.collect(ch, otherRoutes)
	for name, of := range *s.byName.Load() {
		of.collect(ch, name)
	}
}
