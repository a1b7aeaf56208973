// Package mmsg uses sockets outside Go's runtime, without garbage. One system call,
// recvmmsg(2) or sendmmsg(2), receives or sends many UDP messages.
package mmsg

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Messages are messages that are received or sent together. Each has a buffer of the
// same length and, if requested, the address of its peer.
type Messages struct {
	headers []header
	vectors []unix.Iovec
	peers   []unix.RawSockaddrInet4
}

// header is struct mmsghdr.
type header struct {
	unix.Msghdr
	length uint32 // received or sent
}

// New returns n messages without buffers, for connected sockets.
func New(n int) *Messages {
	m := &Messages{headers: make([]header, n), vectors: make([]unix.Iovec, n)}
	for i := range m.headers {
		m.headers[i].Iov = &m.vectors[i]
		m.headers[i].SetIovlen(1)
	}
	return m
}

// AddPeers adds room for the IPv4 address of each message's peer: the source of a
// received message, and the destination of a sent one.
func (m *Messages) AddPeers() {
	m.peers = make([]unix.RawSockaddrInet4, len(m.headers))
	for i := range m.headers {
		m.headers[i].Name = (*byte)(unsafe.Pointer(&m.peers[i]))
		m.headers[i].Namelen = unix.SizeofSockaddrInet4
	}
}

// CopyPeer sets the peer of message to to the peer of message from.
func (m *Messages) CopyPeer(to, from int) { m.peers[to] = m.peers[from] }

// SetBuffer sets the buffer of the i-th message to b, which must not be empty.
func (m *Messages) SetBuffer(i int, b []byte) {
	m.vectors[i].Base = &b[0]
	m.vectors[i].SetLen(len(b))
}

// Len returns the length of the i-th received message, in octets.
func (m *Messages) Len(i int) int { return int(m.headers[i].length) }

// Receive receives up to as many messages as m has.
func (m *Messages) Receive(fd, flags int) (int, error) {
	return m.call(unix.SYS_RECVMMSG, fd, len(m.headers), flags)
}

// Send sends the first n messages and returns how many were sent.
func (m *Messages) Send(fd, n, flags int) (int, error) {
	return m.call(unix.SYS_SENDMMSG, fd, n, flags)
}

func (m *Messages) call(number uintptr, fd, n, flags int) (int, error) {
	done, _, errno := unix.RawSyscall6(number, uintptr(fd), uintptr(unsafe.Pointer(&m.headers[0])), uintptr(n),
		uintptr(flags), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(done), nil
}

// Read reads the available data of a stream.
func Read(fd int, b []byte) (int, error) {
	return stream(unix.SYS_RECVFROM, fd, b, unix.MSG_DONTWAIT)
}

// Write writes as much to a stream as the system accepts.
func Write(fd int, b []byte) (int, error) {
	return stream(unix.SYS_SENDTO, fd, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

func stream(number uintptr, fd int, b []byte, flags int) (int, error) {
	done, _, errno := unix.RawSyscall6(number, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		uintptr(flags), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(done), nil
}
