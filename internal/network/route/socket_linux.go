package route

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// socket sends many requests to the kernel's routing at once (rtnetlink(7)).
type socket struct {
	fd       int
	port     uint32 // the sender of the kernel's notices about what it did
	sequence uint32
	buf      []byte
}

// request is one request.
type request struct {
	kind  uint16
	flags uint16
	data  []byte
	// what names the object in errors.
	what string
	// fine are errors that are none, such as that what is to be removed is gone.
	fine []unix.Errno
}

// maxRequests is how many requests are sent at once: the kernel answers each, and the answers must fit into the
// socket's buffer.
const maxRequests = 64

// maxErrors is how many errors are returned.
const maxErrors = 5

func dial() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	s := &socket{fd: fd}
	timeout := unix.NsecToTimeval(nfnetlink.AnswerWithin.Nanoseconds())
	err = cmp.Or(
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
	)
	addr, failed := unix.Getsockname(fd)
	if err = cmp.Or(err, failed); err != nil {
		s.close()
		return nil, fmt.Errorf("netlink: %w", err)
	}
	if own, ok := addr.(*unix.SockaddrNetlink); ok {
		s.port = own.Pid
	}
	return s, nil
}

func (s *socket) close() { _ = unix.Close(s.fd) }

// execute executes requests in order, also those after one that failed, and returns the first errors.
func (s *socket) execute(all []request) error {
	var failed []error
	more := 0
	for some := range slices.Chunk(all, maxRequests) {
		errs, err := s.send(some)
		if err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		for i, errno := range errs {
			switch {
			case errno == 0 || slices.Contains(some[i].fine, errno):
			case len(failed) == maxErrors:
				more++
			default:
				failed = append(failed, fmt.Errorf("%s: %w", some[i].what, errno))
			}
		}
	}
	if more > 0 {
		failed = append(failed, fmt.Errorf("%d more", more))
	}
	return errors.Join(failed...)
}

// send sends requests, and returns what the kernel answered to each.
func (s *socket) send(all []request) ([]unix.Errno, error) {
	s.buf = s.buf[:0]
	first := s.sequence + 1
	for i := range all {
		s.sequence++
		s.append(&all[i])
	}
	if err := unix.Sendto(s.fd, s.buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	answers := make([]unix.Errno, len(all))
	var buf [1 << 12]byte
	for got := 0; got < len(all); {
		n, _, err := unix.Recvfrom(s.fd, buf[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofNlMsghdr+4; {
			length := min(int(binary.NativeEndian.Uint32(rest)), len(rest))
			i := binary.NativeEndian.Uint32(rest[8:]) - first // wraps for answers to what was sent before
			if binary.NativeEndian.Uint16(rest[4:]) == unix.NLMSG_ERROR && int(i) < len(all) {
				errno := int32(binary.NativeEndian.Uint32(rest[unix.SizeofNlMsghdr:]))
				answers[i] = unix.Errno(-errno)
				got++
			}
			rest = rest[min(max(length+3, unix.SizeofNlMsghdr)&^3, len(rest)):]
		}
	}
	return answers, nil
}

// append appends a request with its header (linux/netlink.h, struct nlmsghdr).
func (s *socket) append(r *request) {
	s.buf = binary.NativeEndian.AppendUint32(s.buf, uint32(unix.SizeofNlMsghdr+len(r.data)))
	s.buf = binary.NativeEndian.AppendUint16(s.buf, r.kind)
	s.buf = binary.NativeEndian.AppendUint16(s.buf, r.flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	s.buf = binary.NativeEndian.AppendUint32(s.buf, s.sequence)
	s.buf = append(s.buf, 0, 0, 0, 0)
	s.buf = append(s.buf, r.data...)
	for len(s.buf)%unix.NLMSG_ALIGNTO != 0 {
		s.buf = append(s.buf, 0)
	}
}
