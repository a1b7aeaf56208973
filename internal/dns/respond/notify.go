package respond

import (
	"net/netip"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// NotifyHandler takes NOTIFY messages about zones that this server is a secondary
// of (RFC 1996); *secondary.Replica does.
type NotifyHandler interface {
	// Key gives the key of that name; nil when there is none.
	Key(name dnsname.Name) *dnswire.TSIGKey
	// Notify takes in a NOTIFY about a zone, given by its apex in lower-case wire
	// form without the root's closing zero octet, and tells whether who sent it
	// may; signed tells whether that has a key. It must not wait.
	Notify(apex []byte, from netip.Addr, signed Signed) (taken bool)
}

// Signed tells whether a message was signed with a key that is known.
type Signed bool

var notForUs = zone.EDE{Code: dnswire.EDEProhibited, Text: "this is no copy of a zone of yours"}

// notify answers a NOTIFY (RFC 1996, sections 3.7 and 3.12).
func (w *Worker) notify(x *exchange) {
	q := &w.query
	switch {
	case q.Type != dnswire.TypeSOA || q.Class != dnswire.ClassIN:
		x.outcome = malformed
	case w.cfg.NotifyHandler.Notify(q.QName(), x.client.Addr, x.signature.exchange != nil):
		x.outcome, x.ours = answered, true
	default:
		x.outcome, x.why = refused, &notForUs
	}
}
