package dnsserver

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
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
// Its system calls do not block. They therefore bypass the runtime's bookkeeping, which
// costs about as much as a short answer. If there is nothing to receive or no room to
// send, the runtime's poller waits. The exception is receiveNext.
type batch struct {
	raw         syscall.RawConn
	every       bool // the socket is bound to the unspecified address
	impatient   bool // it never waits
	receiveOnce func(fd uintptr) (done bool)
	takeOnce    func(fd uintptr)
	nextOnce    func(fd uintptr)
	sendOnce    func(fd uintptr) (done bool)
	sendTaken   func(fd uintptr)
	errno       syscall.Errno // of the last call
	unwaited    int           // consecutive calls of receive that did not have to wait
	parked      time.Time     // when receive last waited in the runtime's poller

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
	b.receiveOnce, b.takeOnce, b.nextOnce, b.sendOnce = b.receiveNow, b.takeNow, b.takeNext, b.sendNow
	b.sendTaken = func(fd uintptr) { b.sendNow(fd) }
	if err := raw.Control(letWait); err != nil {
		return nil, err
	}
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

// letWait lets system calls on the socket wait, to receive for nextTime.
func letWait(fd uintptr) {
	limit := unix.NsecToTimeval(int64(nextTime))
	// Without the limit or without waiting, receiveNext returns at once or in vain.
	if unix.SetsockoptTimeval(int(fd), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit) == nil {
		_ = unix.SetNonblock(int(fd), false)
	}
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

// receive waits for packets and returns their number.
func (b *batch) receive() (n int, err error) {
	if err := b.raw.Read(b.receiveOnce); err != nil {
		return 0, err
	}
	if b.errno != 0 {
		return 0, os.NewSyscallError("recvmmsg", b.errno)
	}
	return b.received, nil
}

// receiveNow receives packets without waiting.
func (b *batch) receiveNow(fd uintptr) (done bool) {
	b.takeNow(fd)
	if b.errno == unix.EAGAIN {
		b.unwaited, b.parked = 0, time.Now()
		return false
	}
	b.unwaited++
	return true
}

const (
	// nextTime is the longest time that receiveNext waits. The system rounds it up to its
	// clock's next tick.
	nextTime = time.Millisecond
	// pollTime is the longest time between two turns of the runtime's poller, which other
	// goroutines depend on.
	pollTime = 250 * time.Microsecond
)

// receiveNext is receive for a client that sends its next query when it has the answer: if
// the last batch was one packet, it waits in the system call. To find nothing, to wait in
// the poller and to wake up costs more than an answer does. It returns 0 if that does not
// apply, or in vain.
//
// The runtime does not know that this thread waits: it would take the processor away and
// give it back for each packet, which costs more again. Other goroutines of the processor
// wait for nextTime at most. The signal with which the runtime stops a goroutine also ends
// the wait.
func (b *batch) receiveNext() (n int) {
	if b.received != 1 || time.Since(b.parked) > pollTime || b.raw.Control(b.nextOnce) != nil || b.errno != 0 {
		return 0
	}
	b.unwaited = 0
	return b.received
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

// take is receive without waiting. It returns 0 if there are no packets.
func (b *batch) take() (n int) {
	if err := b.raw.Control(b.takeOnce); err != nil {
		return 0
	}
	return b.received
}

func (b *batch) takeNow(fd uintptr) {
	b.resetReceived()
	b.received, b.errno = call(fd, receiveNow, b.in[:])
}

// takeNext waits for packets as long as the socket's option SO_RCVTIMEO says.
func (b *batch) takeNext(fd uintptr) {
	b.resetReceived()
	b.received, b.errno = call(fd, receiveAndWait, b.in[:])
}

func (b *batch) resetReceived() {
	for i := range b.received {
		b.reset(i)
	}
}

// transfer is a way to call recvmmsg(2) or sendmmsg(2).
type transfer struct {
	trap, flags uintptr
	// again repeats a call that a signal interrupted.
	again bool
}

var (
	receiveNow     = transfer{unix.SYS_RECVMMSG, unix.MSG_DONTWAIT, true}
	receiveAndWait = transfer{unix.SYS_RECVMMSG, unix.MSG_WAITFORONE, false}
	sendNow        = transfer{unix.SYS_SENDMMSG, unix.MSG_DONTWAIT, true}
)

// call transfers messages and returns their number.
func call(fd uintptr, t transfer, messages []message) (int, syscall.Errno) {
	for {
		first := uintptr(unsafe.Pointer(unsafe.SliceData(messages)))
		done, _, errno := unix.RawSyscall6(t.trap, fd, first, uintptr(len(messages)), t.flags, 0, 0)
		switch {
		case errno == 0:
			return int(done), 0
		case errno != unix.EINTR || !t.again:
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

// sendSome sends some answers. It waits for room, unless the batch is impatient.
func (b *batch) sendSome() error {
	if !b.impatient {
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
	n, b.errno = call(fd, sendNow, b.out[b.sent:b.queued])
	b.sent += n
	return b.errno != unix.EAGAIN
}
