package ctnetlink

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// answerWithin is the longest wait for a message of the kernel.
const answerWithin = 10 * time.Second

// maxDump is the largest message of a dump.
const maxDump = 1 << 16

// deletions is how many entries are deleted with one system call. Their acknowledgements fit
// into the socket's buffer.
const deletions = 100

// Table is the table in the kernel. It is for one goroutine.
type Table struct {
	socket   int
	sequence uint32
	buf      []byte
}

// Open returns the table of the network namespace of the calling thread. After an error of a method
// the kernel may have more answers for it: it is to be closed then.
func Open() (*Table, error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netlink: open a socket: %w", err)
	}
	t := &Table{socket: socket, buf: make([]byte, maxDump)}
	limit := unix.NsecToTimeval(answerWithin.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
		unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("netlink: %w", err), t.Close())
	}
	return t, nil
}

// Close closes the socket.
func (t *Table) Close() error { return unix.Close(t.socket) }

// Each calls each for the entries that a Filter leaves. Its error wraps ErrInterrupted if some may
// be missing.
func (t *Table) Each(f Filter, each func(*Entry)) error {
	err := t.dump(sized(appendFilter(t.message(unix.NLM_F_DUMP, msgGet, f.Family), &f)), func(attributes []byte) {
		if e, ok := parse(attributes); ok {
			each(&e)
		}
	})
	if err != nil {
		return fmt.Errorf("read the %s conntrack entries: %w", f.Family, err)
	}
	return nil
}

// Delete deletes entries of a family, and returns how many there were still.
func (t *Table) Delete(f Family, all []Identity) (deleted int, err error) {
	for len(all) > 0 {
		n := min(len(all), deletions)
		gone, err := t.remove(f, all[:n])
		if deleted += gone; err != nil {
			return deleted, fmt.Errorf("delete %s conntrack entries: %w", f, err)
		}
		all = all[n:]
	}
	return deleted, nil
}

// dump sends a request and calls each for the attributes of each entry of the answer.
func (t *Table) dump(request []byte, each func(attributes []byte)) error {
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
				return ErrInterrupted
			case m.kind == unix.NLMSG_DONE, m.kind == unix.NLMSG_ERROR:
				return m.errno()
			case len(m.data) >= sizeofNfgenmsg:
				each(m.data[sizeofNfgenmsg:])
			}
		}
	}
}

// remove deletes entries by their identities and returns how many there were still.
func (t *Table) remove(f Family, identities []Identity) (removed int, err error) {
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

func (t *Table) send(request []byte) error {
	for {
		err := unix.Sendto(t.socket, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err != unix.EINTR {
			return err
		}
	}
}

// receive returns the next datagram of the kernel; it is valid until the next call.
func (t *Table) receive() ([]byte, error) {
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
func (t *Table) message(flags, kind uint16, f Family) []byte {
	t.sequence++
	return newMessage(unix.NLM_F_REQUEST|flags, kind, t.sequence, f)
}
