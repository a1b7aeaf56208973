package cyclonus

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/policy/policytest"
)

const (
	// silence is how long what is denied must have no answer.
	silence = 300 * time.Millisecond
	// again is the interval between datagrams of a probe without an answer.
	again = 100 * time.Millisecond
)

// serve has a Pod accept TCP connections at a port, and return UDP datagrams to their senders.
func serve(t *testing.T, p *policytest.Pod, port int) {
	t.Helper()
	at := ":" + strconv.Itoa(port) // of both families
	var listener net.Listener
	var conn net.PacketConn
	must(t, p.Network.Do(func() (err error) {
		if listener, err = net.Listen("tcp", at); err != nil {
			return err
		}
		conn, err = net.ListenPacket("udp", at)
		return err
	}))
	t.Cleanup(func() {
		listener.Close()
		conn.Close()
	})
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	go func() {
		buf := make([]byte, 16)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(buf[:n], from) // the client asks again
		}
	}()
}

// probe makes all connections at once, each Pod its own on a thread of its own.
func (w *world) probe(t *testing.T, all []*question) {
	t.Helper()
	byPod := make(map[cluster.Key][]*question)
	for _, q := range all {
		byPod[q.from] = append(byPod[q.from], q)
	}
	var threads sync.WaitGroup
	for pod, questions := range byPod {
		threads.Go(func() {
			err := w.pods[pod].Network.Do(func() error { return probeAll(questions, sourcePort+w.step) })
			if err != nil {
				t.Errorf("probes of %s: %v", pod, err)
			}
		})
	}
	threads.Wait()
}

// probes are those of a Pod.
type probes struct {
	questions []*question
	byConn    map[int]*question // with TCP, that are not decided
	udp       map[bool]int      // sockets, by whether they are of IPv4
	waiting   int               // answers that policy/semantics lets one expect
}

// probeAll makes connections from the network of the caller's thread. It returns when all that
// policy/semantics allows have an answer and the others had none for the time of silence.
func probeAll(questions []*question, udpPort int) error {
	p := &probes{questions: questions, byConn: make(map[int]*question), udp: make(map[bool]int)}
	defer p.close()
	if err := p.open(udpPort); err != nil {
		return err
	}
	begin := time.Now()
	var sent time.Time
	for {
		if time.Since(sent) >= again {
			sent = time.Now()
			if err := p.send(); err != nil {
				return err
			}
		}
		if err := p.receive(); err != nil {
			return err
		}
		took := time.Since(begin)
		if took >= silence && p.waiting == 0 || took >= await.Answer {
			return nil
		}
	}
}

func (p *probes) close() {
	for conn := range p.byConn {
		unix.Close(conn)
	}
	for _, conn := range p.udp {
		unix.Close(conn)
	}
}

// open begins the TCP connections, and opens a socket for UDP for each family.
func (p *probes) open(udpPort int) error {
	for i, q := range p.questions {
		if q.semantics {
			p.waiting++
		}
		is4 := q.at.Addr().Is4()
		switch _, bound := p.udp[is4]; {
		case q.protocol == cluster.TCP:
			conn, err := socket(is4, unix.SOCK_STREAM)
			if err != nil {
				return err
			}
			p.byConn[conn] = p.questions[i]
			if err := unix.Connect(conn, sockaddr(q.at)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
				return os.NewSyscallError("connect", err)
			}
		case !bound:
			conn, err := socket(is4, unix.SOCK_DGRAM)
			if err != nil {
				return err
			}
			p.udp[is4] = conn
			local := netip.IPv6Unspecified()
			if is4 {
				local = netip.IPv4Unspecified()
			}
			if err := unix.Bind(conn, sockaddr(netip.AddrPortFrom(local, uint16(udpPort)))); err != nil {
				return os.NewSyscallError("bind", err)
			}
		}
	}
	return nil
}

// send sends the datagrams of probes without an answer: the place of the question.
func (p *probes) send() error {
	for i, q := range p.questions {
		if q.protocol != cluster.UDP || q.passed {
			continue
		}
		place := binary.BigEndian.AppendUint32(nil, uint32(i))
		if err := unix.Sendto(p.udp[q.at.Addr().Is4()], place, 0, sockaddr(q.at)); err != nil {
			return os.NewSyscallError("sendto", err)
		}
	}
	return nil
}

// receive waits a moment for answers and records them.
func (p *probes) receive() error {
	const moment = 10 // ms
	var fds []unix.PollFd
	for conn := range p.byConn {
		fds = append(fds, unix.PollFd{Fd: int32(conn), Events: unix.POLLOUT})
	}
	for _, conn := range p.udp {
		fds = append(fds, unix.PollFd{Fd: int32(conn), Events: unix.POLLIN})
	}
	if _, err := unix.Poll(fds, moment); err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("poll", err)
	}
	for _, fd := range fds {
		switch {
		case fd.Revents == 0:
		case fd.Events == unix.POLLOUT:
			p.connected(int(fd.Fd))
		default:
			p.readAll(int(fd.Fd))
		}
	}
	return nil
}

// connected records what became of a TCP connection.
func (p *probes) connected(conn int) {
	q := p.byConn[conn]
	switch code, err := unix.GetsockoptInt(conn, unix.SOL_SOCKET, unix.SO_ERROR); {
	case err != nil:
		q.err = err
	case code != 0:
		q.err = unix.Errno(code)
	default:
		p.answered(q)
	}
	delete(p.byConn, conn)
	unix.Close(conn)
}

// readAll records the datagrams that a socket has.
func (p *probes) readAll(conn int) {
	buf := make([]byte, 16)
	for {
		n, _, err := unix.Recvfrom(conn, buf, 0)
		if err != nil { // there are no more, or the last was not delivered, which is sent again
			return
		}
		if place := int(binary.BigEndian.Uint32(buf[:n])); !p.questions[place].passed {
			p.answered(p.questions[place])
		}
	}
}

func (p *probes) answered(q *question) {
	q.passed = true
	if q.semantics {
		p.waiting--
	}
}

// socket returns one that does not block, of one family only.
func socket(is4 bool, kind int) (fd int, err error) {
	family := unix.AF_INET6
	if is4 {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil || is4 {
		return fd, os.NewSyscallError("socket", err)
	}
	return fd, os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1))
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
