package source

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/ops/metrics"
)

// states of a kind in metrics and dumps: not all objects are there; they are
// from a snapshot; the source follows them; it did, and has lost the cluster.
const (
	stateLoading  = "loading"
	stateSnapshot = "snapshot"
	stateLive     = "live"
	stateStale    = "stale"
)

var states = []string{stateLoading, stateSnapshot, stateLive, stateStale}

// status is how what is read from the API stands; nil for manifests.
func (s *Source) status() []api.Status {
	if s.api == nil {
		return nil
	}
	return s.api.Status()
}

// Problem is why the first of the kinds cannot be read; nil where none is known.
func (s *Source) Problem(kinds ...cluster.Kind) error { return problemOf(s.status(), kinds...) }

// Staleness lists, in words, the kinds that are loaded and that the API has not
// been heard of for longer than limit (late, none when limit is 0), and for
// shorter (remarks).
func (s *Source) Staleness(limit time.Duration) (late, remarks []string) {
	unloaded := s.unloaded(s.cfg.Needs())
	for _, st := range s.status() {
		if st.Staleness == 0 || slices.Contains(unloaded, st.Kind) {
			continue
		}
		text := fmt.Sprintf("%ss are stale for %s", st.Kind, st.Staleness.Round(100*time.Millisecond))
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

// stateOf is how far a kind can be relied on, one of states.
func stateOf(v *cluster.View, k cluster.Kind, statuses []api.Status) string {
	switch v.Freshness(k) {
	case cluster.Recalled, cluster.Confirming:
		return stateSnapshot
	case cluster.Live:
		if slices.ContainsFunc(statuses, func(st api.Status) bool { return st.Kind == k && st.Staleness > 0 }) {
			return stateStale
		}
		return stateLive
	case cluster.Loading:
	}
	return stateLoading
}

// Metrics of the source.
var (
	sourceState = metrics.Desc("source_state", "1 for the current state of a kind of object.", "kind", "state")
	staleness   = metrics.Desc(
		"source_staleness_seconds", "Time since the API was last heard of a kind; 0 while it is heard.", "kind",
	)
	events       = metrics.Desc("source_events_total", "Events of a kind read from the API.", "kind", "type")
	objects      = metrics.Desc("model_objects", "Objects in the model.", "kind")
	snapWritten  = metrics.Desc("snapshot_write_timestamp_seconds", "Time of the last successful write of the snapshot.")
	snapFailures = metrics.Desc("snapshot_errors_total", "Failed writes of the snapshot.")
)

// Describe sends the descriptions of what Collect sends.
func (s *Source) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sourceState, staleness, events, objects, snapWritten, snapFailures} {
		ch <- d
	}
}

// Collect sends the state of each kind and of the snapshot file.
func (s *Source) Collect(ch chan<- prometheus.Metric) {
	statuses := s.status()
	s.cfg.Store.View(func(v *cluster.View) {
		for _, k := range s.cfg.Needs() {
			state := stateOf(v, k, statuses)
			for _, of := range states {
				metrics.Gauge(ch, sourceState, metrics.Truth(of == state), k.String(), of)
			}
			metrics.Gauge(ch, objects, float64(v.Len(k)), k.String())
			s.collectStatus(ch, k, statuses)
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

// WriteModel writes the model as JSON: the freshness of each kind, then the objects,
// sorted, one a line.
func (s *Source) WriteModel(w io.Writer) error {
	freshness, statuses := make(map[string]string), s.status()
	objects := make(map[cluster.Kind][]cluster.Object)
	// Objects are immutable: the View, which blocks the source, only has to last
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

// jsonLines returns objects of a kind as lines of JSON, sorted. The model's types
// always have a form in JSON.
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
