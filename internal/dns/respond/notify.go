package respond

import (
	"net/netip"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// NotifyHandler takes NOTIFY messages about zones that this server is a secondary
// of (RFC 1996); *secondary.Secondary does.
type NotifyHandler interface {
	// Key returns the TSIG key of that name; nil when there is none.
	Key(name dnsname.Name) *dnswire.TSIGKey
	// Notify takes a NOTIFY about a zone, given by its apex in lower-case wire form
	// without the root's closing zero octet. accepted reports whether the sender is
	// a primary of the zone. Notify must not block.
	Notify(apex []byte, from netip.Addr, signed Signed) (accepted bool)
}

// Signed reports whether a message carries a good signature of a known key.
type Signed bool

var notPrimary = zone.EDE{Code: dnswire.EDEProhibited, Text: "this is no copy of a zone of yours"}

// notify answers a NOTIFY (RFC 1996, sections 3.7 and 3.12).
func (w *Worker) notify(x *exchange) verdict {
	q := x.query
	signed := Signed(x.signature != nil)
	switch {
	case q.Type != dnswire.TypeSOA || q.Class != dnswire.ClassIN:
		return verdict{outcome: malformed}
	case w.cfg.NotifyHandler.Notify(q.QName(), x.client.Addr, signed):
		return verdict{outcome: answered, authoritative: true}
	}
	return verdict{outcome: refused, ede: &notPrimary}
}
