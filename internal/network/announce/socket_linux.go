package announce

import (
	"encoding/binary"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// socket is a packet socket of an interface.
type socket struct {
	file *os.File
	raw  syscall.RawConn
}

// receiveBuffer is how many octets of frames wait at most, as the kernel counts them: about a hundred frames.
const receiveBuffer = 128 << 10

// openSocket opens a socket for frames of a protocol that a filter accepts. It receives none before it has the filter.
func openSocket(index int, protocol uint16, filter []bpf.Instruction) (*socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &socket{file: os.NewFile(uintptr(fd), "packet")}
	if s.raw, err = s.file.SyscallConn(); err == nil {
		err = s.setUp(index, protocol, filter)
	}
	if err != nil {
		s.file.Close()
		return nil, err
	}
	return s, nil
}

func (s *socket) setUp(index int, protocol uint16, filter []bpf.Instruction) error {
	if err := s.filter(filter); err != nil {
		return err
	}
	return s.control(func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{
			Protocol: binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol)), Ifindex: index,
		}))
	})
}

func (s *socket) control(do func(fd int) error) (err error) {
	if ctrlErr := s.raw.Control(func(fd uintptr) { err = do(int(fd)) }); ctrlErr != nil {
		return ctrlErr
	}
	return err
}

// filter replaces the filter of the socket.
func (s *socket) filter(program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	set := unix.SockFprog{Len: uint16(len(code)), Filter: unsafe.SliceData(code)}
	return s.control(func(fd int) error {
		return os.NewSyscallError("setsockopt", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &set))
	})
}

// send sends a frame. It does not wait for room in the queue.
func (s *socket) send(b []byte) error {
	return s.control(func(fd int) error {
		_, err := unix.Write(fd, b)
		return os.NewSyscallError("write", err)
	})
}
