package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/bench/allnames"
	"portolan.dev/portolan/bench/mmsg"
)

// server is one upstream.
type server struct {
	ttl      uint32
	behavior atomic.Pointer[behavior]
	asked    atomic.Int64 // queries received
}

func newServer(ttl uint32) *server {
	s := &server{ttl: ttl}
	s.behavior.Store(new(behavior))
	return s
}

// listenUDP opens a socket whose receive buffer holds all packets that arrive during a
// stall.
func listenUDP(address netip.AddrPort) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	const room = 32 << 20
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room) != nil { // requires root
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room); err != nil {
			return 0, err
		}
	}
	return fd, unix.Bind(fd, &unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()})
}

// runFirst gives this thread priority over other users of its processor (sched(7)).
// Without root it has no effect.
func runFirst() {
	runtime.LockOSThread()
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
}

// batch is the highest number of packets received or sent with one system call.
const batch = 64

// packets are packets received together.
type packets struct {
	*mmsg.Messages
	in, out [batch][1500]byte
}

// servePackets returns only on an error.
func (s *server) servePackets(fd int) error {
	runFirst()
	p := &packets{Messages: mmsg.New(batch)}
	p.AddPeers()
	const seed = 1034
	random := rand.New(rand.NewPCG(seed, seed))
	for {
		const forever = -1
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, forever); err != nil && err != unix.EINTR {
			return fmt.Errorf("poll: %w", err)
		}
		s.stall()
		for i := range p.in {
			p.SetBuffer(i, p.in[i][:])
		}
		n, err := p.Receive(fd, unix.MSG_DONTWAIT)
		if err != nil && err != unix.EAGAIN && err != unix.EINTR {
			return fmt.Errorf("receive: %w", err)
		}
		if n = s.answer(p, n, random); n == 0 {
			continue
		}
		if _, err := p.Send(fd, n, 0); err != nil && err != unix.EINTR && err != unix.ECONNREFUSED {
			return fmt.Errorf("send: %w", err)
		}
	}
}

// answer writes the answers to the first n packets to the front of p and returns their
// number.
func (s *server) answer(p *packets, n int, random *rand.Rand) (answers int) {
	b := s.behavior.Load()
	for i := range n {
		query := p.in[i][:min(p.Len(i), len(p.in[i]))]
		answer, ok := allnames.AppendAnswer(p.out[answers][:0], query, s.ttl)
		if !ok {
			continue
		}
		s.asked.Add(1)
		if b.drops(random) {
			continue
		}
		p.CopyPeer(answers, i)
		p.SetBuffer(answers, answer)
		answers++
	}
	return answers
}

// stall waits until a stall is over.
func (s *server) stall() {
	if wait := s.behavior.Load().stall(time.Now()); wait > 0 {
		time.Sleep(wait)
	}
}

// serveConnection answers queries one after another.
func (s *server) serveConnection(conn net.Conn) {
	defer conn.Close()
	const lengthLen = 2
	var length [lengthLen]byte
	for {
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		s.stall()
		answer, ok := allnames.AppendAnswer(make([]byte, lengthLen), query, s.ttl)
		if !ok {
			return
		}
		s.asked.Add(1)
		if s.behavior.Load().dead() {
			continue
		}
		binary.BigEndian.PutUint16(answer, uint16(len(answer)-lengthLen))
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}
