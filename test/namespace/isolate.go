//go:build linux

package namespace

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolated is the environment variable that marks a process in a namespace of its own.
const isolated = "PORTOLAN_TEST_NAMESPACE"

// Isolated reports whether the process was started by Isolate.
func Isolated() bool { return os.Getenv(isolated) != "" }

// Isolate runs this program again, with the same arguments and more environment variables
// (NAME=VALUE), in a network namespace of its own, and returns its exit status. The other one ends
// with this one, and gets its interrupts.
func Isolate(environment ...string) (status int, err error) {
	runtime.LockOSThread() // its death would end the process
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(append(os.Environ(), isolated+"=1"), environment...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET, Setpgid: true, Pdeathsig: syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for range signals {
			_ = cmd.Process.Signal(os.Interrupt) // it may just have ended
		}
	}()
	_ = cmd.Wait() // the state says it
	return cmd.ProcessState.ExitCode(), nil
}
