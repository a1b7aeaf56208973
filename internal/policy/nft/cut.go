package nft

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/policy/ruleset"
)

// CutTime is how long the kernel drops packets of a flow that was cut: longer than an end of a TCP
// connection sends its data again (ip-sysctl, tcp_retries2: 924.6 s).
const CutTime = 20 * time.Minute

// MaxCut is how many flows of a family are cut at most. The kernel has two elements for each, which take
// 210 octets with IPv4 and 270 with IPv6 (Linux 6.18), of the memory limit of the agent.
const MaxCut = 1 << 16

// ErrCutFull is wrapped by Cut's error if that many flows are cut.
var ErrCutFull = errors.New("no more flows can be cut")

// cutShape returns the declaration of the set of flows that may not go on: their addresses, protocol and
// ports.
func (f *family) cutShape() shape {
	s := shape{flags: flagTimeout, keySize: 2*f.size + 3*4, most: 2 * MaxCut}
	for _, t := range []uint32{f.magic, f.magic, typeProtocol, typePort, typePort} {
		s.keyType = s.keyType<<typeBits | t
	}
	return s
}

// cutElements returns the elements of a flow, in both directions.
func cutElements(f ruleset.Flow) (family *family, both []element) {
	for _, ends := range [][2]netip.AddrPort{{f.Client, f.Server}, {f.Server, f.Client}} {
		key := append(ends[0].Addr().AsSlice(), ends[1].Addr().AsSlice()...)
		key = append(key, byte(f.Protocol), 0, 0, 0)
		for _, end := range ends {
			key = append(binary.BigEndian.AppendUint16(key, end.Port()), 0, 0)
		}
		both = append(both, element{key: string(key), timeout: CutTime, expires: CutTime})
	}
	return familyOf(f.Client.Addr()), both
}
