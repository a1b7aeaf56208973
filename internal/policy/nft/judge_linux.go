package nft

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

// Exists reports whether the kernel has a table with a name; empty is DefaultName. Its error wraps
// fs.ErrPermission without the capability NET_ADMIN.
func Exists(name string) (bool, error) {
	name = cmp.Or(name, DefaultName)
	socket, err := dial()
	if err != nil {
		return false, tableError(name, err)
	}
	defer socket.Close()
	exists, _, err := (&reader{socket: socket, table: name}).tableFlags()
	if err != nil {
		return false, tableError(name, err)
	}
	return exists, nil
}

// Judge returns the verdict of the rules that the kernel has in the table with a name, whoever made them,
// about the first packet of a flow in one direction: for Ingress of its destination, for Egress of its
// source. It reads the rules on the packet's way and single elements, and changes nothing. The Chain of a
// Denial is empty as that of ruleset.Judge is. Its error wraps fs.ErrNotExist if there is no table,
// fs.ErrPermission without the capability NET_ADMIN, and errors.ErrUnsupported if a rule by another program
// has an expression that this table never has.
func Judge(name string, d ruleset.Direction, p ruleset.Packet) (v ruleset.Verdict, err error) {
	name = cmp.Or(name, DefaultName)
	socket, err := dial()
	if err != nil {
		return v, tableError(name, err)
	}
	defer socket.Close()
	v, err = judgeWhole(reader{socket: socket, table: name}, d, p)
	if err != nil {
		return v, tableError(name, err)
	}
	return v, nil
}

// maxJudgements is how often a packet is judged while others change the kernel's tables.
const maxJudgements = 20

// judgeWhole judges a packet by the rules of one moment.
func judgeWhole(r reader, d ruleset.Direction, p ruleset.Packet) (v ruleset.Verdict, err error) {
	before, err := nfnetlink.Generation(r.socket)
	for range maxJudgements {
		if err != nil {
			break
		}
		j := &judge{reader: r, direction: d, packet: p, family: familyOf(p.Source)}
		if err := j.judge(); err != nil {
			return v, err
		}
		var after uint32
		if after, err = nfnetlink.Generation(r.socket); err == nil && after == before {
			return j.verdict, nil
		}
		before = after
	}
	return v, cmp.Or(err, nfnetlink.ErrInterrupted)
}

// judge is a packet on its way through the rules of the kernel.
type judge struct {
	reader
	direction ruleset.Direction
	packet    ruleset.Packet
	family    *family
	sets      map[string]shape
	// registers are those of a rule (linux/netfilter/nf_tables.h, enum nft_registers).
	registers [unix.NFT_REG32_COUNT * wordSize]byte
	// resolved is how much longer the element of a set of kind Resolved is there that a rule looked up.
	resolved time.Duration
	// logged is what the last rule of the chain that logs says.
	logged  Prefix
	verdict ruleset.Verdict
}

// wordSize is the size of a register in octets.
const wordSize = unix.NFT_REG32_SIZE

// end is a verdict that ends the evaluation of a base chain, or goes on.
type end uint8

const (
	goesOn end = iota
	accepts
	drops
)

// judge evaluates the base chain of the packet, less what is about the other direction. If packets do not
// come by it, they pass.
func (j *judge) judge() error {
	k := kernel{sets: make(map[string]shape), chains: make(map[string]baseChain)}
	exists, flags, err := j.tableFlags()
	if err == nil && !exists {
		err = fs.ErrNotExist
	}
	if err == nil {
		err = errors.Join(j.readSets(&k), j.readChains(&k))
	}
	if err != nil {
		return err
	}
	j.sets = k.sets
	name, hook := chainForward, uint32(unix.NF_INET_FORWARD)
	if j.packet.ToNode {
		name, hook = chainInput, unix.NF_INET_LOCAL_IN
	}
	base := k.chains[name]
	j.verdict.Allowed = true
	if flags != 0 || base == (baseChain{}) || base.hook != hook { // dormant, or without a hook
		return nil
	}
	result, err := j.chain(name)
	switch {
	case err != nil:
		return err
	case result == drops:
		j.verdict.Allowed = false
	case result == goesOn && base.policy == uint32(expr.VerdictDrop):
		j.deny(name, "the policy of the chain")
	}
	return nil
}

// deny enters a rule of a chain that drops the packet.
func (j *judge) deny(chain, reason string) {
	j.verdict.Allowed, j.verdict.Resolved = false, 0
	j.verdict.Denial = ruleset.Denial{Direction: j.direction, Chain: chain, Reason: reason}
}

// chain evaluates the rules of a chain.
func (j *judge) chain(name string) (end, error) {
	rules, err := j.rules(name)
	if err != nil {
		return goesOn, err
	}
	j.logged = Prefix{}
	for _, rule := range rules {
		v, err := j.rule(rule)
		if err != nil {
			return goesOn, fmt.Errorf("chain %s: %w", name, err)
		}
		switch v.Kind {
		case expr.VerdictContinue, expr.VerdictBreak:
		case expr.VerdictReturn:
			return goesOn, nil
		case expr.VerdictAccept:
			return accepts, nil
		case expr.VerdictDrop:
			j.dropped(name)
			return drops, nil
		case expr.VerdictGoto:
			if j.isOther(v.Chain) {
				return accepts, nil
			}
			return j.chain(v.Chain)
		case expr.VerdictJump:
			if j.isOther(v.Chain) {
				continue
			}
			if result, err := j.chain(v.Chain); err != nil || result != goesOn {
				return result, err
			}
		default:
			return goesOn, fmt.Errorf("%w: verdict %d", errors.ErrUnsupported, v.Kind)
		}
	}
	return goesOn, nil
}

// isOther reports whether a chain is that of the other direction.
func (j *judge) isOther(chain string) bool {
	if j.direction == ruleset.Ingress {
		return chain == chainEgress
	}
	return chain == chainIngress
}

// dropped enters the rule of a chain that drops the packet, by what the one before it logs.
func (j *judge) dropped(chain string) {
	switch p := j.logged; {
	case p == (Prefix{}):
		j.deny(chain, "")
	case p.Event == Unknown, p.Event == Forged:
		j.deny("", p.Reason)
	default:
		j.deny(p.Chain, p.Reason)
	}
}

// rules returns the expressions of each rule of a chain.
func (j *judge) rules(chain string) (all [][]byte, err error) {
	request := nfnetlink.Request{Family: unix.NFPROTO_INET, What: unix.NFT_MSG_GETRULE}
	request.Selection = nfnetlink.AppendString(nil, unix.NFTA_RULE_TABLE, j.table)
	request.Selection = nfnetlink.AppendString(request.Selection, unix.NFTA_RULE_CHAIN, chain)
	listed, err := nfnetlink.List(j.socket, request)
	if err != nil {
		return nil, err
	}
	for _, data := range listed {
		parts, err := nfnetlink.Attributes(data, unix.NFTA_RULE_EXPRESSIONS)
		if err != nil {
			return nil, err
		}
		all = append(all, parts[0])
	}
	return all, nil
}

// errNoMatch ends the evaluation of a rule that the packet does not match.
var errNoMatch = errors.New("the packet does not match")

// passing are the verdicts of rules that let a packet pass their direction.
var passing = []expr.VerdictKind{expr.VerdictAccept, expr.VerdictReturn, expr.VerdictGoto}

// rule evaluates a rule, and returns its verdict; that to continue if it has none, or does not match.
func (j *judge) rule(expressions []byte) (v expr.Verdict, err error) {
	v.Kind = expr.VerdictContinue
	j.registers, j.resolved = [len(j.registers)]byte{}, 0
	err = eachExpression(expressions, func(name string, data []byte) (err error) {
		v, err = j.expression(name, data)
		return err
	})
	if errors.Is(err, errNoMatch) {
		return expr.Verdict{Kind: expr.VerdictContinue}, nil
	}
	if j.resolved > 0 && slices.Contains(passing, v.Kind) {
		j.verdict.Resolved = j.resolved
	}
	return v, err
}

// expression evaluates an expression. It returns a verdict, that to continue for all but the last of a
// rule, or errNoMatch.
func (j *judge) expression(name string, data []byte) (v expr.Verdict, err error) {
	v.Kind = expr.VerdictContinue
	read := func(e expr.Any) bool {
		err = expr.Unmarshal(unix.NFPROTO_INET, data, e)
		return err == nil
	}
	var (
		meta    expr.Meta
		ct      expr.Ct
		payload expr.Payload
		bitwise expr.Bitwise
		compare expr.Cmp
		within  expr.Range
		lookup  expr.Lookup
	)
	switch name {
	case "counter", "limit": // a packet for each question is under any limit
	case "log":
		prefix, err := nfnetlink.Attributes(data, unix.NFTA_LOG_PREFIX)
		if err != nil {
			return v, err
		}
		j.log(nfnetlink.Text(prefix[0]))
	case "immediate":
		return j.immediate(data)
	case "meta":
		if read(&meta) {
			err = j.load(meta.Register, j.meta(&meta))
		}
	case "ct":
		if read(&ct) {
			err = j.load(ct.Register, j.tracked(&ct))
		}
	case "payload":
		if read(&payload) {
			err = j.load(payload.DestRegister, j.octets(&payload))
		}
	case "bitwise":
		if read(&bitwise) {
			err = j.mask(&bitwise)
		}
	case "cmp":
		if read(&compare) {
			err = j.compare(&compare)
		}
	case "range":
		if read(&within) {
			err = j.within(&within)
		}
	case "lookup":
		if read(&lookup) {
			return j.lookup(&lookup)
		}
	default:
		err = fmt.Errorf("%w: expression %s", errors.ErrUnsupported, name)
	}
	return v, err
}

// log notes what a rule logs.
func (j *judge) log(prefix string) {
	p, ok := ParsePrefix(prefix)
	switch {
	case !ok:
	case p.Event == Audited:
		denial := ruleset.Denial{Direction: p.Direction, Chain: p.Chain, Reason: p.Reason}
		j.verdict.Reports = append(j.verdict.Reports, denial)
	default:
		j.logged = p
	}
}

// register returns n octets of registers from one on.
func (j *judge) register(number, n uint32) ([]byte, error) {
	word := number - unix.NFT_REG32_00
	if number <= unix.NFT_REG_4 {
		word = (number - unix.NFT_REG_1) * unix.NFT_REG_SIZE / wordSize
	}
	if word >= unix.NFT_REG32_COUNT || word*wordSize+n > uint32(len(j.registers)) {
		return nil, fmt.Errorf("%w: %d octets of register %d", errors.ErrUnsupported, n, number)
	}
	return j.registers[word*wordSize:][:n], nil
}

// load loads what a packet has, filled up with zeros to whole words; nil is what is not known of it, and
// what no rule of the table loads.
func (j *judge) load(register uint32, data []byte) error {
	if data == nil {
		return errors.ErrUnsupported
	}
	to, err := j.register(register, (uint32(len(data))+wordSize-1)/wordSize*wordSize)
	if err != nil {
		return err
	}
	clear(to)
	copy(to, data)
	return nil
}

// otherDevice is the index of a device that is not lo.
const otherDevice = 1 << 20

// meta returns what a packet's metadata are.
func (j *judge) meta(e *expr.Meta) []byte {
	switch {
	case e.SourceRegister: // it sets them
	case e.Key == expr.MetaKeyNFPROTO:
		return []byte{j.family.nfproto}
	case e.Key == expr.MetaKeyL4PROTO:
		return []byte{byte(j.packet.Protocol)}
	case e.Key == expr.MetaKeyOIF && j.packet.ToNode:
		return native(0)
	case e.Key == expr.MetaKeyIIF && j.packet.Device != 0:
		return native(j.packet.Device)
	case e.Key == expr.MetaKeyOIF || e.Key == expr.MetaKeyIIF:
		return native(otherDevice)
	}
	return nil
}

// tracked returns what connection tracking has of the first packet of a flow.
func (j *judge) tracked(e *expr.Ct) []byte {
	const isNew = 1 << 3 // NF_CT_STATE_BIT(IP_CT_NEW)
	if e.Key != expr.CtKeySTATE || e.SourceRegister {
		return nil
	}
	return native(isNew)
}

// octets returns what a packet has at a place: none at that of a port if it is of a protocol without. The
// source port is 0, which no flow has, so that none that was cut is the packet's.
func (j *judge) octets(e *expr.Payload) []byte {
	f := j.family
	switch {
	case e.OperationType == expr.PayloadWrite:
	case e.Base == expr.PayloadBaseNetworkHeader && e.Offset == f.source && e.Len == f.size:
		return j.packet.Source.AsSlice()
	case e.Base == expr.PayloadBaseNetworkHeader && e.Offset == f.source+f.size && e.Len == f.size:
		return j.packet.Destination.AsSlice()
	case e.Base != expr.PayloadBaseTransportHeader || e.Len > 2:
	case e.Offset == 0:
		return make([]byte, e.Len)
	case e.Offset == 2 && e.Len == 2:
		return binary.BigEndian.AppendUint16(nil, j.packet.DestinationPort)
	}
	return nil
}

func (j *judge) mask(e *expr.Bitwise) error {
	from, err := j.register(e.SourceRegister, e.Len)
	if err != nil || len(e.Mask) < len(from) || len(e.Xor) < len(from) {
		return errors.Join(err, errors.ErrUnsupported)
	}
	data := bytes.Clone(from)
	for i := range data {
		data[i] = data[i]&e.Mask[i] ^ e.Xor[i]
	}
	return j.load(e.DestRegister, data)
}

func (j *judge) compare(e *expr.Cmp) error {
	is, err := j.register(e.Register, uint32(len(e.Data)))
	if err != nil {
		return err
	}
	c := bytes.Compare(is, e.Data)
	matches := map[expr.CmpOp]bool{
		expr.CmpOpEq: c == 0, expr.CmpOpNeq: c != 0, expr.CmpOpLt: c < 0, expr.CmpOpLte: c <= 0,
		expr.CmpOpGt: c > 0, expr.CmpOpGte: c >= 0,
	}
	if !matches[e.Op] {
		return errNoMatch
	}
	return nil
}

func (j *judge) within(e *expr.Range) error {
	is, err := j.register(e.Register, uint32(len(e.FromData)))
	if err != nil {
		return err
	}
	inside := bytes.Compare(is, e.FromData) >= 0 && bytes.Compare(is, e.ToData) <= 0
	if inside != (e.Op == expr.CmpOpEq) {
		return errNoMatch
	}
	return nil
}

// lookup looks an element up, in a map for its verdict.
func (j *judge) lookup(e *expr.Lookup) (v expr.Verdict, err error) {
	v.Kind = expr.VerdictContinue
	set := j.sets[e.SetName]
	if e.IsDestRegSet && !set.isMap {
		return v, fmt.Errorf("%w: map %s", errors.ErrUnsupported, e.SetName)
	}
	key, err := j.register(e.SourceRegister, set.keySize)
	if err != nil {
		return v, err
	}
	at := nfnetlink.Key{Family: unix.NFPROTO_INET, Table: j.table, Set: e.SetName, Value: string(key)}
	found, err := nfnetlink.Find(j.socket, at, func(data []byte) error {
		parts, err := nfnetlink.Attributes(data, unix.NFTA_SET_ELEM_DATA, unix.NFTA_SET_ELEM_EXPIRATION)
		if err == nil && len(parts[1]) == 8 { // milliseconds
			j.resolved = time.Duration(binary.BigEndian.Uint64(parts[1])) * time.Millisecond
		}
		if err == nil && e.IsDestRegSet {
			v, err = verdictOf(parts[0])
		}
		return err
	})
	if err == nil && found == e.Invert {
		err = errNoMatch
	}
	return v, err
}

// immediate returns a verdict.
func (j *judge) immediate(data []byte) (v expr.Verdict, err error) {
	v.Kind = expr.VerdictContinue
	parts, err := nfnetlink.Attributes(data, unix.NFTA_IMMEDIATE_DREG, unix.NFTA_IMMEDIATE_DATA)
	if err != nil {
		return v, err
	}
	if nfnetlink.Uint32(parts[0]) != unix.NFT_REG_VERDICT {
		return v, fmt.Errorf("%w: immediate value", errors.ErrUnsupported)
	}
	return verdictOf(parts[1])
}
