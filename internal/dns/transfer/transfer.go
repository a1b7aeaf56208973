// Package transfer sends zones to other servers: whole (AXFR, RFC 5936), or what
// changed in them (IXFR, RFC 1995), to those that may have them, and tells them
// of changes (NOTIFY, RFC 1996). Queries, answers and notices are signed with
// TSIG (RFC 8945) where a key is asked for.
package transfer

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
)

// Data are the zones; *zone.DB is one.
type Data interface {
	// SOAs are those of all zones now, Transferable of those that are loaded.
	SOAs() []dnswire.SOA
	Transferable() []dnswire.SOA
	// Moment is a zone now, Since what changed in it since a serial.
	Version(apex dnsname.Name) (*zone.Version, error)
	Since(apex dnsname.Name, serial uint32) (*zone.Difference, error)
}

// Config is what a Sender is made from.
type Config struct {
	Data Data
	// Rules say who may have the zones: those for whom one of them holds.
	Permissions []Permission
	Keys        []KeyFile
	// MaxTransfers is how many transfers of whole zones, or of several messages,
	// are under way at once; others wait.
	MaxTransfers int
	// MaxSize bounds the messages that are kept for transfers, and those that are
	// about to be made, in octets; those of one may be more.
	MaxSize int64
	// UDPSize is what the server says it takes over UDP, in octets.
	UDPSize uint16
	// Secondaries are who is told of changes; nil is nobody.
	Secondaries func() []netip.AddrPort
}

// Rule is some of those who may have the zones: all that it says must hold.
type Permission struct {
	Clients []netip.Prefix // all when empty
	// Key is the name of the key that signs queries; the root when none must.
	Key dnsname.Name
	// Certificate is a name that the client's certificate must be for; any
	// client when empty.
	Certificate string
}

// holds tells whether the rule does for who sent q.
func (r *Permission) holds(q *respond.TransferQuery) bool {
	switch {
	case len(r.Clients) > 0 && !r.covers(q.Client.Addr):
		return false
	case !r.Key.IsRoot() && r.Key != q.Key:
		return false
	case r.Certificate != "" && (q.Client.Certificate == nil || q.Client.Certificate.VerifyHostname(r.Certificate) != nil):
		return false
	}
	return true
}

func (r *Permission) covers(addr netip.Addr) bool {
	return len(r.Clients) == 0 || slices.ContainsFunc(r.Clients, func(p netip.Prefix) bool { return p.Contains(addr.Unmap()) })
}

// Sender sends zones.
type Sender struct {
	cfg     Config
	keys    atomic.Pointer[map[dnsname.Name]*dnswire.TSIGKey]
	images  images
	slots   chan struct{} // one taken by each transfer that MaxTransfers counts
	figures *Counters
	changed chan struct{} // of one
}

// New makes a Sender, which counts on where before, which may be nil, has. It
// fails when a key can't be read.
func New(cfg Config, before *Sender) (*Sender, error) {
	s := &Sender{cfg: cfg, slots: make(chan struct{}, cfg.MaxTransfers), figures: new(Counters), changed: make(chan struct{}, 1)}
	s.images = images{limit: cfg.MaxSize, all: make(map[imageKey]*image), latest: make(map[dnsname.Name]uint32)}
	if before != nil {
		s.figures = before.figures
	}
	keys, err := readKeys(cfg.Keys)
	if err != nil {
		return nil, err
	}
	s.keys.Store(&keys)
	return s, nil
}

// Key gives the key of that name; nil when there is none.
func (s *Sender) Key(name dnsname.Name) *dnswire.TSIGKey { return (*s.keys.Load())[name] }

var (
	notAllowed = zone.EDE{Code: dnswire.EDEProhibited, Text: "zone transfer is not allowed"}
	notHere    = zone.EDE{Code: dnswire.EDEProhibited, Text: "zones are transferred over TCP or TLS"}
	tooWide    = zone.EDE{Code: dnswire.EDEProhibited, Text: "the whole tree of reverse names is never transferred"}
	noZone     = zone.EDE{Code: dnswire.EDENotAuthoritative, Text: "no zone begins at this name here"}
	notReady   = zone.EDE{Code: dnswire.EDENotReady, Text: "the zone is not loaded yet, or is from a snapshot"}
	busy       = zone.EDE{Code: dnswire.EDEOther, Text: "too many transfers are under way"}
)

// Begin begins the transfer that q asks for, see respond.Transfers.
func (s *Sender) Begin(q *respond.TransferQuery) (respond.Messages, *respond.Refusal) {
	kind := kindOf(q)
	if refusal := s.refusal(q); refusal != nil {
		s.figures.count(kind, ResultRefused)
		return nil, refusal
	}
	if q.Client.Transport == respond.UDP {
		return nil, nil // RFC 1995, section 2: the SOA says whether to ask over TCP
	}
	i, err := s.imageFor(q, &kind)
	switch {
	case errors.Is(err, errBusy):
		s.figures.count(kind, ResultBusy)
		return nil, &respond.Refusal{RCode: dnswire.ServFail, Note: &busy}
	case err != nil:
		s.figures.count(kind, ResultNotReady)
		return nil, &respond.Refusal{RCode: dnswire.ServFail, Note: &notReady}
	case i == nil:
		s.figures.count(kind, ResultUpToDate)
		return nil, nil
	}
	return func(ctx context.Context) iter.Seq[[]byte] { return s.send(ctx, q, i, kind) }, nil
}

func kindOf(q *respond.TransferQuery) Kind {
	if q.Held != nil {
		return KindIXFR
	}
	return KindAXFR
}

// refusal says why q is refused; nil when it is not.
func (s *Sender) refusal(q *respond.TransferQuery) *respond.Refusal {
	switch {
	case !slices.ContainsFunc(s.cfg.Permissions, func(r Permission) bool { return r.holds(q) }):
		return &respond.Refusal{RCode: dnswire.Refused, Note: &notAllowed}
	case q.Client.Transport == respond.HTTPS, q.Client.Transport == respond.UDP && q.Type == dnswire.TypeAXFR:
		return &respond.Refusal{RCode: dnswire.Refused, Note: &notHere}
	case q.Zone == dnsname.ReverseIPv4, q.Zone == dnsname.ReverseIPv6:
		return &respond.Refusal{RCode: dnswire.Refused, Note: &tooWide}
	case s.soa(q.Zone) == nil:
		return &respond.Refusal{RCode: dnswire.NotAuth, Note: &noZone}
	}
	return nil
}

// soa is that of the zone now, nil when there is none.
func (s *Sender) soa(apex dnsname.Name) *dnswire.SOA {
	all := s.cfg.Data.SOAs()
	if i := slices.IndexFunc(all, func(soa dnswire.SOA) bool { return soa.Zone == apex }); i >= 0 {
		return &all[i]
	}
	return nil
}

// transferTime is how long a transfer may take from its turn on: who takes it in
// slowly does not keep others waiting forever. Replicas give up after as long.
const transferTime = 2 * time.Minute

// SlotTime is how long a transfer waits for its turn: less than replicas wait for a
// message, so that they are told that the server is busy.
const SlotTime = 3 * time.Second

// send yields the messages of i as the answer to q. Who does not take them in, or
// not in transferTime, ends it.
func (s *Sender) send(ctx context.Context, q *respond.TransferQuery, i *image, kind Kind) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		defer s.images.release(i)
		if i.key.whole || len(s.images.messagesOf(i)) > 1 {
			if !s.takeSlot(ctx) {
				s.figures.count(kind, ResultBusy)
				yield(sign(q, dnswire.NewTransferFailure(q.Repeats, q.Zone, q.Type)))
				return
			}
			defer func() { <-s.slots }()
		}
		ctx, cancel := context.WithTimeout(ctx, transferTime)
		defer cancel()
		var buf []byte
		for _, m := range s.images.messagesOf(i) {
			buf = sign(q, dnswire.AppendTransferReply(buf[:0], m, q.Repeats, s.cfg.UDPSize))
			if ctx.Err() != nil || !yield(buf) {
				s.figures.count(kind, ResultAborted)
				return
			}
			s.figures.octets.Add(uint64(len(buf)))
		}
		s.figures.count(kind, ResultDone)
	}
}

// sign signs the next message of the answer to q, where q was signed.
func sign(q *respond.TransferQuery, message []byte) []byte {
	if q.Exchange == nil {
		return message
	}
	return q.Exchange.Sign(message, time.Now())
}

// takeSlot waits for a transfer's turn.
func (s *Sender) takeSlot(ctx context.Context) bool {
	late := time.NewTimer(SlotTime)
	defer late.Stop()
	select {
	case s.slots <- struct{}{}:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}
