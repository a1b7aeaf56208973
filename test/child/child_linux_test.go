package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestStart: a command goes on when threads of this process end, and can be told to end.
func TestStart(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "60")
	ended, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	var threads sync.WaitGroup
	all := make(chan struct{})
	for range 100 { // at once, so that they take each thread that does nothing
		threads.Add(1)
		go func() {
			runtime.LockOSThread() // and ends it with the goroutine
			threads.Done()
			<-all
		}()
	}
	threads.Wait()
	close(all)
	select {
	case <-ended:
		t.Fatalf("it has ended: %s", cmd.ProcessState)
	case <-time.After(100 * time.Millisecond):
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ended
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended by %s, want the signal that it got", cmd.ProcessState)
	}
	if _, err := Start(exec.Command("/nowhere")); err == nil {
		t.Error("no error of a program that does not exist")
	}
}
