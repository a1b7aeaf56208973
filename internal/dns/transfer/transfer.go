// Package transfer serves zone transfers to secondaries that are permitted:
// whole zones (AXFR, RFC 5936) or differences (IXFR, RFC 1995). It notifies
// secondaries of changes (NOTIFY, RFC 1996). Queries, replies and NOTIFYs are
// signed with TSIG (RFC 8945) if a permission requires a key.
//
//	query -> permission -> image (shared messages) -> slot -> messages
//	zone changes -> Changed -> notifier -> NOTIFY -> secondary -> query
package transfer

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"slices"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
)

// Data provides the zones; *zone.DB implements it.
type Data interface {
	// SOAs returns the SOAs of all zones, Transferable those of the zones that
	// are loaded.
	SOAs() []dnswire.SOA
	Transferable() []dnswire.SOA
	// Version returns the present version of a zone, Since the changes in it
	// since a serial.
	Version(apex dnsname.Name) (*zone.Version, error)
	Since(apex dnsname.Name, serial uint32) (*zone.Difference, error)
}

// Config configures a Sender.
type Config struct {
	Data Data
	// Permissions say who may transfer zones: a client needs one of them.
	Permissions []Permission
	Keys        []KeyFile
	// MaxTransfers bounds the concurrent transfers of whole zones or of several
	// messages; further ones wait for SlotTime.
	MaxTransfers int
	// MaxSize bounds the memory for messages of transfers, in octets; a single
	// transfer may exceed it.
	MaxSize int64
	// UDPSize is the EDNS buffer size in replies, in octets.
	UDPSize uint16
	// Secondaries returns the servers to notify; nil means none.
	Secondaries func() []netip.AddrPort
}

// Permission allows clients to transfer zones. A client must meet all its
// conditions.
type Permission struct {
	Clients []netip.Prefix // all if empty
	// Key is the name of the key that must sign queries; the root means none.
	Key dnsname.Name
	// Certificate is a DNS name that the client's certificate must have; empty
	// means no condition.
	Certificate string
}

// permits reports whether the sender of q meets the conditions.
func (r *Permission) permits(q *respond.TransferQuery) bool {
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
	return len(r.Clients) == 0 ||
		slices.ContainsFunc(r.Clients, func(p netip.Prefix) bool { return p.Contains(addr.Unmap()) })
}

// Sender serves zone transfers and sends NOTIFYs. Its methods are safe for
// concurrent use.
type Sender struct {
	cfg      Config
	keyring  keyring
	images   images
	slots    chan struct{} // one per transfer that MaxTransfers counts
	counters *Counters
	changed  chan struct{} // capacity 1
}

// New returns a Sender that continues the counters of before, which may be nil.
// It fails if a key cannot be read.
func New(cfg Config, before *Sender) (*Sender, error) {
	s := &Sender{
		cfg:      cfg,
		slots:    make(chan struct{}, cfg.MaxTransfers),
		counters: new(Counters),
		changed:  make(chan struct{}, 1),
	}
	s.images = images{limit: cfg.MaxSize, all: make(map[imageKey]*image), latest: make(map[dnsname.Name]uint32)}
	var known *keyring
	if before != nil {
		s.counters, known = before.counters, &before.keyring
	}
	if err := s.keyring.open(cfg.Keys, known); err != nil {
		return nil, err
	}
	return s, nil
}

// Key returns the key with that name; nil if there is none.
func (s *Sender) Key(name dnsname.Name) *dnswire.TSIGKey { return s.keyring.key(name) }

var (
	notAllowed = zone.EDE{Code: dnswire.EDEProhibited, Text: "zone transfer is not allowed"}
	notHere    = zone.EDE{Code: dnswire.EDEProhibited, Text: "zones are transferred over TCP or TLS"}
	tooWide    = zone.EDE{Code: dnswire.EDEProhibited, Text: "the whole tree of reverse names is never transferred"}
	noZone     = zone.EDE{Code: dnswire.EDENotAuthoritative, Text: "this name is not the apex of a zone of this server"}
	notReady   = zone.EDE{Code: dnswire.EDENotReady, Text: "the zone is not loaded yet, or is from a snapshot"}
	busy       = zone.EDE{Code: dnswire.EDEOther, Text: "too many transfers are in progress"}
)

// Begin begins the transfer that q requests, see respond.Transfers.
func (s *Sender) Begin(q *respond.TransferQuery) (respond.Messages, *respond.Refusal) {
	kind := kindOf(q)
	if refusal := s.refusal(q); refusal != nil {
		s.counters.count(kind, ResultRefused)
		return nil, refusal
	}
	if q.Client.Transport == respond.UDP {
		return nil, nil // RFC 1995, section 2: the client compares the SOA and retries over TCP
	}
	i, err := s.imageFor(q, &kind)
	switch {
	case errors.Is(err, errBusy):
		s.counters.count(kind, ResultBusy)
		return nil, &respond.Refusal{RCode: dnswire.ServFail, Note: &busy}
	case err != nil:
		s.counters.count(kind, ResultNotReady)
		return nil, &respond.Refusal{RCode: dnswire.ServFail, Note: &notReady}
	case i == nil:
		s.counters.count(kind, ResultUpToDate)
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

// refusal returns why q is refused; nil if it is not.
func (s *Sender) refusal(q *respond.TransferQuery) *respond.Refusal {
	switch {
	case !slices.ContainsFunc(s.cfg.Permissions, func(r Permission) bool { return r.permits(q) }):
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

// soa returns the present SOA of a zone, nil if there is none.
func (s *Sender) soa(apex dnsname.Name) *dnswire.SOA {
	all := s.cfg.Data.SOAs()
	if i := slices.IndexFunc(all, func(soa dnswire.SOA) bool { return soa.Zone == apex }); i >= 0 {
		return &all[i]
	}
	return nil
}

// transferTime bounds the duration of a transfer after it got its slot, so that
// slow clients do not block others. Secondaries give up after as long.
const transferTime = 2 * time.Minute

// SlotTime is how long a transfer waits for a slot. It is less than the time
// that a secondary waits for a message, so that the secondary learns that the
// server is busy.
const SlotTime = 3 * time.Second

// send yields the messages of i as the reply to q, until the client closes or
// transferTime has passed.
func (s *Sender) send(ctx context.Context, q *respond.TransferQuery, i *image, kind Kind) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		defer s.images.release(i)
		if i.key.whole || len(s.images.messagesOf(i)) > 1 {
			if !s.takeSlot(ctx) {
				s.counters.count(kind, ResultBusy)
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
				s.counters.count(kind, ResultAborted)
				return
			}
			s.counters.octets.Add(uint64(len(buf)))
		}
		s.counters.count(kind, ResultDone)
	}
}

// sign signs the next message of the reply to q, if q was signed.
func sign(q *respond.TransferQuery, message []byte) []byte {
	if q.Exchange == nil {
		return message
	}
	return q.Exchange.Sign(message, time.Now())
}

// takeSlot waits for a slot and reports whether it got one.
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
