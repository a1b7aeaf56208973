//go:build linux

// Package ctnetlinktest makes entries of connection tracking for tests.
package ctnetlinktest

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Flow is an entry that a test makes, as if both sides had sent packets.
type Flow struct {
	Protocol            uint8
	Client, Destination netip.AddrPort
	// Replies is where replies come from.
	Replies netip.AddrPort
	Zone    uint16
}

// together is how many entries are made with one system call.
const together = 100

// The message, and attributes of entries (linux/netfilter/nfnetlink_conntrack.h).
const (
	msgNew = unix.NFNL_SUBSYS_CTNETLINK << 8

	attrOriginal, attrReply, attrStatus     = 1, 2, 3
	attrProtocolInfo, attrTimeout, attrZone = 4, 7, 18

	tupleIP, tupleProtocol = 1, 2
	ipv4Source, ipv6Source = 1, 3

	protocolNumber, protocolSourcePort, protocolDestinationPort = 1, 2, 3

	infoTCP, stateTCP, established        = 1, 1, 3
	seenReply, assured, confirmed  uint32 = 1 << 1, 1 << 2, 1 << 3
)

// lifetime is how long entries hold without packets.
const lifetime = time.Hour

// Create makes entries in the network namespace of the calling thread.
func Create(all ...Flow) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	for len(all) > 0 {
		n := min(len(all), together)
		messages := make([]netlink.Message, 0, n)
		for i, f := range all[:n] {
			m, err := f.message()
			if err != nil {
				return err
			}
			if i == n-1 {
				m.Header.Flags |= netlink.Acknowledge
			}
			messages = append(messages, m)
		}
		if _, err := conn.SendMessages(messages); err != nil {
			return err
		}
		if _, err := conn.Receive(); err != nil { // the first error, or the acknowledgement
			return err
		}
		all = all[n:]
	}
	return nil
}

func (f *Flow) message() (netlink.Message, error) {
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	e.Nested(attrOriginal, f.tuple(f.Client, f.Destination))
	e.Nested(attrReply, f.tuple(f.Replies, f.Client))
	e.Uint32(attrStatus, seenReply|assured|confirmed)
	e.Uint32(attrTimeout, uint32(lifetime.Seconds()))
	if f.Protocol == unix.IPPROTO_TCP {
		e.Nested(attrProtocolInfo, func(e *netlink.AttributeEncoder) error {
			e.Nested(infoTCP, func(e *netlink.AttributeEncoder) error {
				e.Uint8(stateTCP, established)
				return nil
			})
			return nil
		})
	}
	if f.Zone != 0 {
		e.Uint16(attrZone, f.Zone)
	}
	attributes, err := e.Encode()
	family := byte(unix.AF_INET)
	if f.Client.Addr().Is6() {
		family = unix.AF_INET6
	}
	return netlink.Message{
		Header: netlink.Header{Type: msgNew, Flags: netlink.Request | netlink.Create},
		Data:   append([]byte{family, unix.NFNETLINK_V0, 0, 0}, attributes...),
	}, err
}

func (f *Flow) tuple(source, destination netip.AddrPort) func(*netlink.AttributeEncoder) error {
	return func(e *netlink.AttributeEncoder) error {
		first := uint16(ipv4Source)
		if source.Addr().Is6() {
			first = ipv6Source
		}
		e.Nested(tupleIP, func(e *netlink.AttributeEncoder) error {
			e.Bytes(first, source.Addr().AsSlice())
			e.Bytes(first+1, destination.Addr().AsSlice())
			return nil
		})
		e.Nested(tupleProtocol, func(e *netlink.AttributeEncoder) error {
			e.Uint8(protocolNumber, f.Protocol)
			e.Uint16(protocolSourcePort, source.Port())
			e.Uint16(protocolDestinationPort, destination.Port())
			return nil
		})
		return nil
	}
}
