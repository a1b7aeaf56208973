// Package rig has what all measurements share: it builds and runs the programs,
// describes the machine and writes tables into files.
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

// linkerFlags are the flags with which both servers are released.
const linkerFlags = "-ldflags=-s -w"

// Workshop builds programs.
type Workshop struct {
	// Tree is the source tree of Portolan that contains this module.
	Tree string

	log       *slog.Logger
	dir       string // for programs that are built each time
	cache     string // for programs that are built or fetched once
	bench     string // the directory of this module
	goVersion string
}

// NewWorkshop returns a Workshop that builds into dir, or into the user's cache
// directory for programs that are built once.
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

// released is a program that is built with the versions it was released with: those of a module
// of its own.
type released struct {
	folder  string // of that module
	name    string // of the file
	module  string // that has the program, and its version
	program string // its package
}

// buildOnce builds a program, once for each version.
func (w *Workshop) buildOnce(ctx context.Context, r released) (p *Program, err error) {
	dir := filepath.Join(w.bench, r.folder)
	version, err := goTool(ctx, dir, "list", "-m", "-f", "{{.Version}}", r.module)
	if err != nil {
		return nil, err
	}
	p = &Program{
		Version: strings.TrimPrefix(version, "v"),
		path:    filepath.Join(w.cache, fmt.Sprintf("%s-%s-%s", r.name, version, w.goVersion)),
	}
	if _, err := os.Stat(p.path); err == nil {
		return p, nil
	}
	w.log.Warn("building a program; it takes about 3 minutes, once", "program", r.program, "version", version)
	// Build under a temporary name, so that an existing file is always complete.
	part := p.path + ".part"
	defer os.Remove(part)
	flags := linkerFlags + " -X k8s.io/component-base/version.gitVersion=" + version
	if _, err = goTool(ctx, dir, "build", "-trimpath", flags, "-o", part, r.program); err != nil {
		return nil, err
	}
	return p, os.Rename(part, p.path)
}

// commit returns the commit of a tree, with "+" if the tree has changes.
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

// output returns what a command prints, without the final line feed. Its error has the
// command's stderr.
func output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}
