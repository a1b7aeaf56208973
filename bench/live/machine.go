package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// describeMachine says in general words where this was measured.
func describeMachine() string {
	var name unix.Utsname
	_ = unix.Uname(&name) // never fails
	load, _ := os.ReadFile("/proc/loadavg")
	minutes := strings.Fields(string(load) + " ? ? ?")
	return fmt.Sprintf("%d cores (%s), Linux %s, %s, load average before the start %s",
		runtime.NumCPU(), runtime.GOARCH, unix.ByteSliceToString(name.Release[:]), runtime.Version(), strings.Join(minutes[:3], " "))
}

// otherLoad waits, and gives which part of the processors was in use meanwhile.
func otherLoad(wait time.Duration) float64 {
	usedBefore, allBefore := processorTime()
	time.Sleep(wait)
	used, all := processorTime()
	return (used - usedBefore) / (all - allBefore)
}

// processorTime is that of all processors since the machine started, in ticks;
// it is not of use what was idle or waiting for a disk (proc(5)).
func processorTime() (used, all float64) {
	var user, nice, system, idle, wait, irq, softirq, steal float64
	stat, _ := os.ReadFile("/proc/stat")
	_, _ = fmt.Sscanf(string(stat), "cpu %f %f %f %f %f %f %f %f", &user, &nice, &system, &idle, &wait, &irq, &softirq, &steal)
	used = user + nice + system + irq + softirq + steal
	return used, used + idle + wait
}
