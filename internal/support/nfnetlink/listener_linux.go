package nfnetlink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// bufferSize is how many octets of messages the kernel keeps for Watch.
const bufferSize = 32 << 20

// Listener reports changes of nftables by other sockets than the own ones (NFNLGRP_NFTABLES). The zero
// value is ready for use. All methods are safe for concurrent use.
type Listener struct {
	mu     sync.Mutex
	socket *netlink.Conn // nil before Listen, and after Watch
	own    [2]uint32     // the port IDs of own sockets
}

// Listen has the kernel keep messages for Watch, unless it does. It must be called before anything is
// read, so that no change is missed.
func (l *Listener) Listen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.socket != nil {
		return nil
	}
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	_ = socket.SetReadBuffer(bufferSize) // with a smaller one, Watch reports Lost more often
	err = ignore(socket, l.own)
	if err == nil {
		err = socket.JoinGroup(unix.NFNLGRP_NFTABLES)
	}
	if err != nil {
		_ = socket.Close()
		return fmt.Errorf("netlink: %w", err)
	}
	l.socket = socket
	return nil
}

// SetReadBuffer changes how many octets of messages the kernel keeps, after Listen.
func (l *Listener) SetReadBuffer(octets int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.socket.SetReadBuffer(octets)
}

// Ignore has changes by a socket not be reported. It is the own one at a place, 0 or 1, instead of the one
// before.
func (l *Listener) Ignore(socket *netlink.Conn, place int) error {
	port, err := PortOf(socket)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own[place] = port
	if err == nil && l.socket != nil {
		err = ignore(l.socket, l.own)
	}
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	return nil
}

// Close ends what Listen began. Watch must have returned.
func (l *Listener) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.socket != nil {
		_ = l.socket.Close()
		l.socket = nil
	}
}

// ignore has a listener not get what some senders change, by their port IDs: the elements of a large
// table would overflow its buffer. All messages of a transaction are of one sender.
func ignore(listener *netlink.Conn, senders [2]uint32) error {
	const sender, none, all = 12, 0, 1<<32 - 1 // the offset in struct nlmsghdr, and how much is kept
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: sender},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: loaded(senders[0]), Jt: 2},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: loaded(senders[1]), Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: all},
		{Code: unix.BPF_RET | unix.BPF_K, K: none},
	}
	raw, err := listener.SyscallConn()
	if err != nil {
		return err
	}
	control := raw.Control(func(fd uintptr) {
		filter := &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, filter)
	})
	return errors.Join(control, err)
}

// loaded returns a number of the machine as a filter of packets loads it, in network order.
func loaded(n uint32) uint32 {
	return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, n))
}

// Watch reports on notices, which has room for one, what happened to the tables with a name since Listen
// and from then on, until ctx is done; it returns nil then, and at once before Listen. After an error,
// changes may have been missed: after the next Listen it can be called again.
func (l *Listener) Watch(ctx context.Context, table string, notices chan<- Notice) error {
	l.mu.Lock()
	socket := l.socket
	l.mu.Unlock()
	if socket == nil {
		return nil
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	for {
		messages, err := socket.Receive()
		notice := Changed
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			notice, err = Lost, nil
		case err == nil && !concerns(messages, table):
			continue
		}
		if err != nil {
			return ErrnoOf(err)
		}
		select {
		case notices <- notice:
		default:
		}
	}
}

// concerns reports whether messages are about tables with a name.
func concerns(messages []netlink.Message, table string) bool {
	const ofTable = 1 // the attribute with the table's name, of all kinds of messages
	for _, m := range messages {
		if len(m.Data) < HeaderSize || m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
			continue
		}
		name, err := Attributes(m.Data[HeaderSize:], ofTable)
		if err == nil && Text(name[0]) == table {
			return true
		}
	}
	return false
}
