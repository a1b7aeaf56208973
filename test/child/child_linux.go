// Package child starts programs that do not outlive the process of a test.
package child

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts a command, which is killed when this process ends, and returns a channel that is closed when the
// command has ended: its ProcessState says how.
func Start(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	return StartIn(func(start func() error) error { return start() }, cmd)
}

// StartIn is Start in a place: within calls a function on a thread that is there, as the method Do of a network
// namespace does.
func StartIn(within func(func() error) error, cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started, done := make(chan error), make(chan struct{})
	go func() {
		// The signal is sent when the thread that started the command ends (prctl(2)). Threads that were in other
		// namespaces end.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		began := false
		err := within(func() error {
			err := cmd.Start()
			began = true
			started <- err
			if err == nil {
				_ = cmd.Wait()
			}
			return nil
		})
		if !began {
			started <- err
		}
	}()
	return done, <-started
}
