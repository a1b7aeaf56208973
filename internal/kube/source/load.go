package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/manifest"
)

// loadTimeout is the timeout of commands that read a cluster once.
const loadTimeout = 30 * time.Second

// refusalInterval is the interval at which Load checks whether the API refuses access.
// refusalPatience is how long a refusal must last before Load accepts it as final.
const (
	refusalInterval = 50 * time.Millisecond
	refusalPatience = time.Second
)

// Loaded is information about a cluster that was read once, in addition to the model.
type Loaded struct {
	manifest.Report
	// From are the paths of the manifests; empty if the API was read.
	From []string
	// Unread are the errors for kinds that could not be read and are not required.
	Unread []error
	// Where, Near, Declared and Annotations are those of manifest.Source. They return
	// nothing for a cluster read from the API.
	Where       func(kind cluster.Kind, key cluster.Key, field string) (file string, line int, ok bool)
	Near        func(namespace string) (file string, line int)
	Declared    func(kind cluster.Kind, key cluster.Key) []byte
	Annotations func(kind cluster.Kind, key cluster.Key, name string) []string
}

// Files are manifests to read instead of those in the settings.
type Files struct {
	Paths   []string // of files and directories; "-" is Stdin
	Exclude []string // patterns, see manifest.Config
	Stdin   io.Reader
}

// Load reads the cluster once. Problems of manifests are in the report. If the API
// refuses a required kind or does not answer within 30 s, Load returns an error.
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
		wanted, required = cluster.Kinds(), []cluster.Kind{cluster.KindService}
	}
	reader, err := s.newAPI()
	if err != nil {
		return l, err
	}
	l.Unread, err = s.loadAPI(ctx, reader, wanted, required)
	return l, err
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

// loadAPI reads until all wanted kinds are loaded. If the API refuses a kind that is
// not required, loadAPI continues without it and returns the error in unread.
func (s *Source) loadAPI(
	ctx context.Context, reader *api.Source, wanted, required []cluster.Kind,
) (unread []error, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
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
	var refusedSince time.Time // zero while no kind is refused
	for missing := s.unloaded(wanted); len(missing) > 0; missing = s.unloaded(wanted) {
		refusals := refusalsOf(reader.Status(), missing)
		switch {
		case len(refusals) == 0:
			refusedSince = time.Time{}
		case refusedSince.IsZero():
			refusedSince = time.Now()
		case time.Since(refusedSince) > refusalPatience:
			for _, k := range missing {
				refusal := refusals[k]
				switch {
				case refusal == nil:
					continue
				case slices.Contains(required, k):
					return nil, refusal
				}
				unread = append(unread, refusal)
				wanted = slices.DeleteFunc(slices.Clone(wanted), func(w cluster.Kind) bool { return w == k })
			}
		}
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, errors.New("interrupted while the cluster was read")
			}
			return nil, errNotRead(problemOf(reader.Status(), missing...))
		case <-ticker.C:
		case <-feed.Ready():
			feed.Pending()
		}
	}
	return unread, nil
}

// errNotRead returns the error for a cluster that could not be read in time.
func errNotRead(problem error) error {
	if problem == nil {
		return fmt.Errorf("the cluster could not be read within %s", loadTimeout)
	}
	return fmt.Errorf("the cluster could not be read within %s: %w", loadTimeout, problem)
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

// refusalsOf returns the errors for kinds that the API permanently refuses.
func refusalsOf(statuses []api.Status, kinds []cluster.Kind) map[cluster.Kind]error {
	refusals := make(map[cluster.Kind]error)
	for _, k := range kinds {
		if problem := problemOf(statuses, k); api.Refused(problem) {
			refusals[k] = problem
		}
	}
	return refusals
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
