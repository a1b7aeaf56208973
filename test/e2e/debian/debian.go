// Package debian gives tests and measurements the programs of Debian packages
// without installing them.
package debian

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Program gives the path of a program of a Debian package: where the system has
// it, or out of the package and those that it needs, which are fetched into the
// user's cache directory. Libraries says where its libraries are, as
// LD_LIBRARY_PATH; empty is where the system looks.
func Program(ctx context.Context, log *slog.Logger, pkg, program string) (path, libraries string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", err
	}
	cache = filepath.Join(cache, "portolan")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", "", err
	}
	for _, dir := range []string{"/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"} {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, "", nil
		}
	}
	root := filepath.Join(cache, "debian-"+pkg)
	path = filepath.Join(root, "usr/sbin", program)
	if _, err := os.Stat(path); err != nil {
		log.Info("fetching a Debian package", "package", pkg)
		if err := fetch(ctx, pkg, root); err != nil {
			return "", "", fmt.Errorf("fetch package %s: %w", pkg, err)
		}
	}
	var dirs []string
	for _, pattern := range []string{"usr/lib/*-linux-gnu", "lib/*-linux-gnu"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return "", "", err
		}
		dirs = append(dirs, found...)
	}
	return path, strings.Join(dirs, ":"), nil
}

// fetch unpacks a package, and those that it needs and the system lacks.
func fetch(ctx context.Context, pkg, root string) error {
	plan, err := output(exec.CommandContext(ctx, "apt-get", "--simulate", "--no-install-recommends", "install", pkg))
	if err != nil {
		return err
	}
	part, err := os.MkdirTemp(filepath.Dir(root), "debian-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(part)
	download := exec.CommandContext(ctx, "apt-get", "download")
	for _, line := range regexp.MustCompile(`(?m)^Inst (\S+)`).FindAllStringSubmatch(plan, -1) {
		download.Args = append(download.Args, line[1])
	}
	download.Dir = part
	if _, err := output(download); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(part, "*.deb"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if _, err := output(exec.CommandContext(ctx, "dpkg-deb", "--extract", file, part)); err != nil {
			return err
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return os.Rename(part, root)
}

// Loading makes a command look for libraries in these directories first.
func Loading(cmd *exec.Cmd, libraries string) *exec.Cmd {
	if libraries != "" {
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries)
	}
	return cmd
}

// output is what a command prints; what it complains of is in the error.
func output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, &stderr)
	}
	return string(out), nil
}
