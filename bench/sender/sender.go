// Package sender measures the processor time of UDP packets of one octet through a node made of network
// namespaces. The kernel charges the way of a packet through the node to the sender, whose thread is
// measured.
package sender

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/bench/synthetic"
)

const (
	// Flows is how many first packets First sends, each from a source of its own.
	Flows = 1000

	sends = 20_000 // packets of an established flow

	// FirstPort is the first port of clients.
	FirstPort = 10_000
	// PortCount is how many ports they have.
	PortCount = 50_000

	question = "?" // the datagram that is answered
)

// Range has the addresses of all sources.
const Range = "10.244.8.0/22"

// Source returns the n-th source of flows: none comes twice.
func Source(n int) netip.AddrPort {
	const sources = "10.244.8.1"
	return netip.AddrPortFrom(synthetic.Nth(sources, n/PortCount), uint16(FirstPort+n%PortCount))
}

// Answer answers the questions of clients until conn is closed.
func Answer(conn *net.UDPConn) {
	buf := make([]byte, 1)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		if string(buf[:n]) == question {
			_, _ = conn.WriteToUDPAddrPort(buf, from) // the client repeats it
		}
	}
}

// First sends the first packets of flows from Source(from) on, and returns the processor time of each in
// µs. They are sent without sockets of UDP, which would cost more than the way of the packet.
func First(to netip.AddrPort, from int) (float64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	target := &unix.SockaddrInet4{Addr: to.Addr().As4()}
	return timeEach(Flows, func() error {
		for i := range Flows {
			if err := unix.Sendto(fd, datagram(Source(from+i), to), 0, target); err != nil {
				return err
			}
		}
		return nil
	})
}

// datagram returns an IPv4 packet with a UDP datagram of one octet, without its checksum
// (RFC 768). The kernel fills in the checksum and the ID of the IPv4 header.
func datagram(from, to netip.AddrPort) []byte {
	const (
		headers          = 20 + 8
		versionAndLength = 0x45
		hops             = 64
	)
	p := make([]byte, 0, headers+1)
	p = append(p, versionAndLength, 0, 0, headers+1, 0, 0, 0, 0, hops, unix.IPPROTO_UDP, 0, 0)
	p = append(append(p, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	p = binary.BigEndian.AppendUint16(p, from.Port())
	p = binary.BigEndian.AppendUint16(p, to.Port())
	return append(p, 0, 8+1, 0, 0, '.')
}

// Established sends packets of a flow from Source(from) that Answer has answered, and returns the processor
// time of each in µs.
func Established(to netip.AddrPort, from int) (each float64, err error) {
	fd, err := Dial(Source(from), to)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := ask(fd); err != nil {
		return 0, fmt.Errorf("%s: %w", to, err)
	}
	return timeEach(sends, func() error {
		for range sends {
			if err := unix.Send(fd, []byte{'.'}, 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// ErrNoAnswer is wrapped by Established's error if the server cannot be reached.
var ErrNoAnswer = errors.New("no answer")

// ask sends a question until it is answered: the server's queue may be full.
func ask(fd int) (err error) {
	const tries, wait = 50, 20_000 // µs
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: wait}); err != nil {
		return err
	}
	for range tries {
		if err := unix.Send(fd, []byte(question), 0); err != nil {
			return err
		}
		if _, err = unix.Read(fd, make([]byte, 1)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, err)
}

// timeEach returns the processor time of this thread in µs, divided by n.
func timeEach(n int, do func() error) (float64, error) {
	before, err := threadTime()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := threadTime()
	return float64(after-before) / float64(n) / float64(time.Microsecond), err
}

// threadTime returns the processor time of the calling thread.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}

// Dial returns a connected UDP socket.
func Dial(from, to netip.AddrPort) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, err
	}
	if err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(from.Port()), Addr: from.Addr().As4()}); err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}
