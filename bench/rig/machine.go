package rig

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// DescribeMachine describes the machine in general terms.
func DescribeMachine() string {
	var name unix.Utsname
	_ = unix.Uname(&name) // never fails
	load, _ := os.ReadFile("/proc/loadavg")
	minutes := strings.Fields(string(load) + " ? ? ?")
	return fmt.Sprintf("%d cores (%s), Linux %s, %s, load average before the start %s", runtime.NumCPU(),
		runtime.GOARCH, unix.ByteSliceToString(name.Release[:]), runtime.Version(), strings.Join(minutes[:3], " "))
}

// OtherLoad waits and returns the share of the processors that was used meanwhile.
func OtherLoad(wait time.Duration) float64 {
	before := ReadUsage()
	time.Sleep(wait)
	now := ReadUsage()
	return float64(now.Used-before.Used) / float64(now.All-before.All)
}

// Usage is the time of all processors since the machine started, to 10 ms (proc(5)).
// Used excludes idle time and waiting for a disk. Stolen is the part that the host took
// for other machines.
type Usage struct{ All, Used, Stolen time.Duration }

// Stolen returns the current stolen time.
func Stolen() time.Duration { return ReadUsage().Stolen }

// ReadUsage returns the current Usage.
func ReadUsage() Usage {
	const tick = 10 * time.Millisecond // USER_HZ
	var user, nice, system, idle, wait, irq, softirq, steal int64
	stat, _ := os.ReadFile("/proc/stat")
	_, _ = fmt.Sscanf(string(stat), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &softirq,
		&steal)
	used := user + nice + system + irq + softirq + steal
	times := func(ticks int64) time.Duration { return time.Duration(ticks) * tick }
	return Usage{All: times(used + idle + wait), Used: times(used), Stolen: times(steal)}
}
