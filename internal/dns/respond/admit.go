package respond

import (
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/zone"
)

var notAllowed = zone.EDE{Code: dnswire.EDEProhibited, Text: "this client may not ask for this name here"}

// admit applies access rules and the rate limit. done reports whether v is final:
// the query is refused, cut short or dropped.
func (w *Worker) admit(x *exchange) (v verdict, done bool) {
	if w.cfg.Rules != nil {
		switch w.cfg.Rules.Access(x.client.Addr, x.query.QName()) {
		case filter.Allow:
		case filter.Refuse:
			return verdict{outcome: refused, ede: &notAllowed}, true
		case filter.Drop:
			return verdict{outcome: dropped, cause: deniedAccess}, true
		}
	}
	// A good cookie, or a connection, proves the client's address.
	if w.cfg.Limiter == nil || x.client.Transport != UDP || x.cookie.good {
		return verdict{}, false
	}
	switch w.cfg.Limiter.Count(x.client.Addr, x.start) {
	case filter.Send:
		return verdict{}, false
	case filter.SendTruncated:
		return overLimit(x), true
	case filter.SendNothing:
	}
	return verdict{outcome: dropped, cause: overRate}, true
}

// overLimit is the verdict on a query over the rate limit that gets a response
// without records: a client with a real address comes back over TCP, or with a
// cookie (RFC 7873, section 5.2.3). A NOTIFY is dropped, because its sender takes
// any response for an acknowledgement.
func overLimit(x *exchange) verdict {
	switch {
	case x.query.Opcode == dnswire.OpcodeNotify:
		return verdict{outcome: dropped, cause: overRate}
	case x.cookie.present:
		return verdict{outcome: badCookie, cause: overRate}
	}
	return verdict{outcome: answered, truncated: true, cause: overRate}
}
