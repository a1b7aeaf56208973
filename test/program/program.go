// Package program builds portolan for the tests and benchmarks that run it. They
// share one file for each set of flags: go build links only what changed, and a
// link costs seconds of processor time.
package program

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// module is the module of the program.
const module = "portolan.dev/portolan"

// unused is how long a build that no test asks for stays in the cache.
const unused = 24 * time.Hour

// Options are those of go build.
type Options struct {
	Flags []string // such as -race
	Env   []string // beside the environment of this process, such as CGO_ENABLED=0
}

// Build builds portolan from the working tree and returns its file. The file is in
// the user's cache directory, its name depends on its content, and it is never
// written again: do not change it, and copy it where other users run it. Several
// processes may call Build at once.
func Build(ctx context.Context, o Options) (file string, err error) {
	repository, err := run(ctx, ".", nil, "go", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", err
	}
	if err := readSources(repository); err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "portolan", "program")
	// go build compares an existing file's build ID with what it would link, so
	// each tree keeps its latest file.
	tree := filepath.Join(cache, hash(append([]string{repository, ""}, append(o.Flags, o.Env...)...)...))
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(tree, "lock")).Lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	latest := filepath.Join(tree, "portolan")
	args := append([]string{"build", "-buildvcs=false", "-o", latest}, o.Flags...)
	if _, err := run(ctx, repository, o.Env, "go", append(args, "./cmd/portolan")...); err != nil {
		return "", err
	}
	return keep(ctx, cache, latest)
}

// readSources reads the directories of the program's sources. go test notes which
// directories of its module a test reads, and does not reuse the result of a test when
// a file there has changed; what the go command reads it does not see.
func readSources(repository string) error {
	for _, dir := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(repository, dir), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return err
		}
	}
	return nil
}

// keep links the latest file to a name made of its build ID, and removes files that
// were not asked for lately, which all trees share.
func keep(ctx context.Context, cache, latest string) (file string, err error) {
	id, err := run(ctx, ".", nil, "go", "tool", "buildid", latest)
	if err != nil {
		return "", err
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(cache, "lock")).Lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	dir := filepath.Join(cache, "by-content", hash(id))
	file = filepath.Join(dir, "portolan")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.Link(latest, file); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	now := time.Now()
	if err := os.Chtimes(dir, now, now); err != nil {
		return "", err
	}
	return file, prune(cache, now.Add(-unused))
}

// prune removes directories of the cache that were last modified before a time.
func prune(cache string, before time.Time) error {
	dirs, err := filepath.Glob(filepath.Join(cache, "by-content", "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.ModTime().Before(before) {
			err = os.RemoveAll(dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hash returns a file name for a list of words.
func hash(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// run runs a command and returns its output without the last line's end.
func run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("program: %s: %w\n%s", cmd, err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}
