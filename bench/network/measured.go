package network

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// measured runs do on one thread, and returns the time and the thread's processor time. That of the kernel for packets
// is part of it: it handles them on the thread that sends.
func measured(do func() error) (s spent, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := threadTime()
	if err != nil {
		return s, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return s, err
	}
	s.took = time.Since(began)
	after, err := threadTime()
	s.processor = after - before
	return s, err
}

// threadTime returns the processor time of the calling thread.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}
