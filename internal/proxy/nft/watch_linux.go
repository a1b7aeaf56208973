package nft

import (
	"context"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Watch reports on changed, which has room for one, when another process changed the tables,
// until ctx is done. It returns nil then, and at once if the tables are owned, which nobody
// else can change. Sync repairs them.
func (t *Table) Watch(ctx context.Context, changed chan<- struct{}) error {
	if !t.plain {
		return nil
	}
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer socket.Close()
	if err := socket.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	for {
		messages, err := socket.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, unix.ENOBUFS):
			return errnoOf(err)
		case err == nil && !t.concern(messages):
			continue
		}
		select { // some messages were lost, or one is about the tables
		case changed <- struct{}{}:
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
		name, err := attributes(m.Data[4:], table)
		if err == nil && string(name[0]) == t.cfg.Name+"\x00" {
			return true
		}
	}
	return false
}

// portOf returns the port ID of a socket, which its messages carry (netlink(7)).
func portOf(socket *netlink.Conn) (port uint32, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	control := raw.Control(func(fd uintptr) {
		var addr unix.Sockaddr
		addr, err = unix.Getsockname(int(fd))
		if own, ok := addr.(*unix.SockaddrNetlink); ok {
			port = own.Pid
		}
	})
	return port, errors.Join(control, err)
}
