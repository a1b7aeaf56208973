package source

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/ops/metrics"
)

// These are the states of a kind in metrics, dumps and a KindState.
const (
	StateLoading  = "loading"  // not all objects are read yet
	StateSnapshot = "snapshot" // the objects are from a snapshot
	StateLive     = "live"     // the source follows the API or the manifests
	StateStale    = "stale"    // the connection to the API was lost
)

var states = []string{StateLoading, StateSnapshot, StateLive, StateStale}

// status returns the status of what is read from the API; nil for manifests.
func (s *Source) status() []api.Status {
	if s.api == nil {
		return nil
	}
	return s.api.Status()
}

// Problem returns the first known error that prevents reading one of the kinds, or nil.
func (s *Source) Problem(kinds ...cluster.Kind) error { return problemOf(s.status(), kinds...) }

// Staleness describes the loaded kinds of which the API was not heard for longer than
// limit (late; none if limit is 0), and for a shorter time (remarks).
func (s *Source) Staleness(limit time.Duration) (late, remarks []string) {
	unloaded := s.unloaded(s.cfg.Needs())
	for _, st := range s.status() {
		if st.Staleness == 0 || slices.Contains(unloaded, st.Kind) {
			continue
		}
		text := fmt.Sprintf("%s are stale for %s", st.Kind.Plural(), st.Staleness.Round(100*time.Millisecond))
		if st.Problem != nil {
			text += ": " + st.Problem.Error()
		}
		if limit > 0 && st.Staleness > limit {
			late = append(late, text)
		} else {
			remarks = append(remarks, text)
		}
	}
	return late, remarks
}

// stateOf returns the state of a kind, one of states.
func stateOf(v *cluster.View, k cluster.Kind, statuses []api.Status) string {
	switch v.Freshness(k) {
	case cluster.Recalled, cluster.Confirming:
		return StateSnapshot
	case cluster.Live:
		if slices.ContainsFunc(statuses, func(st api.Status) bool { return st.Kind == k && st.Staleness > 0 }) {
			return StateStale
		}
		return StateLive
	case cluster.Loading:
	}
	return StateLoading
}

// KindState is how current the objects of a kind are.
type KindState struct {
	Kind    cluster.Kind
	Objects int
	// State is one of those above, and Staleness for how long the API has been lost.
	State     string
	Staleness time.Duration
	// Problem is why the kind is not read; nil where none is known.
	Problem error
}

// States returns the state of each kind that is read.
func (s *Source) States() (all []KindState) {
	statuses := s.status()
	s.cfg.Store.View(func(v *cluster.View) {
		for _, k := range s.kinds() {
			made := KindState{Kind: k, Objects: v.Len(k), State: stateOf(v, k, statuses)}
			for _, st := range statuses {
				if st.Kind == k {
					made.Staleness, made.Problem = st.Staleness, st.Problem
				}
			}
			all = append(all, made)
		}
	})
	return all
}

// These are the metrics of the source.
var (
	sourceState = metrics.Desc("source_state", "1 for the current state of a kind of object.", "kind", "state")
	staleness   = metrics.Desc(
		"source_staleness_seconds", "Time since the last response of the API for a kind; 0 while its watch is live.", "kind",
	)
	events       = metrics.Desc("source_events_total", "Events of a kind read from the API.", "kind", "type")
	invalid      = metrics.Desc("source_invalid_objects", "Objects whose last version is invalid.", "kind")
	objects      = metrics.Desc("model_objects", "Objects in the model.", "kind")
	snapWritten  = metrics.Desc("snapshot_write_timestamp_seconds", "Time of the last successful write of the snapshot.")
	snapFailures = metrics.Desc("snapshot_errors_total", "Failed writes of the snapshot.")
)

// Describe sends the descriptions of all metrics.
func (s *Source) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sourceState, staleness, events, invalid, objects, snapWritten, snapFailures} {
		ch <- d
	}
}

// Collect sends the state of each kind and of the snapshot file.
func (s *Source) Collect(ch chan<- prometheus.Metric) {
	statuses, broken := s.status(), s.invalidObjects()
	if s.api == nil {
		metrics.Gauge(ch, invalid, float64(broken[unknownKind]), unknownKind)
	}
	s.cfg.Store.View(func(v *cluster.View) {
		for _, k := range s.cfg.Needs() {
			state := stateOf(v, k, statuses)
			for _, of := range states {
				metrics.Gauge(ch, sourceState, metrics.Truth(of == state), k.String(), of)
			}
			metrics.Gauge(ch, objects, float64(v.Len(k)), k.String())
			s.collectStatus(ch, k, statuses)
			metrics.Gauge(ch, invalid, float64(broken[k.String()]), k.String())
		}
	})
	if s.saver == nil {
		return
	}
	if written := s.saver.Written(); !written.IsZero() {
		metrics.Gauge(ch, snapWritten, float64(written.UnixNano())/1e9)
	}
	metrics.Counter(ch, snapFailures, s.saver.Failures())
}

// collectStatus sends how a kind is read from the API.
func (s *Source) collectStatus(ch chan<- prometheus.Metric, k cluster.Kind, statuses []api.Status) {
	var late time.Duration
	for _, st := range statuses {
		if st.Kind != k {
			continue
		}
		late = st.Staleness
		for i, n := range st.Events {
			metrics.Counter(ch, events, n, k.String(), api.EventTypes[i])
		}
	}
	metrics.Gauge(ch, staleness, late.Seconds(), k.String())
}

// unknownKind is the label of rejected documents whose kind is not known, such as those that are no YAML.
const unknownKind = "unknown"

// Invalid describes the kinds of which objects are invalid, in the order of their names.
func (s *Source) Invalid() (remarks []string) {
	broken := s.invalidObjects()
	for _, kind := range slices.Sorted(maps.Keys(broken)) {
		switch n := broken[kind]; {
		case n == 0:
		case kind == unknownKind:
			remarks = append(remarks, fmt.Sprintf("invalid manifest documents that are no objects: %d (see the log)", n))
		default:
			remarks = append(remarks, fmt.Sprintf("invalid objects of kind %s: %d (see the log)", kind, n))
		}
	}
	return remarks
}

// invalidObjects returns the number of objects by kind whose last version is invalid. In manifests, an object without a
// name is one for each line.
func (s *Source) invalidObjects() map[string]int {
	numbers := make(map[string]int)
	for _, st := range s.status() {
		numbers[st.Kind.String()] += st.Invalid
	}
	problems := s.manifestProblems.Load()
	if problems == nil {
		return numbers
	}
	type place struct {
		object, file string
		line         int
	}
	counted := make(map[place]bool)
	for _, p := range *problems {
		at := place{object: p.Object}
		if p.Object == "" {
			at = place{file: p.File, line: p.Line}
		}
		if !p.Rejected || counted[at] {
			continue
		}
		counted[at] = true
		kind := p.Kind
		if _, known := cluster.KindOf(kind); !known {
			kind = unknownKind
		}
		numbers[kind]++
	}
	return numbers
}

// WriteModel writes the model as JSON: the freshness of each kind, then the objects,
// sorted, one per line.
func (s *Source) WriteModel(w io.Writer) error {
	freshness, statuses := make(map[string]string), s.status()
	objects := make(map[cluster.Kind][]cluster.Object)
	// Objects are immutable, so the View, which blocks the source, only needs to last
	// until they are listed.
	s.cfg.Store.View(func(v *cluster.View) {
		for _, k := range s.cfg.Needs() {
			freshness[k.String()] = stateOf(v, k, statuses)
		}
		for _, k := range cluster.Kinds() {
			objects[k] = slices.Collect(v.Objects(k))
		}
	})
	var lines []string
	for _, k := range cluster.Kinds() {
		lines = append(lines, jsonLines(k, objects[k])...)
	}
	head, err := json.Marshal(freshness)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "{\"freshness\": %s,\n\"objects\": [\n%s\n]}\n", head, strings.Join(lines, ",\n"))
	return err
}

// jsonLines returns the objects of a kind as sorted lines of JSON. All types of the
// model can be encoded.
func jsonLines(k cluster.Kind, objects []cluster.Object) []string {
	lines := make([]string, 0, len(objects))
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			text = []byte("null")
		}
		lines = append(lines, fmt.Sprintf("{%q: %s}", k, text))
	}
	slices.Sort(lines)
	return lines
}
