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

// watch reports changes of a device and its addresses, see rtnetlink(7).
type watch struct {
	socket *nl.NetlinkSocket
	index  *atomic.Int32 // the index of the device
	events chan<- struct{}
}

func newWatch(index *atomic.Int32, events chan<- struct{}) (*watch, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return &watch{socket, index, events}, nil
}

// run sends an event for each change, until close or an error. Changes before an event is
// received are combined.
func (w *watch) run() error {
	for {
		messages, _, err := w.socket.Receive()
		lost := errors.Is(err, unix.ENOBUFS) // the kernel's buffer overflowed
		if err != nil && !lost && !errors.Is(err, unix.EINTR) {
			return err
		}
		if lost || w.isAboutDevice(messages) {
			select {
			case w.events <- struct{}{}:
			default:
			}
		}
	}
}

// isAboutDevice reports whether a message is about the device. Its index is at octet 4 of
// both struct ifinfomsg and struct ifaddrmsg.
func (w *watch) isAboutDevice(messages []syscall.NetlinkMessage) bool {
	for _, m := range messages {
		if len(m.Data) >= 8 && int32(binary.NativeEndian.Uint32(m.Data[4:])) == w.index.Load() {
			return true
		}
	}
	return false
}

func (w *watch) close() { w.socket.Close() }
