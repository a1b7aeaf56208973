package nfnetlink

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// readGeneration returns the generation of nftables in the network namespace of a socket, which is not 0.
// Each transaction increments it before the kernel makes its messages.
func readGeneration(socket *netlink.Conn) (uint32, error) {
	if err := socket.SetDeadline(time.Now().Add(AnswerWithin)); err != nil {
		return 0, err
	}
	answers, err := socket.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return 0, ErrnoOf(err)
	}
	if len(answers) != 1 || len(answers[0].Data) < HeaderSize {
		return 0, ErrMalformed
	}
	id, err := Attributes(answers[0].Data[HeaderSize:], unix.NFTA_GEN_ID)
	return Uint32(id[0]), err
}

// isGeneration reports whether a generation of nftables is the present one, when the messages of all
// transactions before have been made: it commits a batch without messages, which waits for them.
func isGeneration(socket *netlink.Conn, generation uint32) (bool, error) {
	b := new(Batch)
	b.begin()
	b.pin(generation)
	b.bracket(unix.NFNL_MSG_BATCH_END)
	raw, err := socket.SyscallConn()
	if err != nil {
		return false, err
	}
	err = retried(raw.Write, func(fd int) error { return unix.Sendto(fd, b.Buf, 0, &unix.SockaddrNetlink{}) })
	if err != nil {
		return false, ErrnoOf(err)
	}
	// By now the kernel has answered, if it refused.
	var answer [unix.SizeofNlMsghdr + 4]byte
	control := raw.Control(func(fd uintptr) { _, _, err = unix.Recvfrom(int(fd), answer[:], unix.MSG_DONTWAIT) })
	errno := unix.Errno(-int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])))
	switch {
	case control != nil:
		return false, control
	case errors.Is(err, unix.EAGAIN):
		return true, nil
	case err != nil:
		return false, err
	case errno != unix.ERESTART:
		return false, errno
	}
	return false, nil
}
