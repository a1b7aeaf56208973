//go:build linux

package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/program"
)

// Image is Portolan's image, as deploy/image/Dockerfile makes it.
type Image struct {
	Root         string // the directory of its files
	Entrypoint   string
	Capabilities string // of the file, as setcap(8) spells them
	User         int

	lock *os.File
}

// The lines of the Dockerfile that BuildImage follows.
var (
	buildLine  = regexp.MustCompile(`(?m)^RUN CGO_ENABLED=0 .* go build (-trimpath) (-ldflags)="(-s -w)" -o (/portolan) `)
	setcapLine = regexp.MustCompile(`(?m)^RUN .*\bsetcap (\S+) /portolan$`)
	userLine   = regexp.MustCompile(`(?m)^USER (\d+):`)
)

// BuildImage builds the image from the repository. It needs setcap (Debian:
// libcap2-bin) and, for the file capability, root.
func BuildImage(ctx context.Context, repository string) (*Image, error) {
	text, err := os.ReadFile(filepath.Join(repository, "deploy/image/Dockerfile"))
	if err != nil {
		return nil, err
	}
	build, setcap, user := buildLine.FindSubmatch(text), setcapLine.FindSubmatch(text), userLine.FindSubmatch(text)
	if build == nil || setcap == nil || user == nil {
		return nil, fmt.Errorf("container: the Dockerfile does not match %s, %s and %s", buildLine, setcapLine, userLine)
	}
	removeLeft()
	dir, err := os.MkdirTemp("", imageDir)
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	image := &Image{Root: dir, Entrypoint: string(build[4]), Capabilities: string(setcap[1]), lock: lock}
	image.User, _ = strconv.Atoi(string(user[1])) // digits
	file := filepath.Join(dir, image.Entrypoint)
	built, err := program.Build(ctx, program.Options{
		Flags: []string{string(build[1]), string(build[2]) + "=" + string(build[3])},
		Env:   []string{"CGO_ENABLED=0"},
	})
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(filepath.Dir(built)))
	}
	if err != nil {
		_ = image.Remove() // there is an error already
		return nil, fmt.Errorf("container: %w", err)
	}
	for _, cmd := range []*exec.Cmd{
		exec.CommandContext(ctx, "chmod", "755", dir),
		exec.CommandContext(ctx, "setcap", image.Capabilities, file),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			_ = image.Remove() // there is an error already
			return nil, fmt.Errorf("container: %s: %w\n%s", cmd, err, out)
		}
	}
	return image, nil
}

// Remove removes the image's files.
func (i *Image) Remove() error { return errors.Join(os.RemoveAll(i.Root), i.lock.Close()) }

// imageDir is the prefix of the names of images' directories.
const imageDir = "portolan-container-"

// lockDir locks a directory until its file is closed or the process ends. It fails if
// another process holds the lock.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "flock", Path: dir, Err: err}
	}
	return f, nil
}

// removeLeft removes the images of processes that were killed. A directory without
// files may be new and not locked yet.
func removeLeft() {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), imageDir+"*")) // the pattern is a good one
	for _, dir := range left {
		lock, err := lockDir(dir)
		if err != nil {
			continue
		}
		if files, err := os.ReadDir(dir); err == nil && len(files) > 0 {
			_ = os.RemoveAll(dir) // the next one tries again
		}
		lock.Close()
	}
}
