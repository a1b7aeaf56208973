package follow

import (
	"context"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Each calls f at once, and again whenever a file or something below a directory of paths has changed, until the
// context ends or f returns an error.
func Each(ctx context.Context, paths []string, f func(context.Context) error) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		// Editors replace files, and directories come and go.
		if err := watchAll(w, paths); err != nil {
			return err
		}
		if err := f(ctx); err != nil {
			return err
		}
		if err := awaitQuiet(ctx, w); err != nil {
			return nil
		}
	}
}

// watchAll watches the directories of files, and all directories below those of paths.
func watchAll(w *fsnotify.Watcher, paths []string) error {
	for _, path := range paths {
		if err := w.Add(filepath.Dir(path)); err != nil {
			return err
		}
		err := filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			return w.Add(at)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitQuiet waits for a change, and then until there is none for a moment. It returns the context's error if it ends.
func awaitQuiet(ctx context.Context, w *fsnotify.Watcher) error {
	const quiet = 200 * time.Millisecond
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.Events:
			settled = time.After(quiet)
		case err := <-w.Errors: // an overflow: something has changed
			if err == nil {
				return ctx.Err() // the watcher is closed
			}
			settled = time.After(quiet)
		case <-settled:
			return nil
		}
	}
}
