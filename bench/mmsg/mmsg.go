// Package mmsg uses sockets that Go's runtime knows nothing of, without garbage:
// many UDP messages go or come with one system call, recvmmsg(2) or sendmmsg(2).
package mmsg

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Messages are messages that are received or sent together. Each has a buffer
// of the same length, and the address of its peer where that is asked for.
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

// New makes n messages without buffers, for connected sockets.
func New(n int) *Messages {
	m := &Messages{headers: make([]header, n), vectors: make([]unix.Iovec, n)}
	for i := range m.headers {
		m.headers[i].Iov = &m.vectors[i]
		m.headers[i].SetIovlen(1)
	}
	return m
}

// AddPeers gives each message room for its peer's IPv4 address: where it came
// from, and where it is sent to.
func (m *Messages) AddPeers() {
	m.peers = make([]unix.RawSockaddrInet4, len(m.headers))
	for i := range m.headers {
		m.headers[i].Name = (*byte)(unsafe.Pointer(&m.peers[i]))
		m.headers[i].Namelen = unix.SizeofSockaddrInet4
	}
}

// CopyPeer gives message to the peer of message from.
func (m *Messages) CopyPeer(to, from int) { m.peers[to] = m.peers[from] }

// SetBuffer makes b, which is not empty, what the i-th message is received
// into, or what is sent.
func (m *Messages) SetBuffer(i int, b []byte) {
	m.vectors[i].Base = &b[0]
	m.vectors[i].SetLen(len(b))
}

// Len is how many octets the i-th message had when it was received.
func (m *Messages) Len(i int) int { return int(m.headers[i].length) }

// Receive receives up to as many messages as there are.
func (m *Messages) Receive(fd, flags int) (int, error) {
	return m.call(unix.SYS_RECVMMSG, fd, len(m.headers), flags)
}

// Send sends the first n messages, and says how many were sent.
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

// Read reads from a stream what is there.
func Read(fd int, b []byte) (int, error) {
	return stream(unix.SYS_RECVFROM, fd, b, unix.MSG_DONTWAIT)
}

// Write writes as much to a stream as the system takes.
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
