package announce

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"

	"portolan.dev/portolan/internal/network/announce/frame"
)

// Filters of the sockets: the process wakes for frames that matter to it only. Offsets are from the Ethernet header on.
const (
	arpOp                    = 14 + 6
	arpSender, arpTarget     = 14 + 14, 14 + 24
	messageMagic             = 14 + 28
	nextHeader, hopLimit     = 14 + 6, 14 + 7
	icmpType, neighborTarget = 14 + 40, 14 + 40 + 8

	opRequest, opReply = 1, 2

	protocolICMPv6             = 58
	typeSolicit, typeAdvertise = 135, 136

	// otherHost and higher are the types of packets that the host sends, and of those for others (packet(7)).
	otherHost = 3
	accept    = 1 << 16
	// maxFiltered is how many addresses a filter knows. With more, the process looks at all questions.
	maxFiltered = 500
)

// inbound drops frames that the host sends, and those for others.
func inbound() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: otherHost, SkipTrue: 1},
		bpf.RetConstant{},
	}
}

// want drops frames in which an integer at an offset has another value.
func want(offset uint32, size int, value uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offset, Size: size},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: 1},
		bpf.RetConstant{},
	}
}

// acceptOneOf accepts frames in which four octets at an offset are the last of one of some addresses; all, if there are
// too many.
func acceptOneOf(offset uint32, addrs []netip.Addr) []bpf.Instruction {
	if len(addrs) > maxFiltered {
		return []bpf.Instruction{bpf.RetConstant{Val: accept}}
	}
	out := []bpf.Instruction{bpf.LoadAbsolute{Off: offset, Size: 4}}
	for _, a := range addrs {
		octets := a.As16()
		out = append(out,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(octets[12:]), SkipFalse: 1},
			bpf.RetConstant{Val: accept},
		)
	}
	return out
}

func program(parts ...[]bpf.Instruction) (all []bpf.Instruction) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// addressFilter accepts ARP requests for some addresses of IPv4, and requests and replies of hosts that have one.
func addressFilter(addrs []netip.Addr) []bpf.Instruction {
	questions := acceptOneOf(arpTarget, addrs)
	return program(
		inbound(),
		[]bpf.Instruction{
			bpf.LoadAbsolute{Off: arpOp, Size: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: opRequest, SkipTrue: 3},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: opReply, SkipTrue: 1},
			bpf.RetConstant{},
			bpf.Jump{Skip: uint32(len(questions))},
		},
		questions, acceptOneOf(arpSender, addrs), []bpf.Instruction{bpf.RetConstant{}},
	)
}

// neighborFilter accepts Neighbor Solicitations and Advertisements for some addresses of IPv6. All packets of IPv6 go
// through it, so that it begins with what most of them differ in.
func neighborFilter(addrs []netip.Addr) []bpf.Instruction {
	return program(
		want(nextHeader, 1, protocolICMPv6),
		[]bpf.Instruction{
			bpf.LoadAbsolute{Off: icmpType, Size: 1},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: typeSolicit, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: typeAdvertise, SkipTrue: 1},
			bpf.RetConstant{},
		},
		want(hopLimit, 1, 255), inbound(), acceptOneOf(neighborTarget+12, addrs), []bpf.Instruction{bpf.RetConstant{}},
	)
}

// messageFilter accepts messages of agents.
func messageFilter() []bpf.Instruction {
	return program(
		want(arpOp, 2, frame.OpAgents), inbound(), want(messageMagic, 4, frame.Magic),
		[]bpf.Instruction{bpf.RetConstant{Val: accept}},
	)
}
