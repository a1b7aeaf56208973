// Package handover passes listening sockets from a process to the one that replaces it (unix(7),
// SCM_RIGHTS). Both then accept connections at the same sockets, so that none is refused when the first one
// closes its own: the kernel's queue of connections that nobody has accepted yet belongs to the socket.
//
//	old process: Offer ◄── connects ── Take: new process
//	             names and sockets ──────►
package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// within is how long a handover may take.
	within = 5 * time.Second
	// pause is how long an Offer waits after an error.
	pause = time.Second
	// batch is how many sockets a message has at most; the kernel allows 253 (SCM_MAX_FD).
	batch = 128
	// maxNames is how many octets the names of a batch may have.
	maxNames = 64 << 10
)

// A Socket is a listening socket, or one that receives datagrams, and its name, by which the next process recognizes
// it.
type Socket struct {
	Name     string
	Listener *net.TCPListener // nil for one of UDP
	Packets  *net.UDPConn     // nil for one of TCP
}

// Taken are the sockets of another process, by name. Names of both kinds are distinct.
type Taken struct {
	Listeners map[string]*net.TCPListener
	Packets   map[string]*net.UDPConn
}

// Len returns how many there are.
func (t *Taken) Len() int { return len(t.Listeners) + len(t.Packets) }

// Close closes them.
func (t *Taken) Close() {
	for _, l := range t.Listeners {
		l.Close()
	}
	for _, c := range t.Packets {
		c.Close()
	}
}

// Offer is where the next process gets the sockets.
type Offer struct {
	unix    *net.UnixListener
	sockets func() []Socket
}

// NewOffer begins to listen at a path, in place of a process that did so before. sockets returns what is
// passed on; it is called for each process that takes. Run passes them.
func NewOffer(path string, sockets func() []Socket) (*Offer, error) {
	fail := func(err error) (*Offer, error) { return nil, fmt.Errorf("offer sockets at %s: %w", path, err) }
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fail(err)
	}
	if at, err := os.Lstat(path); err == nil && at.Mode().Type() != fs.ModeSocket {
		return fail(errors.New("there is something else than a socket"))
	}
	// The name is taken by a rename, so that it always leads to a process.
	beside := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: beside, Net: "unixpacket"})
	if err != nil {
		return fail(err)
	}
	l.SetUnlinkOnClose(false) // the name may be another process' by then
	if err = os.Chmod(beside, 0o600); err == nil {
		err = os.Rename(beside, path)
	}
	if err != nil {
		return fail(errors.Join(err, l.Close(), os.Remove(beside)))
	}
	return &Offer{unix: l, sockets: sockets}, nil
}

// Run passes the sockets to each process of the same user, or of root, that takes them, until ctx is done or
// the Offer is closed.
func (o *Offer) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, o.Close)()
	for {
		conn, err := o.unix.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // no descriptors are left, for example
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		default:
			_ = o.pass(conn) // the other process reports it
			conn.Close()
		}
	}
}

// Close ends the Offer.
func (o *Offer) Close() { o.unix.Close() }

// pass sends all sockets, and an empty message at the end.
func (o *Offer) pass(conn *net.UnixConn) error {
	_ = conn.SetDeadline(time.Now().Add(within))
	if err := trusted(conn); err != nil {
		return err
	}
	all := o.sockets()
	for len(all) > 0 {
		n := min(batch, len(all))
		if err := send(conn, all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	_, err := conn.Write([]byte("[]"))
	return err
}

// trusted returns an error if the process at the other end is neither of this user nor of root.
func trusted(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	ctrlErr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(ctrlErr, err); err != nil {
		return err
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("the process is of user %d", peer.Uid)
	}
	return nil
}

// send sends a message with sockets.
func send(conn *net.UnixConn, sockets []Socket) error {
	var names []string
	var fds []int
	for _, s := range sockets {
		var of syscall.Conn = s.Listener
		if s.Packets != nil {
			of = s.Packets
		}
		fd, err := duplicate(of) // so that the socket may be closed meanwhile
		if errors.Is(err, net.ErrClosed) {
			continue
		}
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		names, fds = append(names, s.Name), append(fds, fd)
	}
	if len(names) == 0 {
		return nil
	}
	text, err := json.Marshal(names)
	if err != nil {
		return err
	}
	if len(text) > maxNames {
		return fmt.Errorf("the names have %d octets", len(text))
	}
	_, _, err = conn.WriteMsgUnix(text, syscall.UnixRights(fds...), nil)
	return err
}

// duplicate returns a duplicate of a socket's descriptor. That of File would be a blocking one, and with it the
// socket, since the flag is the socket's.
func duplicate(l syscall.Conn) (dup int, err error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return 0, err
	}
	ctrlErr := raw.Control(func(fd uintptr) { dup, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	return dup, errors.Join(ctrlErr, err)
}

// Take returns the sockets that another process offers at a path; none if there is no such process. They are the
// caller's to close.
func Take(ctx context.Context, path string) (_ Taken, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unixpacket", path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return Taken{}, nil // there was none, or it has ended
	}
	if err != nil {
		return Taken{}, fmt.Errorf("take sockets: %w", err)
	}
	defer conn.Close()
	made := Taken{make(map[string]*net.TCPListener), make(map[string]*net.UDPConn)}
	defer func() {
		if err == nil {
			return
		}
		made.Close()
		err = fmt.Errorf("take sockets at %s: %w", path, err)
	}()
	packets, _ := conn.(*net.UnixConn)
	_ = packets.SetDeadline(time.Now().Add(within))
	for {
		more, err := receive(packets, made)
		if err != nil {
			return Taken{}, err
		}
		if !more {
			return made, nil
		}
	}
}

// receive receives a message, and adds its sockets.
func receive(conn *net.UnixConn, to Taken) (more bool, err error) {
	text, rights := make([]byte, maxNames), make([]byte, syscall.CmsgSpace(4*batch))
	n, rightsSize, _, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return false, err
	}
	files, err := received(rights[:rightsSize])
	defer func() {
		for _, f := range files {
			f.Close() // package net has made duplicates
		}
	}()
	if err != nil {
		return false, err
	}
	var names []string
	if err := json.Unmarshal(text[:n], &names); err != nil {
		return false, fmt.Errorf("read the names: %w", err)
	}
	if len(names) != len(files) {
		return false, fmt.Errorf("%d names for %d sockets", len(names), len(files))
	}
	for i, name := range names {
		if err := to.insert(name, files[i]); err != nil {
			return false, fmt.Errorf("socket %s: %w", name, err)
		}
	}
	return len(names) > 0, nil
}

// insert adds a socket.
func (t *Taken) insert(name string, f *os.File) error {
	if t.Listeners[name] != nil || t.Packets[name] != nil {
		return errors.New("is there twice")
	}
	if l, err := net.FileListener(f); err == nil {
		tcp, ok := l.(*net.TCPListener)
		if !ok {
			return errors.Join(errors.New("is not of TCP"), l.Close())
		}
		t.Listeners[name] = tcp
		return nil
	}
	c, err := net.FilePacketConn(f)
	if err != nil {
		return err
	}
	udp, ok := c.(*net.UDPConn)
	if !ok {
		return errors.Join(errors.New("is neither of TCP nor of UDP"), c.Close())
	}
	t.Packets[name] = udp
	return nil
}

// received returns the files of a control message.
func received(rights []byte) (files []*os.File, err error) {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "listener"))
		}
	}
	return files, nil
}
