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

// tree is the contents of the directory trees at one moment.
type tree struct {
	root    string // the path that is walked
	exclude []string
	files   map[string]fs.FileInfo // manifests, by path; the info is of a link's target
	// broken are the files and directories that can't be read. What was read from
	// them before stays.
	broken map[string]error
	// kustomizations are files that tell kustomize what to render.
	kustomizations []string
	// watched are directories, with links resolved, and the names in them that are
	// relevant; nil is all names.
	watched map[string]names
	// walked are the directories, with links resolved. Each is walked once, whatever links
	// lead to it.
	walked map[string]bool
}

// names is a set of file names.
type names map[string]bool

// maxFile is how long a manifest may be, in octets.
const maxFile = 256 << 20

var errTooLong = fmt.Errorf("longer than %d MiB", maxFile>>20)

// walk finds the manifests under the paths of cfg, which may be files. It skips
// names that begin with a dot, and those that are excluded. It follows links: a
// mounted ConfigMap changes all its files at once through one. It fails when one
// of the paths itself can't be read.
func walk(cfg *Config) (*tree, error) {
	t := &tree{
		exclude: cfg.Exclude,
		files:   make(map[string]fs.FileInfo),
		broken:  make(map[string]error),
		watched: make(map[string]names),
		walked:  make(map[string]bool),
	}
	for _, root := range append([]string{cfg.Path}, cfg.Also...) {
		if root == "-" && cfg.Stdin != nil {
			t.files[Stdin] = nil
			continue
		}
		if err := t.addRoot(root); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *tree) addRoot(root string) error {
	info, err := os.Stat(root)
	if err != nil {
		return err
	}
	t.root = root
	t.watchName(root)
	if !info.IsDir() {
		t.addFile(root, info)
		return nil
	}
	return t.addDir(root)
}

// addDir adds a directory, unless it was added before.
func (t *tree) addDir(dir string) error {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if t.walked[resolved] {
		return nil
	}
	t.walked[resolved], t.watched[resolved] = true, nil
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if t.excluded(path) {
			continue
		}
		if e.Type()&fs.ModeSymlink != 0 {
			t.watchName(path)
		}
		err := t.addEntry(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // deleted meanwhile, or a dangling link
			t.broken[path] = err
		}
	}
	return nil
}

func (t *tree) addEntry(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return t.addDir(path)
	case info.Mode().IsRegular() && IsManifest(path):
		t.addFile(path, info)
	case info.Mode().IsRegular() && isKustomization(path): // without an extension
		t.kustomizations = append(t.kustomizations, path)
	}
	return nil
}

// addFile adds a file that is read.
func (t *tree) addFile(path string, info fs.FileInfo) {
	t.files[path] = info
	if isKustomization(path) {
		t.kustomizations = append(t.kustomizations, path)
	}
}

// isKustomization reports whether a file has one of the names that kustomize
// looks for in a directory (Kubernetes, "Declarative Management of
// Kubernetes Objects Using Kustomize").
func isKustomization(path string) bool {
	switch filepath.Base(path) {
	case "kustomization.yaml", "kustomization.yml", "Kustomization":
		return true
	}
	return false
}

// excluded reports whether a pattern matches a path below the root, or its last
// element.
func (t *tree) excluded(path string) bool {
	below, err := filepath.Rel(t.root, path)
	if err != nil {
		below = path
	}
	return slices.ContainsFunc(t.exclude, func(pattern string) bool {
		name, _ := filepath.Match(pattern, filepath.Base(path))
		whole, _ := filepath.Match(pattern, below)
		return name || whole
	})
}

// isBroken reports whether path, or a parent, can't be read.
func (t *tree) isBroken(path string) bool {
	for broken := range t.broken {
		if path == broken || strings.HasPrefix(path, broken+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

// watchName watches what can change the file at path: its name, and each link on
// the way.
func (t *tree) watchName(path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return
	}
	const maxLinks = 40 // as Linux follows
	for range maxLinks {
		next := t.watchLink(path)
		if next == "" {
			break
		}
		path = next
	}
	t.watchIn(filepath.Dir(path), filepath.Base(path))
}

// watchLink watches the first link in an absolute path and returns the path with
// that link resolved; empty when there is none.
func (t *tree) watchLink(path string) (resolved string) {
	for at := 1; at <= len(path); at++ {
		if at < len(path) && path[at] != filepath.Separator {
			continue
		}
		link, err := os.Readlink(path[:at])
		if err != nil {
			continue
		}
		t.watchIn(filepath.Dir(path[:at]), filepath.Base(path[:at]))
		if !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(path[:at]), link)
		}
		return filepath.Join(link, path[at:])
	}
	return ""
}

func (t *tree) watchIn(dir, name string) {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return
	}
	set, watched := t.watched[resolved]
	if watched && set == nil {
		return // all names count
	}
	if set == nil {
		set = make(names)
		t.watched[resolved] = set
	}
	set[name] = true
}

// IsManifest reports whether a file in a directory of manifests is read, by its extension.
func IsManifest(path string) bool {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// readFile reads a manifest.
func readFile(path string, info fs.FileInfo) ([]byte, error) {
	if info.Size() > maxFile {
		return nil, errTooLong
	}
	return os.ReadFile(path)
}
