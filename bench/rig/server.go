package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Contender is a measured program.
type Contender struct {
	Name string
	// Command returns the command that starts it. It serves DNS on the first port,
	// readiness over HTTP on the second and DNS over TLS on the last; the other ports
	// are for its other needs.
	Command func(ports []netip.AddrPort) (*exec.Cmd, error)
	Ready   func(ctx context.Context, ports []netip.AddrPort) error
	Log     string // log file
	CPUs    []int  // the processors that it uses, with priority; if empty, all, without priority
	// Patience is how long WaitReady waits; 0 is a minute.
	Patience time.Duration
}

// OverHTTP returns a Ready function for contenders that report readiness at a path.
func OverHTTP(path string) func(context.Context, []netip.AddrPort) error {
	client := http.Client{Timeout: time.Second}
	return func(ctx context.Context, ports []netip.AddrPort) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ports[1].String()+path, nil)
		if err != nil {
			return err
		}
		reply, err := client.Do(request)
		if err != nil {
			return err
		}
		reply.Body.Close()
		if reply.StatusCode != http.StatusOK {
			return errors.New(reply.Status)
		}
		return nil
	}
}

// Server is a running contender.
type Server struct {
	*Contender
	DNS netip.AddrPort
	TLS netip.AddrPort // unused unless it serves TLS

	cmd   *exec.Cmd
	ports []netip.AddrPort
	ended chan struct{}
}

// Start starts the contender in a new session. It stops with this process at the
// latest.
func (c *Contender) Start() (*Server, error) {
	ports, err := freePorts(5)
	if err != nil {
		return nil, err
	}
	s := &Server{Contender: c, DNS: ports[0], TLS: ports[len(ports)-1], ports: ports, ended: make(chan struct{})}
	if s.cmd, err = c.Command(ports); err != nil {
		return nil, err
	}
	log, err := os.Create(c.Log)
	if err != nil {
		return nil, err
	}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	started := make(chan error)
	go func() {
		defer log.Close()
		err := StartOn(s.cmd, c.CPUs)
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // Stop was called or the server ended
			close(s.ended)
		}
	}()
	return s, <-started
}

// StartOn starts a command in a new session. With cpus, it uses only those processors,
// with priority if the system allows it. It is killed when the calling goroutine ends,
// whose thread is dedicated to it.
func StartOn(cmd *exec.Cmd, cpus []int) error {
	// The signal is sent when the thread that started the process ends, and a process
	// inherits the processors of that thread.
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if len(cpus) == 0 {
		return cmd.Start()
	}
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("use processors %v: %w", cpus, err)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	putFirst(cmd.Process.Pid)
	return nil
}

// putFirst gives a process and its session the highest priority. This requires root,
// and not every system groups processes by session (sched(7)).
func putFirst(pid int) {
	const highest = -20
	_ = unix.Setpriority(unix.PRIO_PROCESS, pid, highest)
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(highest)), 0)
}

// Stop stops the server, and kills it after a grace period.
func (s *Server) Stop() {
	const grace = 5 * time.Second
	_ = syscall.Kill(s.cmd.Process.Pid, syscall.SIGTERM) // it may have ended already
	select {
	case <-s.ended:
	case <-time.After(grace):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // and its children
		<-s.ended
	}
}

// WaitReady waits until the server reports that it is ready.
func (s *Server) WaitReady(ctx context.Context) error {
	const pause = 10 * time.Millisecond // each check costs the server time
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.Patience, time.Minute))
	defer cancel()
	for {
		err := s.Ready(ctx, s.ports)
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return s.failed(errors.New("it ended"))
		case <-ctx.Done():
			return s.failed(err)
		case <-time.After(pause):
		}
	}
}

func (s *Server) failed(err error) error {
	log, _ := os.ReadFile(s.Log)
	return fmt.Errorf("%s is not ready: %w\n%s", s.Name, err, log)
}

// Memory returns the resident memory in MiB: the current value and the maximum.
func (s *Server) Memory() (now, most float64, err error) { return Memory(s.cmd.Process.Pid) }

// Memory returns the resident memory of a process in MiB: the current value and the
// maximum.
func Memory(pid int) (now, most float64, err error) {
	if now, err = status(pid, "VmRSS"); err == nil {
		most, err = status(pid, "VmHWM")
	}
	return now, most, err
}

// OwnMemory returns the resident memory that is not backed by files, in MiB.
func (s *Server) OwnMemory() (float64, error) { return OwnMemory(s.cmd.Process.Pid) }

// OwnMemory returns a process's resident memory that is not backed by files, in MiB.
func OwnMemory(pid int) (float64, error) { return status(pid, "RssAnon") }

// status returns a size from proc_pid_status(5), in MiB.
func status(pid int, field string) (mib float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\n"+field+":")
	_, err = fmt.Sscan(rest, &mib) // KiB
	return mib / 1024, err
}

// Processes returns the IDs of the server's process and of its children.
func (s *Server) Processes() (ids []int, err error) { return Session(s.cmd.Process.Pid) }

// Session returns the IDs of the processes of a session.
func Session(of int) (ids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var id int
		if _, err := fmt.Sscanf(e.Name(), "%d", &id); err != nil {
			continue
		}
		if session, err := unix.Getsid(id); err == nil && session == of {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// ProcessorTime returns the processor time of the server's process since its start.
func (s *Server) ProcessorTime() (time.Duration, error) {
	return ProcessorTime([]int{s.cmd.Process.Pid})
}

// ProcessorTime returns the processor time of processes since their start, user and
// system, to the nanosecond, from their CPU-time clocks (clock_getcpuclockid(3)).
func ProcessorTime(ids []int) (sum time.Duration, err error) {
	const schedulerClock = 2
	for _, id := range ids {
		var t unix.Timespec
		if err := unix.ClockGettime(int32(^id<<3|schedulerClock), &t); err != nil {
			return 0, fmt.Errorf("processor time of process %d: %w", id, err)
		}
		sum += time.Duration(t.Nano())
	}
	return sum, nil
}

// freePorts returns loopback ports that were free for TCP a moment ago.
func freePorts(n int) (ports []netip.AddrPort, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).AddrPort())
	}
	return ports, nil
}

// versionOf returns the word that a command prints after another text.
func versionOf(cmd *exec.Cmd, word string) (string, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
	}
	_, version, _ := strings.Cut(string(out), word)
	if words := strings.Fields(version); len(words) > 0 {
		version = words[0]
	}
	return strings.TrimSuffix(version, "."), nil
}
