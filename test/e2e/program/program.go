// Package program makes the real program, for tests that run it.
package program

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build builds portolan with the race detector out of Portolan's own module, and
// gives its file, in a directory that the caller removes.
func Build(from Repository, dir string) (file string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	file = filepath.Join(dir, "portolan")
	cmd := exec.Command("go", "build", "-race", "-o", file, "./cmd/portolan")
	cmd.Dir = string(from)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build portolan: %w\n%s", err, out)
	}
	return file, nil
}

// Repository is the directory of Portolan's own module.
type Repository string
