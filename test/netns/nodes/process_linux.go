package nodes

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Process is a program that runs in a place.
type Process struct {
	cmd   *exec.Cmd
	log   string // file
	ended chan struct{}
}

// Start starts a program, which appends its log to a file.
func (p *Place) Start(log, program string, args ...string) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	process := &Process{cmd: exec.Command(program, args...), log: log, ended: make(chan struct{})}
	process.cmd.Stdout, process.cmd.Stderr = file, file
	if err := p.start(process.cmd); err != nil {
		return nil, err
	}
	go func() {
		defer close(process.ended)
		_ = process.cmd.Wait() // it is told to end
	}()
	return process, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill sends SIGKILL and returns when the process and its sockets are gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// Stop sends SIGTERM, and SIGKILL if the process does not end in time.
func (p *Process) Stop() error {
	const grace = 20 * time.Second
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s ended before: %w\n%s", p.cmd.Path, err, p.Log())
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(grace):
		p.Kill()
		return fmt.Errorf("%s does not end\n%s", p.cmd.Path, p.Log())
	}
}

// Log returns the process's log.
func (p *Process) Log() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}

// AwaitLog waits until the log contains the text.
func (p *Process) AwaitLog(text string, patience time.Duration) error {
	const pause = 5 * time.Millisecond
	for deadline := time.Now().Add(patience); !strings.Contains(p.Log(), text); {
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended\n%s", p.cmd.Path, p.Log())
		case <-time.After(pause):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s has not said %q in %v\n%s", p.cmd.Path, text, patience, p.Log())
		}
	}
	return nil
}
