// Package process runs programs for tests and measurements: none outlives who
// started it.
package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Process is one program, in a process group of its own. It may be started
// again after it ended. Its methods must not be called at once.
type Process struct {
	Path string
	Args []string
	Log  string // a file that gets what it prints, at its end

	pid   int
	ended chan struct{} // closed when it ended; nil before the first start
	state *os.ProcessState
}

// Start starts the program. The thread that starts a process must live as long
// as it does, or the signal at the death of its parent comes early.
func (p *Process) Start() error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = ownGroup()
	started := make(chan error)
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the state says it
			p.state = cmd.ProcessState
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.pid, p.ended = cmd.Process.Pid, ended
	return nil
}

// Running reports whether the process was started and has not ended.
func (p *Process) Running() bool {
	if p.ended == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// ID is the process' ID; 0 before the first start.
func (p *Process) ID() int { return p.pid }

// State is how the process ended, once it has.
func (p *Process) State() *os.ProcessState { return p.state }

// WaitReady waits until the process answers without error, or ends.
func (p *Process) WaitReady(ctx context.Context, answers func(context.Context) error) error {
	const (
		patience = 2 * time.Minute
		perTry   = 2 * time.Second
		pause    = 30 * time.Millisecond
	)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, perTry)
		err := answers(try)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended: %s\n%s", p.Path, p.state, p.LastLogged())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w", p.Path, ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// Signal sends a signal to the process group, if it still runs.
func (p *Process) Signal(s syscall.Signal) {
	if p.Running() {
		_ = syscall.Kill(-p.pid, s) // it may just have ended
	}
}

// Stop asks the process to end, and kills it when it has not after the grace.
func (p *Process) Stop(grace time.Duration) {
	if !p.Running() {
		return
	}
	if grace > 0 {
		p.Signal(syscall.SIGTERM)
		p.Signal(syscall.SIGCONT)
		select {
		case <-p.ended:
			return
		case <-time.After(grace):
		}
	}
	p.Signal(syscall.SIGKILL)
	<-p.ended
}

// Logged is all that was logged so far, by all that were started.
func (p *Process) Logged() string {
	log, _ := os.ReadFile(p.Log) // without the file nothing was
	return string(log)
}

// LastLogged is the end of what was logged.
func (p *Process) LastLogged() string {
	const shown = 8000
	log := p.Logged()
	return strings.TrimSpace(log[max(0, len(log)-shown):])
}
