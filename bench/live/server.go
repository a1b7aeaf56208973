package main

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
)

// contender is a program that is measured.
type contender struct {
	name string
	// command says how to start it: DNS on the first of the ports, readiness on
	// the second, the rest for what else it wants.
	command func(kubeconfig string, ports []netip.AddrPort) (*exec.Cmd, error)
	ready   string // path
	log     string // file
}

func portolan(b *binaries, dir string, flags ...string) *contender {
	return &contender{name: "Portolan", ready: "/readyz", log: filepath.Join(dir, "portolan.log"),
		command: func(kubeconfig string, ports []netip.AddrPort) (*exec.Cmd, error) {
			args := []string{"serve", "--kubeconfig", kubeconfig, "--listen", ports[0].String(), "--admin", ports[1].String()}
			return exec.Command(b.portolan, append(args, flags...)...), nil
		}}
}

// corefile is what serves the same as Portolan does by itself; no cache, since
// it is changes that are timed.
const corefile = `cluster.local:%[1]d in-addr.arpa:%[1]d ip6.arpa:%[1]d {
	bind 127.0.0.1
	kubernetes cluster.local in-addr.arpa ip6.arpa {
		kubeconfig %[2]s
		pods verified
	}
	ready %[3]s
	health %[4]s
	prometheus %[5]s
}
`

func coreDNS(b *binaries, dir string) *contender {
	return &contender{name: "CoreDNS", ready: "/ready", log: filepath.Join(dir, "coredns.log"),
		command: func(kubeconfig string, ports []netip.AddrPort) (*exec.Cmd, error) {
			file := filepath.Join(dir, "Corefile")
			text := fmt.Sprintf(corefile, ports[0].Port(), kubeconfig, ports[1], ports[2], ports[3])
			return exec.Command(b.coreDNS, "-conf", file), os.WriteFile(file, []byte(text), 0o600)
		}}
}

// server is a contender that runs.
type server struct {
	*contender
	cmd      *exec.Cmd
	dns      netip.AddrPort
	readyURL string
	ended    chan struct{}
}

// start starts the contender. It ends with this process at the latest.
func (c *contender) start(kubeconfig string) (*server, error) {
	ports, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	s := &server{contender: c, dns: ports[0], readyURL: "http://" + ports[1].String() + c.ready, ended: make(chan struct{})}
	if s.cmd, err = c.command(kubeconfig, ports); err != nil {
		return nil, err
	}
	log, err := os.Create(c.log)
	if err != nil {
		return nil, err
	}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The signal comes when the thread ends that started the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // it is told to end
			close(s.ended)
		}
	}()
	return s, <-started
}

// stop asks the server to end, and kills it when it has not in time.
func (s *server) stop() {
	const grace = 5 * time.Second
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.ended:
	case <-time.After(grace):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// waitReady waits until the server says that it is ready.
func (s *server) waitReady(ctx context.Context) error {
	const (
		patience = time.Minute
		pause    = 10 * time.Millisecond // asking costs those who answer
	)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	for {
		reply, err := client.Get(s.readyURL)
		if err == nil {
			reply.Body.Close()
			if reply.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.ended:
			return s.failed(errors.New("it ended"))
		case <-ctx.Done():
			return s.failed(ctx.Err())
		case <-time.After(pause):
		}
	}
}

func (s *server) failed(err error) error {
	log, _ := os.ReadFile(s.log)
	return fmt.Errorf("%s is not ready: %w\n%s", s.name, err, log)
}

// memory is the resident memory in MiB, as it is now and as it was at most.
func (s *server) memory() (now, most float64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kib float64
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kib); err == nil {
			now = kib / 1024
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %f kB", &kib); err == nil {
			most = kib / 1024
		}
	}
	return now, most, nil
}

// processorTime is what the server used since its start, to 10 ms (proc(5)).
func (s *server) processorTime() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	const (
		tick     = 10 * time.Millisecond // USER_HZ
		user     = 11                    // field, behind the program's name
		system   = 12
		nameEnds = ") "
	)
	_, rest, _ := strings.Cut(string(stat), nameEnds)
	fields := strings.Fields(rest)
	var ticks int
	for _, f := range []int{user, system} {
		n, err := strconv.Atoi(fields[f])
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// freePorts are ports of loopback that were free, for UDP and TCP, a moment ago.
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
