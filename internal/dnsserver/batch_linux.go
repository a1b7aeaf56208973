package dnsserver

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/dnswire"
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

// batch is what a socket's packets are received into and answered from. It
// refers to itself and must not be copied.
type batch struct {
	socket *udpSocket

	in      [batchLen]message
	from    [batchLen]unix.RawSockaddrInet6 // or of IPv4, which is shorter
	inData  [batchLen]unix.Iovec
	control [batchLen][controlLen]byte
	queries [batchLen * maxUDPQuery]byte
	used    int // of in, by the batch in hand

	out     [batchLen]message
	outData [batchLen]unix.Iovec
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

func newBatch(socket *udpSocket) *batch {
	b := &batch{socket: socket}
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
	return b
}

// reset makes ready for another packet.
func (b *batch) reset(i int) {
	in := &b.in[i]
	in.Namelen = unix.SizeofSockaddrInet6
	if b.socket.every {
		in.Control = &b.control[i][0]
		in.SetControllen(controlLen)
	}
}

// receive waits for packets and says how many there are: none, without an
// error, when the socket was interrupted.
func (b *batch) receive() (n int, err error) {
	for i := range b.used {
		b.reset(i)
	}
	b.used, err = b.call(unix.SYS_RECVMMSG, &b.in, 0, batchLen, unix.MSG_WAITFORONE)
	for n < b.used && b.in[n].Namelen > 0 { // from nobody: there is no packet
		n++
	}
	return n, err
}

// packet is the packet number i, and who sent it.
func (b *batch) packet(i int) (packet []byte, from netip.Addr) {
	at := i * maxUDPQuery
	packet = b.queries[at : at+int(b.in[i].length)]
	if sa := &b.from[i]; sa.Family == unix.AF_INET6 {
		return packet, netip.AddrFrom16(sa.Addr).Unmap()
	}
	return packet, netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&b.from[i])).Addr)
}

// room is where the next answer goes.
func (b *batch) room() []byte { return b.answers[b.filled:b.filled] }

// reply takes answer, made in room, for packet number i.
func (b *batch) reply(i int, answer []byte) {
	in, out := &b.in[i], &b.out[b.queued]
	b.outData[b.queued].Base = unsafe.SliceData(answer)
	b.outData[b.queued].SetLen(len(answer))
	out.Name, out.Namelen = in.Name, in.Namelen
	if b.socket.every {
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
	for next := 0; next < b.queued; {
		sent, err := b.call(unix.SYS_SENDMMSG, &b.out, next, b.queued-next, 0)
		next += sent
		if err != nil {
			b.failed = err
			next++
		}
	}
	b.queued, b.filled = 0, 0
}

// call is recvmmsg(2) or sendmmsg(2) for n messages from the one numbered first.
func (b *batch) call(trap uintptr, messages *[batchLen]message, first, n, flags int) (int, error) {
	for {
		got, _, errno := unix.Syscall6(trap, uintptr(b.socket.fd.Load()),
			uintptr(unsafe.Pointer(&messages[first])), uintptr(n), uintptr(flags), 0, 0)
		switch errno {
		case 0:
			return int(got), nil
		case syscall.EINTR:
		case syscall.EBADF:
			return 0, net.ErrClosed
		default:
			return 0, os.NewSyscallError(callNames[trap], errno)
		}
	}
}

var callNames = map[uintptr]string{unix.SYS_RECVMMSG: "recvmmsg", unix.SYS_SENDMMSG: "sendmmsg"}
