// Package rig is what all measurements need: it builds the programs, runs them,
// says what machine this is, and puts tables into files.
package rig

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// linkerFlags are those that both servers are released with.
const linkerFlags = "-ldflags=-s -w"

// Workshop builds programs.
type Workshop struct {
	// Tree is that of Portolan which this module is part of.
	Tree string

	log       *slog.Logger
	dir       string // of what is built each time
	cache     string // of what is built or fetched once
	bench     string // of this module
	goVersion string
}

// NewWorkshop makes a workshop that builds into dir, and once for all into the
// user's cache directory.
func NewWorkshop(ctx context.Context, log *slog.Logger, dir string) (*Workshop, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	w := &Workshop{log: log, dir: dir, cache: filepath.Join(cache, "portolan")}
	dirs, err := goTool(ctx, ".", "list", "-m", "-f", "{{.Dir}}", "portolan.dev/portolan", "portolan.dev/portolan/bench")
	if err != nil {
		return nil, err
	}
	w.Tree, w.bench, _ = strings.Cut(dirs, "\n")
	w.goVersion, err = goTool(ctx, w.Tree, "env", "GOVERSION")
	return w, err
}

// Tool builds a command of this module.
func (w *Workshop) Tool(ctx context.Context, folder string) (path string, err error) {
	return w.build(ctx, w.bench, "./"+folder, filepath.Base(folder))
}

func (w *Workshop) build(ctx context.Context, module, folder, name string) (path string, err error) {
	path = filepath.Join(w.dir, name)
	_, err = goTool(ctx, module, "build", "-trimpath", linkerFlags, "-o", path, folder)
	return path, err
}

// buildCoreDNS builds it from its module, once for each version.
func (w *Workshop) buildCoreDNS(ctx context.Context) (path string, err error) {
	module := filepath.Join(w.bench, "coredns")
	version, err := goTool(ctx, module, "list", "-m", "-f", "{{.Version}}", "github.com/coredns/coredns")
	if err != nil {
		return "", err
	}
	path = filepath.Join(w.cache, fmt.Sprintf("coredns-%s-%s", version, w.goVersion))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	w.log.Warn("building CoreDNS; it takes about 3 minutes, once", "version", version)
	// Under another name first, so that what is there is always whole.
	part := path + ".part"
	defer os.Remove(part)
	_, err = goTool(ctx, module, "build", "-trimpath", linkerFlags, "-o", part, "github.com/coredns/coredns")
	if err != nil {
		return "", err
	}
	return path, os.Rename(part, path)
}

// commit is that of a tree, with "+" when it was changed since.
func commit(ctx context.Context, tree string) string {
	describe := exec.CommandContext(ctx, "git", "-C", tree, "describe", "--always", "--exclude=*", "--dirty=+")
	out, err := describe.Output()
	if err != nil {
		return "an unknown commit"
	}
	return strings.TrimSpace(string(out))
}

func goTool(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	return output(cmd)
}

// output is what a command prints, without the last line's end; what it
// complains of is in the error.
func output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}
