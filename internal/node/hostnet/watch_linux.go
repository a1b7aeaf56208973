package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// watch tells of changes of a device and its addresses, see rtnetlink(7).
type watch struct {
	socket *nl.NetlinkSocket
	index  *atomic.Int32 // the device's
	events chan<- struct{}
}

func newWatch(index *atomic.Int32, events chan<- struct{}) (*watch, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return &watch{socket, index, events}, nil
}

// run sends an event for what happens, until close or an error. Events that nobody
// took yet are one.
func (w *watch) run() error {
	for {
		messages, _, err := w.socket.Receive()
		lost := errors.Is(err, unix.ENOBUFS) // more happened than could wait
		if err != nil && !lost && !errors.Is(err, unix.EINTR) {
			return err
		}
		if lost || w.concerned(messages) {
			select {
			case w.events <- struct{}{}:
			default:
			}
		}
	}
}

// concerned tells whether a message is of the device. Its index is at octet 4 of
// both struct ifinfomsg and struct ifaddrmsg.
func (w *watch) concerned(messages []syscall.NetlinkMessage) bool {
	for _, m := range messages {
		if len(m.Data) >= 8 && int32(binary.NativeEndian.Uint32(m.Data[4:])) == w.index.Load() {
			return true
		}
	}
	return false
}

func (w *watch) close() { w.socket.Close() }
