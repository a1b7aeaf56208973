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

// batchLen is how many packets are received and sent with one system call, at
// most. With more the calls cost no less, and who comes first waits longer.
const batchLen = 32

// maxUDPQuery is the longest query over UDP, in octets; what is longer is cut,
// and so malformed. It is an odd number of cache lines, for the beginnings of
// packets to lie in different sets of the cache.
const maxUDPQuery = 4096 + 64

// answerRoom holds the answers of a batch, one behind another, at their usual
// size, and behind them one of any size.
const answerRoom = batchLen*1280 + dnswire.MaxMessage

// batch is what a socket's packets are received into and answered from, by one
// goroutine at a time. It refers to itself and must not be copied.
//
// Its system calls never wait, and so the runtime is not told of them, which
// costs about as much as a short answer: the runtime's poller waits when there
// is nothing to receive, or no room to send.
type batch struct {
	mu          sync.Mutex // held from when packets are received until they are answered
	raw         syscall.RawConn
	every       bool // the socket is bound to every address of the host
	receiveOnce func(fd uintptr) (done bool)
	takeOnce    func(fd uintptr)
	sendOnce    func(fd uintptr) (done bool)
	sendTaken   func(fd uintptr)
	taken       bool          // by another goroutine than the socket's, which must not wait
	errno       syscall.Errno // of the call that was done last
	unwaited    int           // times that receive did not have to wait, in a row

	in       [batchLen]message
	from     [batchLen]unix.RawSockaddrInet6 // or of IPv4, which is shorter
	inData   [batchLen]unix.Iovec
	control  [batchLen][controlLen]byte
	queries  [batchLen * maxUDPQuery]byte
	received int // of in

	out     [batchLen]message
	outData [batchLen]unix.Iovec
	sent    int // of out
	queued  int // of out
	filled  int // of answers
	answers [answerRoom]byte
	failed  error // of sending
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

// reset makes ready for another packet.
func (b *batch) reset(i int) {
	in := &b.in[i]
	in.Namelen = unix.SizeofSockaddrInet6
	if b.every {
		in.Control = &b.control[i][0]
		in.SetControllen(controlLen)
	}
}

// receive waits for packets and says how many there are. Without an error, the
// batch is the caller's until release.
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

// receiveNow keeps the batch when it is done.
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

// maxUnwaited is how often packets are received without waiting before other
// goroutines have their turn.
const maxUnwaited = 4

// yieldProcessor lets other goroutines of the processor go first when there was no need to
// wait for packets for a while. Without that they would wait for 10 ms: who asks
// again when the answer comes may do so before this goroutine looks again.
func (b *batch) yieldProcessor() {
	if b.unwaited >= maxUnwaited {
		b.unwaited = 0
		runtime.Gosched()
	}
}

// take is receive for other goroutines than the socket's: it does not wait, and
// gives nothing while the batch is somebody's. When n is not 0, it is the
// caller's until release.
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

// call is recvmmsg(2) or sendmmsg(2) for n messages from first on. It does not
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

// packet is the packet number i, and who sent it.
func (b *batch) packet(i int) (packet []byte, from netip.AddrPort) {
	at := i * maxUDPQuery
	packet = b.queries[at : at+int(b.in[i].length)]
	sa := &b.from[i]
	addr := netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(sa)).Addr)
	if sa.Family == unix.AF_INET6 {
		addr = netip.AddrFrom16(sa.Addr).Unmap()
	}
	port := (*[2]byte)(unsafe.Pointer(&sa.Port)) // at the same place in both families
	return packet, netip.AddrPortFrom(addr, binary.BigEndian.Uint16(port[:]))
}

// returnPath is where an answer goes that comes later.
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

// room is where the next answer goes.
func (b *batch) room() []byte { return b.answers[b.filled:b.filled] }

// reply takes answer, made in room, for packet number i.
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

// send sends all replies. Those that can't be sent are left out; the error is
// that of the last one.
func (b *batch) send() error {
	b.flush()
	err := b.failed
	b.failed = nil
	return err
}

// flush sends the replies so far.
func (b *batch) flush() {
	for b.sent < b.queued {
		if err := b.sendSome(); err != nil {
			b.failed = err
			break
		}
		if b.errno != 0 {
			b.failed = os.NewSyscallError("sendmmsg", b.errno)
			b.sent++ // the one that can't be sent
		}
	}
	b.sent, b.queued, b.filled = 0, 0, 0
}

// sendSome sends some replies. It waits for room, unless the batch is taken.
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
