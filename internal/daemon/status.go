package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/ops/metrics"
)

// status is how the daemon stands, beside what its parts know of themselves.
type status struct {
	stopping atomic.Bool
	// missing are the kinds that were not loaded when the zones were last
	// compiled; nil before that.
	missing atomic.Pointer[[]cluster.Kind]
	reload  atomic.Pointer[metrics.ReloadFigures]

	mu      sync.Mutex
	retired []*respond.Stats // of answers for other zones, in the past
}

func (s *status) retire(stats *respond.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.retired, stats) {
		s.retired = append(s.retired, stats)
	}
}

// counts are those of all answers, past and present.
func (s *status) counts(now *respond.Stats) (all []respond.Counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.retired {
		if st != now {
			all = append(all, st.Counts())
		}
	}
	return append(all, now.Counts())
}

// ready says in words what is missing until the daemon is ready, and what is
// stale besides.
func (d *Daemon) ready() (missing, remarks []string) {
	if d.status.stopping.Load() {
		missing = append(missing, "stopping")
	}
	compiled := d.status.missing.Load()
	if compiled == nil {
		return append(missing, "nothing is compiled yet"), nil
	}
	limit := time.Duration(d.cfg.Admin.MaxStaleness)
	if d.agent != nil {
		more, remarks := d.agent.ready(limit)
		return append(missing, more...), remarks
	}
	statuses := d.kinds()
	for _, k := range *compiled {
		missing = append(missing, fmt.Sprintf("%ss are not loaded%s", k, because(problemOf(statuses, k))))
	}
	for _, st := range statuses {
		if st.Staleness == 0 || slices.Contains(*compiled, st.Kind) {
			continue
		}
		stale := fmt.Sprintf("%ss are stale for %s%s", st.Kind, st.Staleness.Round(100*time.Millisecond), because(st.Problem))
		if limit > 0 && st.Staleness > limit {
			missing = append(missing, stale)
		} else {
			remarks = append(remarks, stale)
		}
	}
	return missing, remarks
}

func because(problem error) string {
	if problem == nil {
		return ""
	}
	return ": " + problem.Error()
}

// kinds say how what is read from the API stands.
func (d *Daemon) kinds() []api.Status {
	if d.api == nil {
		return nil
	}
	return d.api.Status()
}

// figures are what metrics tell.
func (d *Daemon) figures() metrics.Figures {
	now := d.current.Load()
	f := metrics.Figures{DNS: d.status.counts(now.stats), Serials: make(map[string]uint32), Reload: d.status.reload.Load()}
	for _, soa := range now.db.SOAs() {
		f.Serials[soa.Zone.String()] = soa.Serial
	}
	if d.agent != nil {
		d.agent.tell(&f)
	}
	if d.saver != nil {
		f.Snapshot = &metrics.SnapshotFigures{Written: d.saver.Written(), Failures: d.saver.Failures()}
	}
	if now.others != nil {
		asked, kept := now.others.Stats(), now.cache.Stats()
		f.Forward, f.Cache = &asked, &kept
	}
	f.QueriesUntold, f.Limited = new(d.queries.Dropped()), new(uint64)
	f.Transfer = now.transferFigures()
	if now.limiter != nil {
		*f.Limited = now.limiter.Exceeded()
	}
	statuses := d.kinds()
	d.store.View(func(v *cluster.View) {
		for _, k := range d.needed() {
			f.Kinds = append(f.Kinds, figuresOf(v, k, statuses))
		}
	})
	return f
}

func figuresOf(v *cluster.View, k cluster.Kind, statuses []api.Status) metrics.Kind {
	kind := metrics.Kind{Name: k.String(), Objects: v.Len(k), Events: make(map[string]uint64)}
	for _, st := range statuses {
		if st.Kind == k {
			kind.Staleness = st.Staleness
			for i, n := range st.Events {
				kind.Events[api.EventTypes[i]] = n
			}
		}
	}
	kind.State = stateOf(v, k, statuses)
	return kind
}

// stateOf is how far a kind can be relied on.
func stateOf(v *cluster.View, k cluster.Kind, statuses []api.Status) string {
	switch v.Freshness(k) {
	case cluster.Recalled, cluster.Confirming:
		return metrics.Snapshot
	case cluster.Live:
		if slices.ContainsFunc(statuses, func(st api.Status) bool { return st.Kind == k && st.Staleness > 0 }) {
			return metrics.Stale
		}
		return metrics.Live
	case cluster.Loading:
	}
	return metrics.Loading
}

// writeZone writes the records, as master files.
func (d *Daemon) writeZone(w io.Writer) error {
	zones, err := zone.Records(d.DB().Entries())
	if err != nil {
		return err
	}
	return zone.WriteMaster(w, zones)
}

// writeModel writes the model as JSON: the freshness of each kind, then the
// objects, sorted, one a line.
func (d *Daemon) writeModel(w io.Writer) error {
	freshness, statuses := make(map[string]string), d.kinds()
	objects := make(map[cluster.Kind][]cluster.Object)
	// Objects are immutable: the View, which blocks the source, only has to last
	// until they are listed.
	d.store.View(func(v *cluster.View) {
		for _, k := range d.needed() {
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

// jsonLines returns objects of a kind as lines of JSON, sorted.
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
