package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/status"
)

// statusLog is the status.Writer of a gateway without an API: what users must know of objects goes to the log, each
// once as long as it holds.
type statusLog struct {
	store      *cluster.Store
	controller string
	log        *slog.Logger

	mu   sync.Mutex
	said map[cluster.Ref]map[string]bool
}

func newStatusLog(cfg *Config, controller string) *statusLog {
	return &statusLog{store: cfg.Store, controller: controller, log: cfg.Log, said: make(map[cluster.Ref]map[string]bool)}
}

// Update implements status.Writer.
func (s *statusLog) Update(
	_ context.Context, of cluster.Ref, change func(cluster.Object) cluster.Object,
) (wrote bool, err error) {
	var o cluster.Object
	s.store.View(func(v *cluster.View) { o = v.Object(of.Kind, of.Key) })
	if o == nil {
		s.say(of, nil)
		return false, fmt.Errorf("status of %s: %w", of, status.ErrGone)
	}
	made := change(o)
	if made == nil {
		return false, nil
	}
	s.say(of, s.problems(made))
	return true, nil
}

// Warn implements status.Writer.
func (s *statusLog) Warn(_ context.Context, w status.Warning) error {
	s.warn(w.Object, w.Note)
	return nil
}

// say logs the problems of an object that it did not have before.
func (s *statusLog) say(of cluster.Ref, problems map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range slices.Sorted(maps.Keys(problems)) {
		if !s.said[of][p] {
			s.warn(of, p)
		}
	}
	if s.said[of] = problems; len(problems) == 0 {
		delete(s.said, of)
	}
}

func (s *statusLog) warn(of cluster.Ref, problem string) {
	s.log.Warn("not all of an object is served", "object", of, "problem", problem)
}

// problems returns what is wrong with an object, by its status.
func (s *statusLog) problems(o cluster.Object) map[string]bool {
	all := make(map[string]bool)
	add := func(where string, conditions []cluster.StatusCondition) {
		for _, c := range conditions {
			if isProblem(&c.Condition) {
				all[fmt.Sprintf("%s%s: %s", where, c.Reason, c.Message)] = true
			}
		}
	}
	ofParents := func(statuses []cluster.ParentStatus) {
		for i := range statuses {
			if statuses[i].Controller == s.controller {
				add("", statuses[i].Conditions)
			}
		}
	}
	switch o := o.(type) {
	case *cluster.Frontend:
		if o.Gateway != nil {
			add("", o.Gateway.Status.Conditions)
			for _, l := range o.Gateway.Status.Listeners {
				add("listener "+l.Name+": ", l.Conditions)
			}
		}
	case *cluster.ListenerSet:
		add("", o.Conditions)
		for _, l := range o.ListenerStatuses {
			add("listener "+l.Name+": ", l.Conditions)
		}
	case *cluster.Route:
		ofParents(o.Spec.Statuses)
	case *cluster.BackendTLSPolicy:
		ofParents(o.Ancestors)
	case *cluster.BackendTrafficPolicy:
		ofParents(o.Ancestors)
	case *cluster.RoutePolicy:
		ofParents(o.Ancestors)
	}
	return all
}

// isProblem reports whether a condition is one that users want to know.
func isProblem(c *cluster.Condition) bool {
	switch c.Type {
	case "Conflicted", "PartiallyInvalid", "OverlappingTLSConfig":
		return c.Status == "True"
	}
	return c.Status == "False"
}
