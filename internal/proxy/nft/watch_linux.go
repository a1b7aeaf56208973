package nft

import (
	"context"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// listen has the kernel keep messages about changes of tables for Watch, unless the tables are owned,
// which nobody else can change. It must be called before anything is read, so that no change is
// missed.
func (t *Table) listen() error {
	if !t.plain || t.listener.Load() != nil {
		return nil
	}
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	_ = socket.SetReadBuffer(bufferSize) // with a smaller one, Watch reports Lost more often
	if err := socket.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		_ = socket.Close()
		return fmt.Errorf("netlink: %w", err)
	}
	t.listener.Store(socket)
	return nil
}

// Watch reports on notices, which has room for one, what happened since the last Sync began and from
// then on, until ctx is done; it returns nil then, and at once if the tables are owned, which nobody
// else can change. After an error, changes may have been missed: after the next Sync Watch can be
// called again.
func (t *Table) Watch(ctx context.Context, notices chan<- Notice) error {
	socket := t.listener.Load()
	if socket == nil {
		return nil
	}
	defer t.listener.CompareAndSwap(socket, nil)
	defer socket.Close()
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	for {
		messages, err := socket.Receive()
		notice := Changed
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			notice = Lost
		case err != nil:
			return nfnetlink.ErrnoOf(err)
		case !t.concern(messages):
			continue
		}
		select {
		case notices <- notice:
		default:
		}
	}
}

// concern reports whether another process changed the tables.
func (t *Table) concern(messages []netlink.Message) bool {
	const table = 1 // the attribute with the table's name, of all kinds of messages
	for _, m := range messages {
		if m.Header.PID == t.port.Load() || len(m.Data) < 4 ||
			m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
			continue
		}
		name, err := nfnetlink.Attributes(m.Data[4:], table)
		if err == nil && string(name[0]) == t.cfg.Name+"\x00" {
			return true
		}
	}
	return false
}
