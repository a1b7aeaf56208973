package manifest

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A change is read when nothing happened for settle, but at latest after
// settleMax: an editor writes a file in several steps, and half a file must
// not count. Without any event the tree is looked at every rescan, for file
// systems that send none and for a directory that was not there.
const (
	settle    = 15 * time.Millisecond
	settleMax = 80 * time.Millisecond
	rescan    = 2 * time.Second
)

// Run loads the tree, calls loaded, unless nil, and then follows the tree's
// changes until ctx is done, when it returns ctx's error. It fails when the
// tree can't be read at first; later it goes on with what it had, and says so.
func (s *Source) Run(ctx context.Context, loaded func(Report)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	// Watched before it is read, so that no change falls between.
	s.watch(watcher)
	report, err := s.Load()
	if err != nil {
		return err
	}
	s.log(report)
	if loaded != nil {
		loaded(report)
	}
	lost := false // the tree could not be read last time
	for {
		if err := wait(ctx, watcher); err != nil {
			return err
		}
		s.watch(watcher)
		report, err := s.Load()
		if (err != nil) != lost {
			lost = err != nil
			if lost {
				s.cfg.Log.Error("manifests can't be read, the last good ones stay", "path", s.cfg.Path, "err", err)
			} else {
				s.cfg.Log.Info("manifests can be read again", "path", s.cfg.Path)
			}
		}
		s.log(report)
	}
}

// watch makes the watcher watch the directories of the tree; that it watches
// one already is no error, and one that vanished is found by the next scan.
func (s *Source) watch(w *fsnotify.Watcher) {
	_ = w.Add(filepath.Dir(filepath.Clean(s.cfg.Path)))
	t, err := walk(s.cfg.Path)
	if err != nil {
		return
	}
	for _, dir := range t.dirs {
		_ = w.Add(dir) // one that can't be watched is looked at every rescan
	}
}

// wait returns when the tree may have changed, or with ctx's error.
func wait(ctx context.Context, w *fsnotify.Watcher) error {
	timer := time.NewTimer(rescan)
	defer timer.Stop()
	var latest time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		case <-w.Errors: // events were lost: look
			return nil
		case <-w.Events:
			now := time.Now()
			if latest.IsZero() {
				latest = now.Add(settleMax)
			}
			timer.Reset(max(0, min(settle, latest.Sub(now))))
		}
	}
}

func (s *Source) log(r Report) {
	for _, p := range r.New {
		log := s.cfg.Log.With("file", p.File, "line", p.Line, "object", p.Object, "field", p.Field, "err", p.Err)
		if p.Rejected {
			log.Error("manifest document rejected, its last good version stays")
		} else {
			log.Warn("manifest document")
		}
	}
}
