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

// loadTimeout is how long a command that reads a cluster once waits for it.
const loadTimeout = 30 * time.Second

// refusalInterval is how often Load looks whether the API refuses to be read;
// refusalPatience is how long a refusal may pass before Load believes it.
const (
	refusalInterval = 50 * time.Millisecond
	refusalPatience = time.Second
)

// Loaded is what is known of a cluster that was read once, beside the model.
type Loaded struct {
	manifest.Report
	// From are the paths of the manifests; none where the API was read.
	From []string
	// Unread are the reasons why kinds could not be read that are not required.
	Unread []error
	// Where, Near, Declared and Annotations are manifest.Source's. They know
	// nothing of a cluster that was read from the API.
	Where       func(kind cluster.Kind, key cluster.Key, field string) (file string, line int, ok bool)
	Near        func(namespace string) (file string, line int)
	Declared    func(kind cluster.Kind, key cluster.Key) []byte
	Annotations func(kind cluster.Kind, key cluster.Key, name string) []string
}

// Files are manifests that are read in place of those that the settings name.
type Files struct {
	Paths   []string // of files and directories; "-" is Stdin
	Exclude []string // patterns, see manifest.Config
	Stdin   io.Reader
}

// Load reads the cluster once. Problems of manifests are in the report; an API
// that refuses a required kind, or does not answer within 30 s, is an error.
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

// LoadFiles reads all kinds of all files once, in place of the settings' cluster.
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

// loadAPI reads until all wanted kinds are there. Where the API refuses a kind
// that is not required, it goes on without and returns why.
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
	var refusedSince time.Time // zero while nothing is refused
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

// errNotRead is the error of a cluster that could not be read in time.
func errNotRead(problem error) error {
	if problem == nil {
		return fmt.Errorf("the cluster could not be read within %s", loadTimeout)
	}
	return fmt.Errorf("the cluster could not be read within %s: %w", loadTimeout, problem)
}

// unloaded lists those of the kinds that are not loaded.
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

// refusalsOf maps kinds that the API refuses for good to its reasons.
func refusalsOf(statuses []api.Status, kinds []cluster.Kind) map[cluster.Kind]error {
	refusals := make(map[cluster.Kind]error)
	for _, k := range kinds {
		if problem := problemOf(statuses, k); api.Refused(problem) {
			refusals[k] = problem
		}
	}
	return refusals
}

// problemOf is why the first of the kinds cannot be read, if that is known.
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
