//go:build linux

package pods

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/e2e/container"
	"portolan.dev/portolan/test/e2e/process"
)

// argument is the first argument of a process that becomes a Pod's program.
const argument = "pod-main"

// plan is what that process is told.
type plan struct {
	container.Surroundings
	Args, Env []string
}

// Main becomes the program of a Pod if the process was started for that, and returns at once otherwise.
func Main() {
	if len(os.Args) != 3 || os.Args[1] != argument {
		return
	}
	fmt.Fprintln(os.Stderr, become(os.Args[2]))
	os.Exit(1)
}

// become becomes the program, or returns why it cannot.
func become(text string) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	if err := p.Enter(); err != nil {
		return err
	}
	return &fs.PathError{Op: "exec", Path: p.Args[0], Err: unix.Exec(p.Args[0], p.Args, p.Env)}
}

// process is that of the plan. All that the Pod runs ends with it.
func (p *plan) process(log string) (*process.Process, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &process.Process{
		Path: "unshare", Log: log,
		Args: []string{"--pid", "--mount", "--ipc", "--fork", "--kill-child", self, argument, string(text)},
	}, nil
}
