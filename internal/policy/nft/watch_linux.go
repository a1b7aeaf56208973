package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// listen has the kernel keep messages about changes of nftables for Watch. It must be called before
// anything is read, so that no change is missed.
func (t *Table) listen() error {
	t.ignoring.Lock()
	defer t.ignoring.Unlock()
	if t.listener != nil {
		return nil
	}
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	_ = socket.SetReadBuffer(bufferSize) // with a smaller one, Watch reports Lost more often
	t.listener = socket
	err = t.ignoreOwn()
	if err == nil {
		err = socket.JoinGroup(unix.NFNLGRP_NFTABLES)
	}
	if err != nil {
		closeSocket(&t.listener)
		return fmt.Errorf("netlink: %w", err)
	}
	return nil
}

// ignoreOwn has the listener not get what the table's own sockets change: the elements of a large
// table would overflow its buffer. All messages of a transaction are of one socket.
func (t *Table) ignoreOwn() error {
	if t.listener == nil {
		return nil
	}
	const sender, none, all = 12, 0, 1<<32 - 1 // the offset in struct nlmsghdr, and how much is kept
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: sender},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: loaded(t.ports[0]), Jt: 2},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: loaded(t.ports[1]), Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: all},
		{Code: unix.BPF_RET | unix.BPF_K, K: none},
	}
	raw, err := t.listener.SyscallConn()
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

// Watch reports on notices, which has room for one, what happened since the last Sync began and from
// then on, until ctx is done; it returns nil then, and at once before the first Sync. After an error,
// changes may have been missed: after the next Sync Watch can be called again.
func (t *Table) Watch(ctx context.Context, notices chan<- Notice) error {
	t.ignoring.Lock()
	socket := t.listener
	t.ignoring.Unlock()
	if socket == nil {
		return nil
	}
	defer func() {
		t.ignoring.Lock()
		defer t.ignoring.Unlock()
		if t.listener == socket {
			closeSocket(&t.listener)
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	for {
		messages, err := socket.Receive()
		notice := Changed
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			notice = Lost
		case err != nil:
			return tableError(t.cfg.Name, nfnetlink.ErrnoOf(err))
		case !t.concerns(messages):
			continue
		}
		select {
		case notices <- notice:
		default:
		}
	}
}

// concerns reports whether messages are about the table.
func (t *Table) concerns(messages []netlink.Message) bool {
	const table = 1 // the attribute with the table's name, of all kinds of messages
	for _, m := range messages {
		if len(m.Data) < nfnetlink.HeaderSize || m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
			continue
		}
		name, err := nfnetlink.Attributes(m.Data[nfnetlink.HeaderSize:], table)
		if err == nil && m.Data[0] == unix.NFPROTO_INET && nfnetlink.Text(name[0]) == t.cfg.Name {
			return true
		}
	}
	return false
}
