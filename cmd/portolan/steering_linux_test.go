package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// effectOfSteering checks whether each UDP socket is assigned to a processor.
func effectOfSteering(t *testing.T) {
	if runtime.GOMAXPROCS(0) != runtime.NumCPU() {
		t.Skip("this process may not use all processors at once, and so steers none")
	}
	const none = -1
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		t.Fatal(err)
	}
	var all, unassigned []int
	for cpu := 0; len(all) < mine.Count(); cpu++ {
		if mine.IsSet(cpu) {
			all, unassigned = append(all, cpu), append(unassigned, none)
		}
	}
	for setting, want := range map[string][]int{
		"": all, "dns: {udpSteering: cpu}": all, "dns: {udpSteering: hash}": unassigned,
	} {
		if got := socketCPUs(t, serve(t, setting)); !slices.Equal(got, want) {
			t.Errorf("%q: UDP sockets for the processors %d, want %d", setting, got, want)
		}
	}
}

// socketCPUs returns the processors to which the server's UDP sockets are assigned, in
// order.
func socketCPUs(t *testing.T, p *process) (cpus []int) {
	t.Helper()
	pid := p.cmd.Process.Pid
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		number, err := strconv.Atoi(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdGetfd(process, number, 0)
		if err != nil {
			t.Skipf("this process may not look at the server's sockets: %v", err)
		}
		if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err == nil && kind == unix.SOCK_DGRAM {
			cpu, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_INCOMING_CPU)
			if err != nil {
				t.Fatal(err)
			}
			cpus = append(cpus, cpu)
		}
		unix.Close(fd)
	}
	slices.Sort(cpus)
	return cpus
}
