package manifest

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A change is read when there was no event for settle, and at the latest after
// settleMax: editors write a file in several steps, and half a file must not
// count. The tree is also scanned every rescan, for file systems without events
// and for directories that did not exist.
const (
	settle    = 15 * time.Millisecond
	settleMax = 80 * time.Millisecond
	rescan    = 2 * time.Second
)

// scanShare is the share of the time for these scans: a large tree is scanned less often,
// but every maxRescan.
const (
	scanShare = 0.02
	maxRescan = time.Minute
)

// Run loads the tree and follows its changes until ctx is done, and returns ctx's
// error. Each time that it has read the tree it calls loaded, unless that is nil. It
// fails when the tree can't be read at first; later it keeps the last state and logs
// the failure.
func (s *Source) Run(ctx context.Context, loaded func(Report)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	w := &watched{Watcher: watcher, log: s.cfg.Log, rescan: rescan}
	report, err := s.scan(w)
	if err != nil {
		return err
	}
	if loaded == nil {
		loaded = func(Report) {}
	}
	s.log(report)
	loaded(report)
	lost := false // the tree could not be read by the last scan
	for {
		if err := w.wait(ctx); err != nil {
			return err
		}
		began := time.Now()
		report, err := s.scan(w)
		w.rescan = min(max(rescan, time.Duration(float64(time.Since(began))/scanShare)), maxRescan)
		if (err != nil) != lost {
			lost = err != nil
			if lost {
				s.cfg.Log.Error("manifests can't be read, the last good ones stay", "path", s.cfg.Path, "err", err)
			} else {
				s.cfg.Log.Info("manifests can be read again", "path", s.cfg.Path)
			}
		}
		if err == nil {
			s.log(report)
			loaded(report)
		}
	}
}

// watched is a watcher with what it watches, as in tree.
type watched struct {
	*fsnotify.Watcher
	log  *slog.Logger
	dirs map[string]names
	// deaf are the directories that can't be watched: their changes are found every
	// rescan.
	deaf   names
	rescan time.Duration // until the tree is scanned again without an event
}

// scan loads the tree. It watches directories before it reads them, so that it
// misses no change.
func (s *Source) scan(w *watched) (Report, error) {
	for {
		t, err := walk(&s.cfg)
		if err != nil {
			return Report{}, fmt.Errorf("manifests: %w", err)
		}
		if !w.follow(t.watched) {
			return s.load(t), nil
		}
	}
}

// follow watches dirs and nothing else. It reports whether any of them is new.
func (w *watched) follow(dirs map[string]names) (fresh bool) {
	deaf := make(names)
	for dir := range dirs {
		// Add known ones again: it may be another directory with that name now.
		if err := w.Add(dir); err != nil {
			deaf[dir] = true
			if !w.deaf[dir] {
				w.log.Warn("directory can't be watched, its changes show later", "path", dir, "err", err)
			}
		}
		if _, known := w.dirs[dir]; !known {
			fresh = true
		}
	}
	for dir := range w.dirs {
		if _, still := dirs[dir]; !still {
			_ = w.Remove(dir) // it may have been deleted
		}
	}
	w.dirs, w.deaf = dirs, deaf
	return fresh
}

// counts reports whether the file or directory at path is, or leads to, one of
// the tree.
func (w *watched) counts(path string) bool {
	set, known := w.dirs[filepath.Dir(path)]
	return !known || set == nil || set[filepath.Base(path)]
}

// wait returns when the tree may have changed, or with ctx's error.
func (w *watched) wait(ctx context.Context) error {
	timer := time.NewTimer(w.rescan)
	defer timer.Stop()
	var latest time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		case <-w.Errors: //nolint:errcheck // events were lost
			return nil
		case e := <-w.Events:
			if !w.counts(e.Name) {
				continue
			}
			now := time.Now()
			if latest.IsZero() {
				latest = now.Add(settleMax)
			}
			timer.Reset(max(0, min(settle, latest.Sub(now))))
		}
	}
}

func (s *Source) log(r Report) {
	for _, p := range r.Mended {
		s.cfg.Log.Info("manifest problem is gone", "file", p.File, "line", p.Line, "object", p.Object, "field", p.Field)
	}
	for _, p := range r.New {
		log := s.cfg.Log.With("file", p.File, "line", p.Line, "object", p.Object, "field", p.Field, "err", p.Err)
		switch {
		case p.Closed:
			log.Error("manifest document rejected; what is invalid lets nothing through")
		case p.Rejected:
			log.Error("manifest document rejected; its last good version, if any, stays")
		default:
			log.Warn("manifest document")
		}
	}
}
