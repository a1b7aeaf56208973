package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tree is what stands in a directory tree at one moment.
type tree struct {
	files map[string]fs.FileInfo // manifests, by path; of what a link leads to
	dirs  []string               // to be watched for changes
	// root is the tree's directory, above the one that it is in; both are empty
	// when the tree is one file.
	root, above string
}

// maxFile is how long a manifest may be, in octets.
const maxFile = 256 << 20

// walk finds the manifests under root, which may itself be one file. Names
// that begin with a dot are passed over, links are followed: that is how a
// mounted ConfigMap changes all its files at once.
func walk(root string) (*tree, error) {
	info, err := os.Stat(root)
	if err != nil {
		return nil, err
	}
	t := &tree{files: make(map[string]fs.FileInfo)}
	if !info.IsDir() {
		t.addFile(root, info)
		t.watch(filepath.Dir(root))
		return t, nil
	}
	t.root = filepath.Clean(root)
	t.above = filepath.Dir(t.root)
	t.watch(t.above) // where the root itself may be replaced
	return t, t.addDir(root, nil)
}

// addDir adds a directory; above are the directories it is in, with links
// resolved.
func (t *tree) addDir(dir string, above []string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if slices.Contains(above, real) {
		return nil // a link to a directory around it
	}
	t.watch(dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone meanwhile, or a dangling link
		case err != nil:
			return err
		case info.IsDir():
			if err := t.addDir(path, append(slices.Clone(above), real)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		case info.Mode().IsRegular() && isManifest(path):
			t.addFile(path, info)
		}
		if e.Type()&fs.ModeSymlink != 0 {
			if target, err := filepath.EvalSymlinks(path); err == nil {
				t.watch(filepath.Dir(target))
			}
		}
	}
	return nil
}

func (t *tree) addFile(path string, info fs.FileInfo) { t.files[path] = info }

func (t *tree) watch(dir string) {
	if !slices.Contains(t.dirs, dir) {
		t.dirs = append(t.dirs, dir)
	}
}

func isManifest(path string) bool {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// readFile reads a manifest.
func readFile(path string, info fs.FileInfo) ([]byte, error) {
	if info.Size() > maxFile {
		return nil, fmt.Errorf("longer than %d MiB", maxFile>>20)
	}
	return os.ReadFile(path)
}
