// Package pinned builds programs of other projects in the versions that a module's go.mod
// requires, and keeps them in the user's cache directory.
package pinned

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrBuild is the error that Prepare wraps, such as for no network or no space.
var ErrBuild = errors.New("programs can't be built")

// Set describes programs that are built together.
type Set struct {
	// Module requires the modules of the programs; its directory is where go build runs.
	Module string
	// Name is the directory's name in the cache, with a %s for each of Versions. The version of
	// Go follows.
	Name string
	// Packages are the packages of the programs, by the programs' names.
	Packages map[string]string
	// Versions are modules whose versions distinguish builds. The first one's is what
	// programs of Kubernetes report as theirs.
	Versions []string
	// Environment is beside that of this process, such as CGO_ENABLED=0.
	Environment []string
}

// Programs are built programs.
type Programs struct {
	Dir     string
	Version string // of the first of Versions
}

// Path is the file of a program.
func (p Programs) Path(name string) string { return filepath.Join(p.Dir, name) }

// Prepare builds those programs that the user's cache directory does not hold in these
// versions. Several processes may call it at once.
func (s Set) Prepare(ctx context.Context, log *slog.Logger) (Programs, error) {
	b, err := s.builder(ctx)
	if err == nil {
		err = b.buildMissing(ctx, log)
	}
	if err != nil {
		return Programs{}, fmt.Errorf("%w: %w", ErrBuild, err)
	}
	return Programs{b.out, b.version}, nil
}

// builder builds the versions that the module requires.
type builder struct {
	Set
	dir     string // of the module
	out     string
	version string // of the first of Versions
}

func (s Set) builder(ctx context.Context) (*builder, error) {
	b := &builder{Set: s}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	if b.dir, err = b.runGo(ctx, ".", "list", "-m", "-f", "{{.Dir}}", s.Module); err != nil {
		return nil, err
	}
	const used = "{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}"
	listed, err := b.runGo(ctx, b.dir, append([]string{"list", "-m", "-f", used}, s.Versions...)...)
	if err != nil {
		return nil, err
	}
	goVersion, err := b.runGo(ctx, b.dir, "env", "GOVERSION")
	if err != nil {
		return nil, err
	}
	var versions []any
	for version := range strings.FieldsSeq(listed) {
		versions = append(versions, version)
	}
	b.version, _, _ = strings.Cut(listed, "\n")
	b.out = filepath.Join(cache, "portolan", fmt.Sprintf(s.Name, versions...)+"-"+goVersion)
	return b, nil
}

func (b *builder) buildMissing(ctx context.Context, log *slog.Logger) error {
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(b.out, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	for program, pkg := range b.Packages {
		if _, err := os.Stat(filepath.Join(b.out, program)); err == nil {
			continue
		}
		log.Warn("building a program, once; a set of them takes minutes", "program", program, "into", b.out)
		if err := b.build(ctx, program, pkg); err != nil {
			return err
		}
	}
	return nil
}

// build builds one program under another name and renames it, so that a file with the
// program's name is always complete.
func (b *builder) build(ctx context.Context, program, pkg string) error {
	part := filepath.Join(b.out, program+".part")
	defer os.Remove(part)
	if _, err := b.runGo(ctx, b.dir, "build", "-trimpath", "-ldflags="+b.linkerFlags(), "-o", part, pkg); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(b.out, program))
}

// linkerFlags tells the programs their version: an API server that knows none
// answers as version 0.0.
func (b *builder) linkerFlags() string {
	numbers := append(strings.Split(strings.TrimPrefix(b.version, "v"), "."), "", "")
	const version = "-X k8s.io/component-base/version."
	return fmt.Sprintf("-s -w %[1]sgitVersion=%[2]s %[1]sgitMajor=%[3]s %[1]sgitMinor=%[4]s", version, b.version,
		numbers[0], numbers[1])
}

// runGo runs the go command and returns its output without the last line's end.
func (b *builder) runGo(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), b.Environment...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}

// lock waits until this process alone has the file's lock.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
