package link_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/network/link"
)

// inside is the environment variable that marks the process in the benchmark's namespace.
const inside = "PORTOLAN_BENCH_NODE"

// BenchmarkLink is Create, Up and Delete of Pods' links, of eight at once, with the processor time of this process:
// that of the kernel in its name is a part of it. Making the Pods' namespaces is not measured.
func BenchmarkLink(b *testing.B) {
	if os.Getenv(inside) == "" {
		runInNamespaces(b)
		return
	}
	newNode(b)
	const workers = 8
	pods := make([]link.Pod, workers)
	for i := range pods {
		_, pods[i] = newPod(b, i+1)
	}
	before := processorTime(b)
	for b.Loop() {
		var all sync.WaitGroup
		for _, pod := range pods {
			all.Go(func() {
				err := create(config, pod)
				if err == nil {
					err = link.Up(config, pod)
				}
				if err := errors.Join(err, link.Delete(pod.Host)); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/workers, "cpu-ns/link")
}

func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage unix.Rusage
	must(tb, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// runInNamespaces runs the benchmark again, in a network namespace of its own.
func runInNamespaces(b *testing.B) {
	b.Helper()
	if os.Getuid() != 0 {
		b.Skip("network namespaces need root")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^$", "-test.bench=^"+b.Name()+"$")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	b.Logf("%s", out)
}
