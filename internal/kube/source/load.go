package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/object"
)

// loadTimeout is the default of Config.Patience.
const loadTimeout = 30 * time.Second

// refusalInterval is the interval at which Load checks whether the API refuses access.
// refusalPatience is how long a refusal must last before Load accepts it as final, whether
// of access or of the connection.
const (
	refusalInterval = 50 * time.Millisecond
	refusalPatience = time.Second
)

// Loaded is information about a cluster that was read once, in addition to the model.
type Loaded struct {
	manifest.Report
	// From are the paths of the manifests; empty if the API was read.
	From []string
	// Unread are the kinds that could not be read and are not required; one for each refusal.
	Unread []Unread
	// Namespaces are those that Partial were read in, because the API refuses to list
	// these kinds in all namespaces.
	Namespaces []string
	Partial    []cluster.Kind
	// Where, Near, Declared and Annotations are those of manifest.Source. They return
	// nothing for a cluster read from the API.
	Where       func(kind cluster.Kind, key cluster.Key, field string) (file string, line int, ok bool)
	Near        func(namespace string) (file string, line int)
	Declared    func(kind cluster.Kind, key cluster.Key) []byte
	Annotations func(kind cluster.Kind, key cluster.Key, name string) []string
}

// Unread is a kind that could not be read.
type Unread struct {
	Kind cluster.Kind
	Err  error // names the right that is missing, if one is
}

// Files are manifests to read instead of those in the settings.
type Files struct {
	Paths   []string // of files and directories; "-" is Stdin
	Exclude []string // patterns, see manifest.Config
	Stdin   io.Reader
}

// Load reads the cluster once. Problems of manifests are in the report. If the API
// refuses a required kind or does not answer in time, Load returns an error.
func (s *Source) Load(ctx context.Context) (Loaded, error) {
	if path := s.cfg.Settings.Manifests; path != "" {
		return loadManifests(s.newManifests(), []string{path})
	}
	l := Loaded{
		Where:       func(cluster.Kind, cluster.Key, string) (string, int, bool) { return "", 0, false },
		Near:        func(string) (string, int) { return "", 0 },
		Declared:    func(cluster.Kind, cluster.Key) []byte { return nil },
		Annotations: func(cluster.Kind, cluster.Key, string) []string { return nil },
	}
	wanted, required := s.cfg.Needs(), s.cfg.Needs()
	if s.cfg.Scope == Whole {
		wanted, required = s.allKinds(), []cluster.Kind{cluster.KindService}
	}
	reader, err := s.newAPI()
	if err != nil {
		return l, err
	}
	refusals, err := s.loadAPI(ctx, reader, wanted)
	if err != nil {
		return l, err
	}
	if len(refusals) > 0 && len(s.cfg.Settings.Kubernetes.Namespaces) == 0 && len(s.cfg.Fallback) > 0 {
		if l.Partial, err = s.loadNamespaces(ctx, refusals); err != nil {
			return l, err
		}
		l.Namespaces = s.cfg.Fallback
	}
	for _, k := range wanted {
		switch refusal := refusals[k]; {
		case refusal == nil || slices.Contains(l.Partial, k):
		case slices.Contains(required, k):
			return l, refusal
		case slices.ContainsFunc(l.Unread, func(u Unread) bool { return errors.Is(u.Err, refusal) }):
		default:
			l.Unread = append(l.Unread, Unread{k, refusal})
		}
	}
	return l, nil
}

// allKinds returns all kinds, but those of custom resources only if answers depend on them, or the
// command does: the rights to read them are granted with the settings that need them.
func (s *Source) allKinds() []cluster.Kind {
	needs, all := append(slices.Clone(s.cfg.Needs()), s.cfg.Also...), make([]cluster.Kind, 0, len(object.Kinds))
	ofGateways := append(cluster.ReferencedKinds(), cluster.KindIngressClass)
	for _, k := range object.Kinds {
		if !k.Custom && !slices.Contains(ofGateways, k.Model) || slices.Contains(needs, k.Model) {
			all = append(all, k.Model)
		}
	}
	return all
}

// loadNamespaces reads the refused kinds in the namespaces of Fallback, and returns those
// that the API does not refuse there. If there are any, these namespaces exist, even if the
// API does not show them.
func (s *Source) loadNamespaces(
	ctx context.Context,
	refusals map[cluster.Kind]error,
) (partial []cluster.Kind, err error) {
	var kinds []cluster.Kind
	for _, k := range cluster.Kinds() {
		if refusals[k] != nil && k.Namespaced() {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		return nil, nil
	}
	reader, err := s.apiOf(kinds, s.cfg.Fallback)
	if err != nil {
		return nil, err
	}
	again, err := s.loadAPI(ctx, reader, kinds)
	if err != nil {
		return nil, err
	}
	partial = slices.DeleteFunc(kinds, func(k cluster.Kind) bool { return again[k] != nil })
	if refusals[cluster.KindNamespace] != nil && len(partial) > 0 {
		s.cfg.Store.Update(func(tx *cluster.Tx) {
			for _, name := range s.cfg.Fallback {
				tx.Put(&cluster.Namespace{Name: name})
			}
			tx.SetFreshness(cluster.Live, cluster.KindNamespace)
		})
		partial = append(partial, cluster.KindNamespace)
	}
	return partial, nil
}

// LoadFiles reads all kinds of all files once, instead of the configured cluster.
func (s *Source) LoadFiles(f Files) (Loaded, error) {
	cfg := f.config(s.cfg.Store)
	s.simulate(&cfg)
	return loadManifests(manifest.New(cfg), f.Paths)
}

// ReadFiles reads all kinds of all files into a store.
func ReadFiles(f Files, store *cluster.Store) (manifest.Report, error) {
	return manifest.New(f.config(store)).Load()
}

func (f Files) config(store *cluster.Store) manifest.Config {
	return manifest.Config{
		Path: f.Paths[0], Also: f.Paths[1:], Exclude: f.Exclude, Stdin: f.Stdin, Whole: true,
		Store: store, Log: slog.New(slog.DiscardHandler),
	}
}

func loadManifests(source *manifest.Source, from []string) (Loaded, error) {
	report, err := source.Load()
	return Loaded{
		Report: report, From: from,
		Where: source.Where, Near: source.Near, Declared: source.Declared, Annotations: source.Annotations,
	}, err
}

// loadAPI reads until all wanted kinds are loaded. It continues without kinds that the API
// refuses, and returns the refusals.
func (s *Source) loadAPI(
	ctx context.Context, reader *api.Source, wanted []cluster.Kind,
) (refused map[cluster.Kind]error, err error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.cfg.Patience, loadTimeout))
	feed := s.cfg.Store.Subscribe()
	defer feed.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = reader.Run(ctx) // ends with its context
	}()
	defer func() {
		cancel()
		<-ended
	}()
	ticker := time.NewTicker(refusalInterval)
	defer ticker.Stop()
	var since time.Time // zero while nothing is refused
	refused = make(map[cluster.Kind]error)
	for missing := s.unloaded(wanted); len(missing) > 0; missing = s.unloaded(wanted) {
		refusals, unreachable := refusalsOf(reader.Status(), missing)
		switch {
		case len(refusals) == 0 && unreachable == nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) <= refusalPatience:
		case unreachable != nil:
			return nil, fmt.Errorf("the cluster could not be read: %w", unreachable)
		default:
			refuseReferenced(refusals)
			maps.Copy(refused, refusals)
			wanted = slices.DeleteFunc(slices.Clone(wanted), func(k cluster.Kind) bool { return refusals[k] != nil })
		}
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, errors.New("interrupted while the cluster was read")
			}
			return nil, s.errNotRead(problemOf(reader.Status(), missing...))
		case <-ticker.C:
		case <-feed.Ready():
			feed.Pending()
		}
	}
	return refused, nil
}

// refuseReferenced adds the kinds that are read by references of a refused kind, with its refusal: which of
// their objects are wanted stays unknown.
func refuseReferenced(refusals map[cluster.Kind]error) {
	for _, referring := range cluster.ReferringKinds() {
		refusal := refusals[referring]
		if refusal == nil {
			continue
		}
		for _, k := range cluster.ReferencedKinds() {
			refusals[k] = cmp.Or(refusals[k], refusal)
		}
	}
}

// errNotRead returns the error for a cluster that could not be read in time.
func (s *Source) errNotRead(problem error) error {
	within := cmp.Or(s.cfg.Patience, loadTimeout)
	if problem == nil {
		return fmt.Errorf("the cluster could not be read within %s", within)
	}
	return fmt.Errorf("the cluster could not be read within %s: %w", within, problem)
}

// unloaded returns those of the kinds that are not loaded.
func (s *Source) unloaded(kinds []cluster.Kind) (missing []cluster.Kind) {
	s.cfg.Store.View(func(v *cluster.View) {
		for _, k := range kinds {
			if !v.Loaded(k) {
				missing = append(missing, k)
			}
		}
	})
	return missing
}

// refusalsOf returns the errors for kinds that the API permanently refuses, and the error
// of an API server that accepts no connection.
func refusalsOf(statuses []api.Status, kinds []cluster.Kind) (refusals map[cluster.Kind]error, unreachable error) {
	refusals = make(map[cluster.Kind]error)
	for _, k := range kinds {
		switch problem := problemOf(statuses, k); {
		case api.Refused(problem):
			refusals[k] = problem
		case api.Unreachable(problem):
			unreachable = problem
		}
	}
	return refusals, unreachable
}

// problemOf returns the first known error that prevents reading one of the kinds, or
// nil.
func problemOf(statuses []api.Status, kinds ...cluster.Kind) error {
	for _, k := range kinds {
		for _, st := range statuses {
			if st.Kind == k && st.Problem != nil {
				return st.Problem
			}
		}
	}
	return nil
}
