package dnsserver

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// batchLen is the highest number of packets received or sent with one system call. A
// larger batch saves nothing, and the first client waits longer.
const batchLen = 32

// maxUDPQuery is the longest query over UDP, in octets. A longer one is truncated and
// therefore malformed. It is an odd number of cache lines, so that the starts of
// packets map to different cache sets.
const maxUDPQuery = 4096 + 64

// answerRoom has room for a batch of answers of the usual size, one after another, and
// for one answer of any size after them.
const answerRoom = batchLen*1280 + dnswire.MaxMessage

// batch is the memory for receiving and answering a socket's packets. One goroutine
// uses it at a time. It contains pointers to itself and must not be copied.
//
// Its system calls never block. They therefore bypass the runtime's bookkeeping, which
// costs about as much as a short answer. If there is nothing to receive or no room to
// send, the runtime's poller waits.
type batch struct {
	mu          sync.Mutex // held from the receipt of packets until they are answered
	raw         syscall.RawConn
	every       bool // the socket is bound to the unspecified address
	receiveOnce func(fd uintptr) (done bool)
	takeOnce    func(fd uintptr)
	sendOnce    func(fd uintptr) (done bool)
	sendTaken   func(fd uintptr)
	taken       bool          // by a goroutine that is not the socket's and must not wait
	errno       syscall.Errno // of the last call
	unwaited    int           // consecutive calls of receive that did not have to wait

	in       [batchLen]message
	from     [batchLen]unix.RawSockaddrInet6 // or IPv4, which is shorter
	inData   [batchLen]unix.Iovec
	control  [batchLen][controlLen]byte
	queries  [batchLen * maxUDPQuery]byte
	received int // messages of in

	out     [batchLen]message
	outData [batchLen]unix.Iovec
	sent    int // messages of out
	queued  int // messages of out
	filled  int // octets of answers
	answers [answerRoom]byte
	failed  error // last error of sending
}

// message is the system's mmsghdr (recvmmsg(2)).
type message struct {
	unix.Msghdr
	length uint32
}

func newBatch(conn *net.UDPConn) (*batch, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	b := &batch{raw: raw, every: conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().IsUnspecified()}
	b.receiveOnce, b.takeOnce, b.sendOnce = b.receiveNow, b.takeNow, b.sendNow
	b.sendTaken = func(fd uintptr) { b.sendNow(fd) }
	for i := range b.in {
		in, out := &b.in[i], &b.out[i]
		in.Name = (*byte)(unsafe.Pointer(&b.from[i]))
		b.inData[i].Base = &b.queries[i*maxUDPQuery]
		b.inData[i].SetLen(maxUDPQuery)
		in.Iov = &b.inData[i]
		in.SetIovlen(1)
		out.Iov = &b.outData[i]
		out.SetIovlen(1)
		b.reset(i)
	}
	return b, nil
}

// reset prepares element i for another packet.
func (b *batch) reset(i int) {
	in := &b.in[i]
	in.Namelen = unix.SizeofSockaddrInet6
	if b.every {
		in.Control = &b.control[i][0]
		in.SetControllen(controlLen)
	}
}

// receive waits for packets and returns their number. Unless it returns an error, the
// caller has the batch until it calls release.
func (b *batch) receive() (n int, err error) {
	if err := b.raw.Read(b.receiveOnce); err != nil {
		return 0, err
	}
	if b.errno != 0 {
		defer b.release()
		return 0, os.NewSyscallError("recvmmsg", b.errno)
	}
	return b.received, nil
}

// receiveNow receives packets without waiting. If it is done, the batch stays locked.
func (b *batch) receiveNow(fd uintptr) (done bool) {
	b.mu.Lock()
	b.takeNow(fd)
	if b.errno == unix.EAGAIN {
		b.unwaited = 0
		b.release()
		return false
	}
	b.unwaited++
	b.taken = false
	return true
}

// maxUnwaited is the number of times that packets are received without waiting before
// other goroutines run.
const maxUnwaited = 4

// yieldProcessor lets other goroutines of the processor run if packets were received
// without waiting several times. Otherwise they would wait for 10 ms. A client that
// sends its next query when it has the answer may do so meanwhile.
func (b *batch) yieldProcessor() {
	if b.unwaited >= maxUnwaited {
		b.unwaited = 0
		runtime.Gosched()
	}
}

// take is receive for goroutines that are not the socket's. It does not wait, and
// returns 0 if the batch is in use. If n is not 0, the caller has the batch until it
// calls release.
func (b *batch) take() (n int) {
	if !b.mu.TryLock() {
		return 0
	}
	if err := b.raw.Control(b.takeOnce); err != nil || b.received == 0 {
		b.release()
		return 0
	}
	b.taken = true
	return b.received
}

func (b *batch) takeNow(fd uintptr) {
	for i := range b.received {
		b.reset(i)
	}
	b.received, b.errno = call(unix.SYS_RECVMMSG, fd, &b.in[0], batchLen)
}

func (b *batch) release() { b.mu.Unlock() }

// call calls recvmmsg(2) or sendmmsg(2) for n messages starting at first. It does not
// wait.
func call(trap, fd uintptr, first *message, n int) (int, syscall.Errno) {
	for {
		done, _, errno := unix.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(first)), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(done), 0
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// packet returns packet i and its sender.
func (b *batch) packet(i int) (packet []byte, from netip.AddrPort) {
	at := i * maxUDPQuery
	packet = b.queries[at : at+int(b.in[i].length)]
	sa := &b.from[i]
	addr := netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(sa)).Addr)
	if sa.Family == unix.AF_INET6 {
		addr = netip.AddrFrom16(sa.Addr).Unmap()
	}
	port := (*[2]byte)(unsafe.Pointer(&sa.Port)) // at the same offset in both families
	return packet, netip.AddrPortFrom(addr, binary.BigEndian.Uint16(port[:]))
}

// returnPath is the destination of a deferred answer, and the control message with its
// source address.
type returnPath struct {
	to      netip.AddrPort
	control []byte
}

func (b *batch) returnPath(i int) returnPath {
	_, from := b.packet(i)
	if sa := &b.from[i]; sa.Family == unix.AF_INET6 && from.Addr().IsLinkLocalUnicast() {
		from = netip.AddrPortFrom(from.Addr().WithZone(strconv.Itoa(int(sa.Scope_id))), from.Port())
	}
	back := returnPath{to: from}
	if b.every {
		back.control = slices.Clone(replyControl(b.control[i][:b.in[i].Controllen]))
	}
	return back
}

func (w returnPath) send(conn *net.UDPConn, answer []byte) error {
	_, _, err := conn.WriteMsgUDPAddrPort(answer, w.control, w.to)
	return err
}

// room returns the buffer for the next answer.
func (b *batch) room() []byte { return b.answers[b.filled:b.filled] }

// reply queues answer, which was made in room, as the answer to packet i.
func (b *batch) reply(i int, answer []byte) {
	in, out := &b.in[i], &b.out[b.queued]
	b.outData[b.queued].Base = unsafe.SliceData(answer)
	b.outData[b.queued].SetLen(len(answer))
	out.Name, out.Namelen = in.Name, in.Namelen
	if b.every {
		reply := replyControl(b.control[i][:in.Controllen])
		out.Control = unsafe.SliceData(reply)
		out.SetControllen(len(reply))
	}
	b.queued++
	b.filled += len(answer)
	if len(b.answers)-b.filled < dnswire.MaxMessage {
		b.flush()
	}
}

// send sends all queued answers. It skips those that cannot be sent and returns the
// last error.
func (b *batch) send() error {
	b.flush()
	err := b.failed
	b.failed = nil
	return err
}

// flush sends the answers queued so far.
func (b *batch) flush() {
	for b.sent < b.queued {
		if err := b.sendSome(); err != nil {
			b.failed = err
			break
		}
		if b.errno != 0 {
			b.failed = os.NewSyscallError("sendmmsg", b.errno)
			b.sent++ // skip the one that cannot be sent
		}
	}
	b.sent, b.queued, b.filled = 0, 0, 0
}

// sendSome sends some answers. It waits for room, unless the batch is taken.
func (b *batch) sendSome() error {
	if !b.taken {
		return b.raw.Write(b.sendOnce)
	}
	if err := b.raw.Control(b.sendTaken); err != nil {
		return err
	}
	if b.errno == unix.EAGAIN {
		return os.NewSyscallError("sendmmsg", b.errno)
	}
	return nil
}

func (b *batch) sendNow(fd uintptr) (done bool) {
	var n int
	n, b.errno = call(unix.SYS_SENDMMSG, fd, &b.out[b.sent], b.queued-b.sent)
	b.sent += n
	return b.errno != unix.EAGAIN
}
