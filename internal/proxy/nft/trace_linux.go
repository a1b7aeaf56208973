package nft

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

const (
	// tracePrefix begins the names of tables of Trace; the port ID of the socket follows.
	tracePrefix = "portolan-trace-"
	// firstPriority is that of the chains that see packets first: after fragments were joined, and
	// before the chains raw (linux/netfilter_ipv4.h, enum nf_ip_hook_priorities).
	firstPriority = -350
	// lastPriority is that of the chains that see them last: after source NAT.
	lastPriority = 350
	// traceRate is how many packets of each kind are traced in a second.
	traceRate = 20
	// traceBuffer is the size of the socket's buffer for events.
	traceBuffer = 4 << 20
)

// Trace has the kernel trace packets, and reports each event until ctx is done. It returns nil
// then. Its rules are in a table of its own, which the kernel removes with the process. It needs
// Linux 5.12; its error wraps fs.ErrPermission without the capability NET_ADMIN.
func Trace(ctx context.Context, cfg TraceConfig) error {
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer socket.Close()
	_ = socket.SetReadBuffer(traceBuffer) // without the right, more is lost
	if err := socket.JoinGroup(unix.NFNLGRP_NFTRACE); err != nil {
		return fmt.Errorf("netlink: %w", nfnetlink.ErrnoOf(err))
	}
	t := New(Config{})
	defer t.Close()
	if err := t.open(); err != nil {
		return err
	}
	port, err := nfnetlink.PortOf(t.socket)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	t.cfg.Name = fmt.Sprint(tracePrefix, port)
	for _, of := range []Family{IPv4, IPv6} {
		if err := t.createTrace(of, &cfg); err != nil {
			return tableError(fmt.Sprint(of, " ", t.cfg.Name), err)
		}
	}
	cfg.Started()
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	for {
		messages, err := socket.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			cfg.Lost()
			continue
		case err != nil:
			return fmt.Errorf("netlink: %w", nfnetlink.ErrnoOf(err))
		}
		for _, m := range messages {
			if m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE {
				continue
			}
			e, err := parseTrace(m.Data, t.cfg.Name)
			if err != nil {
				return fmt.Errorf("an event of a packet: %w", err)
			}
			cfg.Each(e)
		}
	}
}

// createTrace creates the table of a family, unless no packet of the family is traced.
//
//	chain prerouting {
//		type filter hook prerouting priority -350
//		ip saddr EXCEPTED accept
//		iifname != "lo" ip saddr SOURCE ip daddr . meta l4proto . th dport TO limit rate 20/second meta nftrace set 1
//	}
//	chain output { the last rules, unless sources are excepted }
//	chain input { type filter hook input priority 350 }
//	chain postrouting { type filter hook postrouting priority 350 }
func (t *Table) createTrace(of Family, cfg *TraceConfig) error {
	l := t.layout(of)
	rules := l.traceRules(cfg)
	if len(rules) == 0 {
		return nil
	}
	b := batch{name: t.cfg.Name}
	b.addTable(of, flagOwner)
	if err := b.Commit(t.socket); err != nil {
		return err
	}
	base := func(name string, hook *nftables.ChainHook, priority nftables.ChainPriority, rules [][]expr.Any) chain {
		return chain{name: name, rules: rules, base: &nftables.Chain{
			Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: new(priority),
		}}
	}
	var arriving [][]expr.Any
	for _, p := range cfg.Except {
		if FamilyOf(p.Addr()) == of {
			arriving = append(arriving, append(l.saddr(p, expr.CmpOpEq), &expr.Verdict{Kind: expr.VerdictAccept}))
		}
	}
	if len(cfg.Sources) > 0 {
		loopback := append([]byte("lo"), make([]byte, unix.IFNAMSIZ-2)...)
		for _, r := range rules {
			arriving = append(arriving, append(iif(loopback, expr.CmpOpNeq), r...))
		}
	}
	if len(cfg.Except) > 0 {
		rules = nil
	}
	t.addChains(&l, []chain{
		base(hookInput, nftables.ChainHookInput, lastPriority, nil),
		base(hookPostrouting, nftables.ChainHookPostrouting, lastPriority, nil),
		base(hookPrerouting, nftables.ChainHookPrerouting, firstPriority, arriving),
		base(hookOutput, nftables.ChainHookOutput, firstPriority, rules),
	}, nil)
	return t.flush()
}

// traceRules returns the rules that have packets traced.
func (l *layout) traceRules(cfg *TraceConfig) (rules [][]expr.Any) {
	var from, to [][]expr.Any // conditions, one of which a packet meets
	for _, p := range cfg.Sources {
		if FamilyOf(p.Addr()) == l.family {
			from = append(from, l.saddr(p, expr.CmpOpEq))
		}
	}
	if len(cfg.Sources) == 0 {
		from = [][]expr.Any{nil}
	}
	for _, a := range cfg.To {
		if FamilyOf(a.Addr) == l.family {
			to = append(to, l.destinationIs(a))
		}
	}
	if len(cfg.To) == 0 {
		to = [][]expr.Any{nil}
	}
	kinds := [][]expr.Any{nil}
	if !cfg.All {
		kinds = [][]expr.Any{opensTCP(), {
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		}}
	}
	follow := []expr.Any{
		&expr.Limit{Type: expr.LimitTypePkts, Rate: traceRate, Unit: expr.LimitTimeSecond, Burst: traceRate},
		&expr.Immediate{Register: 1, Data: []byte{1}},
		&expr.Meta{Key: expr.MetaKeyNFTRACE, Register: 1, SourceRegister: true},
	}
	for _, f := range from {
		for _, t := range to {
			for _, k := range kinds {
				rules = append(rules, slices.Concat(f, t, k, follow))
			}
		}
	}
	return rules
}

// destinationIs is the condition that a packet is sent to an address.
func (l *layout) destinationIs(a frontend.Address) []expr.Any {
	to := append(l.daddr(), &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: a.Addr.AsSlice()})
	if a.Port == 0 {
		return to
	}
	return append(
		to,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(a.Protocol)}},
		dport(1),
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, a.Port)},
	)
}

// Flags of TCP and their octet in the header (RFC 9293, section 3.1).
const (
	tcpFlagsOffset = 13
	tcpSYN, tcpACK = 1 << 1, 1 << 4
)

// opensTCP is the condition that a packet opens a TCP connection.
func opensTCP() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: tcpFlagsOffset, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{tcpSYN | tcpACK}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{tcpSYN}},
	}
}

// parseTrace parses a message of NFNLGRP_NFTRACE, given the name of the tables that trace.
func parseTrace(message []byte, own string) (e TraceEvent, err error) {
	if len(message) < 4 {
		return e, errors.New("short message")
	}
	const (
		table = iota
		chain
		rule
		verdict
		id
		network
		transport
		in
		out
		policy
	)
	parts, err := nfnetlink.Attributes(
		message[4:], unix.NFTA_TRACE_TABLE, unix.NFTA_TRACE_CHAIN, unix.NFTA_TRACE_RULE_HANDLE, unix.NFTA_TRACE_VERDICT,
		unix.NFTA_TRACE_ID, unix.NFTA_TRACE_NETWORK_HEADER, unix.NFTA_TRACE_TRANSPORT_HEADER, unix.NFTA_TRACE_IIF,
		unix.NFTA_TRACE_OIF, unix.NFTA_TRACE_POLICY,
	)
	if err != nil {
		return e, err
	}
	name := nfnetlink.Text(parts[table])
	e = TraceEvent{
		Packet: uint32Of(parts[id]),
		Table:  familyName(message[0]) + " " + name,
		Chain:  nfnetlink.Text(parts[chain]),
	}
	if name == own {
		e.Hook = e.Chain
		e.Begins = e.Chain == hookPrerouting || e.Chain == hookOutput
		e.Ends = !e.Begins
	}
	if len(parts[rule]) == 8 {
		e.Rule = binary.BigEndian.Uint64(parts[rule])
	}
	if parts[policy] != nil {
		e.Verdict = verdictName(uint32Of(parts[policy]))
	}
	if parts[verdict] != nil {
		inner, err := nfnetlink.Attributes(parts[verdict], unix.NFTA_VERDICT_CODE, unix.NFTA_VERDICT_CHAIN)
		if err != nil {
			return e, err
		}
		e.Verdict, e.Target = verdictName(uint32Of(inner[0])), nfnetlink.Text(inner[1])
	}
	e.Headers = parseHeaders(parts[network], parts[transport])
	if e.Headers != nil {
		e.Headers.In, e.Headers.Out = interfaceName(parts[in]), interfaceName(parts[out])
	}
	return e, nil
}

// uint32Of returns a number in network byte order; 0 if it is not there.
func uint32Of(data []byte) uint32 {
	if len(data) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(data)
}

// familyName returns the name of a family of tables, as in nft.
func familyName(number uint8) string {
	switch number {
	case unix.NFPROTO_IPV4:
		return "ip"
	case unix.NFPROTO_IPV6:
		return "ip6"
	case unix.NFPROTO_INET:
		return "inet"
	case unix.NFPROTO_NETDEV:
		return "netdev"
	case unix.NFPROTO_BRIDGE:
		return "bridge"
	}
	return fmt.Sprint("family ", number)
}

// verdictName returns the name of a verdict, as in nft (linux/netfilter.h; linux/netfilter/nf_tables.h,
// enum nft_verdicts).
func verdictName(code uint32) string {
	names := map[int32]string{
		unix.NFT_CONTINUE: "continue", unix.NFT_BREAK: "break", unix.NFT_JUMP: "jump", unix.NFT_GOTO: "goto",
		unix.NFT_RETURN: "return", 0: "drop", 1: "accept", 2: "stolen", 3: "queue",
	}
	const mask = 0xff // of verdicts that are no nft_verdicts; above are numbers of queues and errors
	return cmp.Or(names[int32(code)], names[int32(code&mask)], fmt.Sprint("verdict ", code))
}

// interfaceName returns the name of the interface with an index; empty if there is none.
func interfaceName(index []byte) string {
	n := int(uint32Of(index))
	if n == 0 {
		return ""
	}
	i, err := net.InterfaceByIndex(n)
	if err != nil {
		return fmt.Sprint("interface ", n)
	}
	return i.Name
}

// parseHeaders parses the beginning of a packet (RFC 791, section 3.1; RFC 8200, section 3); nil
// if it has no addresses.
func parseHeaders(network, transport []byte) *TraceHeaders {
	var h TraceHeaders
	var source, destination netip.Addr
	switch {
	case len(network) >= 20 && network[0]>>4 == 4:
		h.Protocol = frontend.Protocol(network[9])
		source, destination = netip.AddrFrom4([4]byte(network[12:16])), netip.AddrFrom4([4]byte(network[16:20]))
	case len(network) >= 40 && network[0]>>4 == 6:
		h.Protocol = frontend.Protocol(network[6])
		source, destination = netip.AddrFrom16([16]byte(network[8:24])), netip.AddrFrom16([16]byte(network[24:40]))
	default:
		return nil
	}
	var ports [2]uint16
	hasPorts := slices.Contains([]frontend.Protocol{frontend.TCP, frontend.UDP, frontend.SCTP}, h.Protocol)
	if hasPorts && len(transport) >= 4 {
		ports = [2]uint16{binary.BigEndian.Uint16(transport), binary.BigEndian.Uint16(transport[2:])}
	}
	if h.Protocol == frontend.TCP && len(transport) > tcpFlagsOffset {
		h.Opens = transport[tcpFlagsOffset]&(tcpSYN|tcpACK) == tcpSYN
	}
	h.Source, h.Destination = netip.AddrPortFrom(source, ports[0]), netip.AddrPortFrom(destination, ports[1])
	return &h
}
