package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is one program, in a process group of its own. It may be started
// again after it ended.
type process struct {
	path string
	args []string
	log  string // file

	pid   int
	ended chan struct{} // closed when it ended; nil before the first start
	how   error         // it ended; good then
}

// start starts the program. The thread that starts a process must live as long
// as it does, or the signal at the death of its parent comes early.
func (p *process) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.path, p.args...)
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
			p.how = cmd.Wait()
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.pid, p.ended = cmd.Process.Pid, ended
	return nil
}

// waitReady waits until the process answers without error, or ends.
func (p *process) waitReady(ctx context.Context, answers func(context.Context) error) error {
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
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w", p.path, ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// signal sends a signal to the process group, if it still runs.
func (p *process) signal(s syscall.Signal) {
	if p.ended == nil {
		return
	}
	select {
	case <-p.ended:
	default:
		_ = syscall.Kill(-p.pid, s) // it may just have ended
	}
}

// stop asks the process to end, and kills it when it has not after the grace.
func (p *process) stop(grace time.Duration) {
	if p.ended == nil {
		return
	}
	if grace > 0 {
		p.signal(syscall.SIGTERM)
		p.signal(syscall.SIGCONT)
		select {
		case <-p.ended:
			return
		case <-time.After(grace):
		}
	}
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// failure says how the process ended, with the last of what it logged.
func (p *process) failure() error {
	const shown = 3000
	log, _ := os.ReadFile(p.log) // without it there is the state
	log = bytes.TrimSpace(log[max(0, len(log)-shown):])
	return fmt.Errorf("%s ended: %w\n%s", p.path, p.how, log)
}
