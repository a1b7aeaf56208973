package follow

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Each calls f at once, and again whenever a file of paths has changed, or one below a directory of paths that counts,
// until the context ends or f returns an error. Other files in the same directories, such as the output of f, do not
// matter, nor do names that begin with a dot.
func Each(ctx context.Context, paths []string, counts func(path string) bool, f func(context.Context) error) error {
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return err
		}
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	tree := followedTree{w, paths, counts}
	seen, err := tree.scan()
	for ; err == nil; seen, err = tree.awaitChange(ctx, seen) {
		if err := f(ctx); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// followedTree is what Each follows. Directories are watched, not files: editors replace files.
type followedTree struct {
	*fsnotify.Watcher
	paths  []string
	counts func(path string) bool
}

// scan watches the directories, as they come and go, and returns the files that count.
func (t *followedTree) scan() (map[string]fs.FileInfo, error) {
	files := make(map[string]fs.FileInfo)
	for _, root := range t.paths {
		if err := t.Add(filepath.Dir(root)); err != nil {
			return nil, err
		}
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist): // it is being replaced, or was deleted
				return nil
			case err != nil:
				return err
			case path != root && strings.HasPrefix(d.Name(), "."):
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			case d.IsDir():
				return t.Add(path)
			case path != root && !t.counts(path):
				return nil
			}
			if info, err := os.Stat(path); err == nil { // of what a link leads to
				files[path] = info
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// awaitChange waits until the files are not those that were seen, and returns them.
func (t *followedTree) awaitChange(ctx context.Context, seen map[string]fs.FileInfo) (map[string]fs.FileInfo, error) {
	for {
		if err := awaitQuiet(ctx, t.Watcher); err != nil {
			return nil, err
		}
		now, err := t.scan()
		if err != nil || !maps.EqualFunc(seen, now, isUnchanged) {
			return now, err
		}
	}
}

func isUnchanged(before, now fs.FileInfo) bool {
	v := Version{info: before}
	return v.isOf(now)
}

// awaitQuiet waits for a change in a watched directory, and then until there is none for a moment, but not for long.
// It returns the context's error if it ends.
func awaitQuiet(ctx context.Context, w *fsnotify.Watcher) error {
	const quiet, most = 200 * time.Millisecond, 2 * time.Second
	var settled, late <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.Events:
		case <-w.Errors: //nolint:errcheck // an overflow: something has changed
		case <-settled:
			return nil
		case <-late:
			return nil
		}
		settled = time.After(quiet)
		if late == nil {
			late = time.After(most)
		}
	}
}
