package plan

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/cluster"
)

// warmSteps is in how many steps an endpoint that became ready comes to its whole weight.
const warmSteps = 10

// ParseSlowStart returns the duration that the value of cluster.AnnotationSlowStart gives; empty is
// usual. Its error names the value and those that are allowed.
func ParseSlowStart(text string, usual time.Duration) (time.Duration, error) {
	const most = time.Hour
	if text == "" {
		return usual, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		return usual, fmt.Errorf("%q is not a duration from 0s to 1h", text)
	}
	return d, nil
}

// Warmup has the endpoints of Services with slow start that became ready a moment ago: they get
// fewer connections than the others, and more with each step. What it says changes in Look and
// Advance alone.
type Warmup struct {
	usual    time.Duration // of Services that do not say so
	services map[cluster.Key]*warming
	// active are those of services in which an endpoint warms up: most changes find none, and
	// are not to look at all endpoints.
	active map[cluster.Key]*warming
}

// warming is the ready endpoints of a Service.
type warming struct {
	window    time.Duration
	endpoints map[netip.Addr]warm
}

// warm is when an endpoint became ready, zero if that does not matter any more, and how many steps
// it has made.
type warm struct {
	since time.Time
	steps int
}

// NewWarmup returns a Warmup for Services that have slow start as they say or, if they do not say
// so, for the usual time; 0 is none.
func NewWarmup(usual time.Duration) *Warmup {
	return &Warmup{usual: usual, services: make(map[cluster.Key]*warming), active: make(map[cluster.Key]*warming)}
}

// LookAtAll is Look for all Services.
func (w *Warmup) LookAtAll(v *cluster.View, now time.Time) {
	gone := func(key cluster.Key, _ *warming) bool { return v.Service(key) == nil }
	maps.DeleteFunc(w.services, gone)
	maps.DeleteFunc(w.active, gone)
	w.Look(v, func(yield func(cluster.Key) bool) {
		for s := range v.Services() {
			if !yield(s.Key) {
				return
			}
		}
	}, now)
}

// Look notes which endpoints of the Services with the given keys became ready. Those of a Service
// that is seen for the first time, or of which none was ready before, have their whole weight.
func (w *Warmup) Look(v *cluster.View, keys iter.Seq[cluster.Key], now time.Time) {
	for key := range keys {
		window := w.window(v.Service(key))
		delete(w.active, key)
		if window == 0 {
			delete(w.services, key)
			continue
		}
		before := w.services[key]
		made := &warming{window: window, endpoints: make(map[netip.Addr]warm)}
		for _, s := range v.SlicesOf(key) {
			for i := range s.Endpoints {
				e := &s.Endpoints[i]
				if !e.Ready {
					continue
				}
				known, was := warm{}, true
				if before != nil && len(before.endpoints) > 0 {
					known, was = before.endpoints[e.Addr]
				}
				if !was {
					known = warm{since: now}
				}
				made.endpoints[e.Addr] = known
				if !known.since.IsZero() {
					w.active[key] = made
				}
			}
		}
		w.services[key] = made
	}
}

// window returns for how long endpoints of a Service warm up.
func (w *Warmup) window(s *cluster.Service) time.Duration {
	if s == nil || s.Spec == nil {
		return 0
	}
	window, _ := ParseSlowStart(s.Spec.SlowStart, w.usual)
	return window
}

// Advance makes the steps that are due, and returns the Services whose endpoints made some.
func (w *Warmup) Advance(now time.Time) (stepped []cluster.Key) {
	for key, s := range w.active {
		stepping, left := s.advance(now)
		if stepping {
			stepped = append(stepped, key)
		}
		if left == 0 {
			delete(w.active, key)
		}
	}
	return stepped
}

// Next returns the time until the next step is due, a millisecond at least; 0 if there is none.
func (w *Warmup) Next(now time.Time) (next time.Duration) {
	for _, s := range w.active {
		for _, e := range s.endpoints {
			if e.since.IsZero() {
				continue
			}
			left := max(e.since.Add(s.window*time.Duration(e.steps+1)/warmSteps).Sub(now), time.Millisecond)
			if next == 0 || left < next {
				next = left
			}
		}
	}
	return next
}

// advance makes the steps that are due, and returns whether there were any and how many endpoints
// still warm up.
func (s *warming) advance(now time.Time) (stepped bool, left int) {
	for addr, e := range s.endpoints {
		if e.since.IsZero() {
			continue
		}
		steps := int(now.Sub(e.since) * warmSteps / s.window)
		if steps < warmSteps {
			left++
		}
		if steps == e.steps {
			continue
		}
		stepped = true
		if e.steps = steps; steps >= warmSteps {
			e = warm{}
		}
		s.endpoints[addr] = e
	}
	return stepped, left
}

// weigh gives the endpoints of a Service the part of their weights that their steps make. It changes
// nothing if none warms up; otherwise all weights grow by the same factor, too.
func (w *Warmup) weigh(key cluster.Key, all []endpoint) {
	if w == nil || w.services[key] == nil {
		return
	}
	parts, some := make([]int, len(all)), false
	for i := range all {
		parts[i] = warmSteps
		if e := w.services[key].endpoints[all[i].addr.Addr()]; !e.since.IsZero() {
			parts[i], some = e.steps+1, true
		}
	}
	if !some {
		return
	}
	for i := range all {
		all[i].weight *= parts[i]
	}
}
