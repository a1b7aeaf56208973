package conntrack

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/proxy/frontend"
)

// answerWithin is the longest wait for a message of the kernel.
const answerWithin = 10 * time.Second

// maxDump is the largest message of a dump.
const maxDump = 1 << 16

// deletions is how many entries are deleted with one system call. Their acknowledgements fit
// into the socket's buffer.
const deletions = 100

// netlinkTable is the table in the kernel. It is for one goroutine.
type netlinkTable struct {
	socket   int
	sequence uint32
	buf      []byte
}

func openTable() (table, error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netlink: open a socket: %w", err)
	}
	t := &netlinkTable{socket: socket, buf: make([]byte, maxDump)}
	limit := unix.NsecToTimeval(answerWithin.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
		unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("netlink: %w", err), t.close())
	}
	return t, nil
}

func (t *netlinkTable) close() error { return unix.Close(t.socket) }

// clean reads the entries that the filter leaves, and then deletes the stale ones.
func (t *netlinkTable) clean(s scope, all targets) (deleted int, err error) {
	if s.protocol == frontend.TCP && !picksUpTCP() {
		return 0, nil
	}
	var stale [][]byte
	message := t.message(unix.NLM_F_DUMP, msgGet, s.family)
	message = appendFilter(message, s, all.common())
	err = t.dump(sized(message), func(attributes []byte) {
		found := parse(attributes)
		if found.valid && scopeOf(found.destination) == s && all.stale(&found.entry) {
			stale = append(stale, found.identity(nil))
		}
	})
	if err != nil && !errors.Is(err, errInterrupted) {
		return 0, fmt.Errorf("read the %s conntrack entries of %s: %w", s.family, s.protocol, err)
	}
	for len(stale) > 0 {
		n := min(len(stale), deletions)
		gone, failure := t.remove(s.family, stale[:n])
		if deleted += gone; failure != nil {
			return deleted, fmt.Errorf("delete %s conntrack entries of %s: %w", s.family, s.protocol, failure)
		}
		stale = stale[n:]
	}
	return deleted, err
}

// errInterrupted says that the table was rebuilt while it was read: entries may be missing.
var errInterrupted = errors.New("the conntrack table changed its size while it was read")

// dump sends a request and calls each for the attributes of each entry of the answer.
func (t *netlinkTable) dump(request []byte, each func(attributes []byte)) error {
	if err := t.send(request); err != nil {
		return err
	}
	interrupted := false
	for {
		data, err := t.receive()
		if err != nil {
			return err
		}
		for len(data) > 0 {
			var m reply
			if m, data, err = nextReply(data); err != nil {
				return err
			}
			interrupted = interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
			switch {
			case m.sequence != t.sequence:
			case m.kind == unix.NLMSG_DONE && interrupted:
				return errInterrupted
			case m.kind == unix.NLMSG_DONE, m.kind == unix.NLMSG_ERROR:
				return m.errno()
			case len(m.data) >= sizeofNfgenmsg:
				each(m.data[sizeofNfgenmsg:])
			}
		}
	}
}

// remove deletes entries by their identities and returns how many there were still.
func (t *netlinkTable) remove(f Family, identities [][]byte) (removed int, err error) {
	var request []byte
	for _, identity := range identities {
		message := append(t.message(unix.NLM_F_ACK, msgDelete, f), identity...)
		request = append(request, sized(message)...)
	}
	first := t.sequence - uint32(len(identities)) + 1
	if err := t.send(request); err != nil {
		return 0, err
	}
	for left := len(identities); left > 0; {
		data, err := t.receive()
		if err != nil {
			return removed, err
		}
		for len(data) > 0 {
			var m reply
			if m, data, err = nextReply(data); err != nil {
				return removed, err
			}
			if m.kind != unix.NLMSG_ERROR || m.sequence < first {
				continue
			}
			left--
			switch err := m.errno(); {
			case err == nil:
				removed++
			case errors.Is(err, unix.ENOENT): // it ended by itself
			default:
				return removed, err
			}
		}
	}
	return removed, nil
}

func (t *netlinkTable) send(request []byte) error {
	for {
		err := unix.Sendto(t.socket, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err != unix.EINTR {
			return err
		}
	}
}

// receive returns the next datagram of the kernel; it is valid until the next call.
func (t *netlinkTable) receive() ([]byte, error) {
	for {
		n, from, err := unix.Recvfrom(t.socket, t.buf, unix.MSG_TRUNC)
		switch sender, _ := from.(*unix.SockaddrNetlink); {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return nil, fmt.Errorf("no answer within %v", answerWithin)
		case err != nil:
			return nil, err
		case sender == nil || sender.Pid != 0: // processes may send to the socket, too
		case n > len(t.buf):
			return nil, fmt.Errorf("a message of %d bytes", n)
		default:
			return t.buf[:n], nil
		}
	}
}

// message returns the beginning of the next request.
func (t *netlinkTable) message(flags, kind uint16, f Family) []byte {
	t.sequence++
	return newMessage(unix.NLM_F_REQUEST|flags, kind, t.sequence, f)
}
