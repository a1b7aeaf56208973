//go:build linux

package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// enterArgument is the first argument of the process of a container.
const enterArgument = "cri-enter"

// failureFile is the file descriptor to which that process writes why it cannot become the
// container's program. It is closed when it does.
const failureFile = 3

// Main becomes the program of a container if the process was started for that, and returns at
// once otherwise.
func Main() {
	if len(os.Args) != 3 || os.Args[1] != enterArgument {
		return
	}
	unix.CloseOnExec(failureFile)
	_, _ = fmt.Fprint(os.NewFile(failureFile, "failure"), enter(os.Args[2]))
	os.Exit(128)
}

// enter becomes the program, or returns why it cannot. All that belongs to a thread is done on
// the one that becomes it.
func enter(text string) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	if err := p.Enter(); err != nil {
		return err
	}
	if p.NetworkFile != "" {
		if err := unix.Sethostname([]byte(p.Hostname)); err != nil {
			return os.NewSyscallError("sethostname", err)
		}
	}
	if err := errors.Join(
		os.NewSyscallError("setgroups", unix.Setgroups(p.Supplementary)),
		os.NewSyscallError("setgid", unix.Setgid(p.Group)),
		os.NewSyscallError("setuid", unix.Setuid(p.User)),
		os.Chdir(p.Dir),
	); err != nil {
		return err
	}
	program, err := lookPath(p.Args[0], p.Env)
	if err != nil {
		return err
	}
	return &fs.PathError{Op: "exec", Path: program, Err: unix.Exec(program, p.Args, p.Env)}
}

// lookPath finds a program in the search path of an environment.
func lookPath(program string, env []string) (string, error) {
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			if err := os.Setenv("PATH", value); err != nil {
				return "", err
			}
		}
	}
	return exec.LookPath(program)
}
