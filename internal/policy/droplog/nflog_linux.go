package droplog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
	"portolan.dev/portolan/internal/support/retry"
)

// Messages and attributes of nfnetlink_log (linux/netfilter/nfnetlink_log.h).
const (
	messagePacket = unix.NFNL_SUBSYS_ULOG << 8 // NFULNL_MSG_PACKET
	messageConfig = messagePacket | 1          // NFULNL_MSG_CONFIG

	configCommand = 1 // NFULA_CFG_CMD
	configMode    = 2 // NFULA_CFG_MODE
	configTimeout = 4 // NFULA_CFG_TIMEOUT

	commandBind = 1 // NFULNL_CFG_CMD_BIND
	copyPacket  = 2 // NFULNL_COPY_PACKET

	attributeDevice  = 4  // NFULA_IFINDEX_INDEV
	attributePayload = 9  // NFULA_PAYLOAD
	attributePrefix  = 10 // NFULA_PREFIX
)

const (
	// copyRange is how many octets of a packet the kernel passes on: the headers.
	copyRange = 128
	// flushTime is for how long the kernel gathers packets, in hundredths of a second.
	flushTime = 10
	// readBuffer is the size of the socket's buffer in octets.
	readBuffer = 1 << 20
)

// Run reads the kernel's log until ctx is done, and returns nil then. While the group cannot
// be read, for instance because another process has it, Run says so once and tries again.
func (l *Log) Run(ctx context.Context) error {
	var flushing sync.WaitGroup
	defer flushing.Wait()
	flushing.Go(func() { l.flushUntil(ctx) })
	failing := false
	for pauses := (retry.Backoff{}); ; {
		socket, err := l.open()
		if err == nil {
			if failing {
				l.cfg.Log.Info("the kernel's log of packets is read again")
			}
			failing, pauses = false, retry.Backoff{}
			err = l.read(ctx, socket)
		}
		if ctx.Err() != nil {
			return nil
		}
		if !failing {
			l.cfg.Log.Warn("the kernel's log of packets cannot be read; packets that policies deny are not logged",
				"group", l.cfg.Group, "err", err)
			failing = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pauses.Next()):
		}
	}
}

// open binds a socket to the group.
func (l *Log) open() (*netlink.Conn, error) {
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	_ = socket.SetReadBuffer(readBuffer) // with a smaller one, more packets are lost
	mode := binary.BigEndian.AppendUint32(nil, copyRange)
	mode = append(mode, copyPacket, 0)
	command := nfnetlink.AppendAttribute(nil, configCommand, string([]byte{commandBind}))
	rest := nfnetlink.AppendAttribute(nil, configMode, string(mode))
	rest = nfnetlink.AppendUint32(rest, configTimeout, flushTime)
	for _, attributes := range [][]byte{command, rest} {
		if err := l.configure(socket, attributes); err != nil {
			_ = socket.Close()
			return nil, err
		}
	}
	return socket, nil
}

// configure sends a configuration of the group, and waits for the kernel's answer.
func (l *Log) configure(socket *netlink.Conn, attributes []byte) error {
	head := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, byte(l.cfg.Group >> 8), byte(l.cfg.Group)}
	_, err := socket.Execute(netlink.Message{
		Header: netlink.Header{Type: messageConfig, Flags: netlink.Request | netlink.Acknowledge},
		Data:   append(head, attributes...),
	})
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EBUSY): // the right to log is there, as that to make rules
		return fmt.Errorf("nfnetlink_log: another process reads the group: %w", err)
	case err != nil:
		return fmt.Errorf("nfnetlink_log: %w", err)
	}
	return nil
}

// read reads packets until ctx is done or the socket fails, and closes it.
func (l *Log) read(ctx context.Context, socket *netlink.Conn) error {
	closed := sync.OnceFunc(func() { _ = socket.Close() })
	defer closed()
	defer context.AfterFunc(ctx, closed)()
	for {
		messages, err := socket.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			l.mu.Lock()
			l.stats.Overflows++
			l.mu.Unlock()
			continue
		case err != nil:
			return fmt.Errorf("nfnetlink_log: %w", err)
		}
		now := time.Now()
		for _, m := range messages {
			if m.Header.Type == messagePacket {
				l.take(now, m.Data)
			}
		}
	}
}

// take takes the packet of a message.
func (l *Log) take(now time.Time, message []byte) {
	var m logged
	if len(message) >= nfnetlink.HeaderSize {
		found, err := nfnetlink.Attributes(message[nfnetlink.HeaderSize:], attributePrefix, attributePayload, attributeDevice)
		if err == nil {
			m = logged{nfnetlink.Text(found[0]), nfnetlink.Uint32(found[2]), found[1]}
		}
	}
	l.observe(now, m)
}
