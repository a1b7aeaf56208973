package rig

import (
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

// Contender is a program that is measured.
type Contender struct {
	Name string
	// Command says how to start it: DNS on the first of the ports, readiness
	// over HTTP on the second, DNS over TLS on the last, the rest for what else
	// it wants.
	Command func(ports []netip.AddrPort) (*exec.Cmd, error)
	Ready   func(ctx context.Context, ports []netip.AddrPort) error
	Log     string // file
	CPUs    []int  // that it uses, before others; all, as others, when empty
}

// OverHTTP is for contenders that say at a path whether they are ready.
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

// Server is a contender that runs.
type Server struct {
	*Contender
	DNS netip.AddrPort
	TLS netip.AddrPort // nobody listens there unless it does TLS

	cmd   *exec.Cmd
	ports []netip.AddrPort
	ended chan struct{}
}

// Start starts the contender, in a session of its own. It ends with this
// process at the latest.
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
			_ = s.cmd.Wait() // it is told to end
			close(s.ended)
		}
	}()
	return s, <-started
}

// StartOn starts a command in a session of its own. With processors, it
// uses these only, and before others where the system allows that. It dies with
// the calling goroutine, whose thread is used for nothing else from then on.
func StartOn(cmd *exec.Cmd, cpus []int) error {
	// The signal comes when the thread ends that started the process, and a
	// process inherits the processors of that thread.
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

// putFirst gives a process, and its session, the highest priority. Only root
// may, and not every system groups processes by session (sched(7)).
func putFirst(pid int) {
	const highest = -20
	_ = unix.Setpriority(unix.PRIO_PROCESS, pid, highest)
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(highest)), 0)
}

// Stop asks the server to end, and kills it when it has not in time.
func (s *Server) Stop() {
	const grace = 5 * time.Second
	_ = syscall.Kill(s.cmd.Process.Pid, syscall.SIGTERM) // it may have ended
	select {
	case <-s.ended:
	case <-time.After(grace):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // its children, too
		<-s.ended
	}
}

// WaitReady waits until the server says that it is ready.
func (s *Server) WaitReady(ctx context.Context) error {
	const (
		patience = time.Minute
		pause    = 10 * time.Millisecond // asking costs those who answer
	)
	ctx, cancel := context.WithTimeout(ctx, patience)
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

// Memory is the resident memory in MiB, as it is now and as it was at most.
func (s *Server) Memory() (now, most float64, err error) { return Memory(s.cmd.Process.Pid) }

// Memory is that of a process.
func Memory(pid int) (now, most float64, err error) {
	if now, err = status(pid, "VmRSS"); err == nil {
		most, err = status(pid, "VmHWM")
	}
	return now, most, err
}

// OwnMemory is how much of the resident memory is of no file, in MiB.
func (s *Server) OwnMemory() (float64, error) { return status(s.cmd.Process.Pid, "RssAnon") }

// status is a size of proc_pid_status(5), in MiB.
func status(pid int, field string) (mib float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\n"+field+":")
	_, err = fmt.Sscan(rest, &mib) // KiB
	return mib / 1024, err
}

// Processes are the IDs of the server's process and of its children.
func (s *Server) Processes() (ids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var id int
		if _, err := fmt.Sscanf(e.Name(), "%d", &id); err != nil {
			continue
		}
		if session, err := unix.Getsid(id); err == nil && session == s.cmd.Process.Pid {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// ProcessorTime is what the server's process used since its start.
func (s *Server) ProcessorTime() (time.Duration, error) {
	return ProcessorTime([]int{s.cmd.Process.Pid})
}

// ProcessorTime is what processes used since their start, user and system, to
// the nanosecond: their CPU-time clocks (clock_getcpuclockid(3)).
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

// freePorts are ports of loopback that were free, for TCP, a moment ago.
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

// versionOf is what a command prints behind a word, to the end of the line.
func versionOf(cmd *exec.Cmd, word string) (string, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
	}
	_, version, _ := strings.Cut(string(out), word)
	version, _, _ = strings.Cut(version, "\n")
	return strings.TrimSuffix(version, "."), nil
}
