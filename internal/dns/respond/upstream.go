package respond

import (
	"net/netip"
	"slices"
	"time"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/zone"
)

// Upstreams answer names outside the zones served here; *forward.Forwarder does.
type Upstreams interface {
	// Cached returns the cached reply to q, or its cached failure; nil when an
	// upstream has to be asked. routed reports whether there is one.
	Cached(q cache.Key, now time.Time) (e *cache.Entry, routed bool)
	// ForwardsSubnet reports whether queries for a name may carry the client's subnet.
	ForwardsSubnet(name []byte) bool
	// Reserve takes a place for a client's query among those that wait.
	Reserve(client netip.Addr, q cache.Key) *forward.Request
}

var suppressedType = zone.EDE{Code: dnswire.EDEFiltered, Text: "records of this type are not given for names outside"}

// suppresses reports whether a name that is outside the zones has no records of a
// type, by the rules.
func (w *Worker) suppresses(x *exchange, name []byte, t dnswire.Type) bool {
	return w.cfg.Rules != nil && w.cfg.Rules.Suppresses(x.client.Addr, name, t)
}

// suppressed is the verdict for a chain that ends at a name that has no records of the
// query's type, by the rules.
func (c *chain) suppressed() verdict {
	v := c.verdict(answered, &suppressedType)
	v.authoritative = c.isOurs()
	return v
}

var malformedSubnet = zone.EDE{Code: dnswire.EDEOther, Text: "the client subnet option is malformed"}

// upstreamReply is what upstreams replied, and when.
type upstreamReply struct {
	key   cache.Key
	entry *cache.Entry
	at    time.Time
}

// isRefused reports whether upstreams were not asked because too many queries were waiting.
func (r upstreamReply) isRefused() bool { return forward.IsRefused(r.entry) }

// isSame reports whether two upstream questions of one query are the same.
func isSame(a, b cache.Key) bool {
	return a.Type == b.Type && string(a.Name) == string(b.Name) && string(a.Search) == string(b.Search)
}

// isForwarded reports whether upstreams may know more than the zones' answer a:
// the name is in no zone or delegated, it is a reverse name in no configured range, or the zone
// is not loaded and upstreams have it.
func (w *Worker) isForwarded(x *exchange, a *zone.Answer) bool {
	if w.cfg.Upstreams == nil || !x.wantsRecursion() {
		return false
	}
	switch a.Outcome {
	case zone.OutOfZone, zone.Referral:
		return true
	case zone.NXDomain:
		return isOpen(a.SOA)
	case zone.Unanswered:
		return w.cfg.ForwardWhileLoading
	default:
		return false
	}
}

// isOpen reports whether a zone is a whole tree of reverse names, most of which
// are in no configured range.
func isOpen(z *dnswire.SOA) bool {
	return z.Zone == dnsname.ReverseIPv4 || z.Zone == dnsname.ReverseIPv6
}

// isRelayedSearch reports whether upstreams search for the chain's name.
func (w *Worker) isRelayedSearch(c *chain) bool {
	return c.relayed && string(c.name) == string(w.searcher.of.Name())
}

// upstreamKey is the question to upstreams about the chain's name. done reports
// whether v is final: the client's subnet would go along, and is malformed.
func (w *Worker) upstreamKey(x *exchange, c *chain, t dnswire.Type) (key cache.Key, v verdict, done bool) {
	key = cache.Key{Name: c.name, Type: t, DO: x.wantsDNSSEC(), CD: x.query.Flags&dnswire.FlagCD != 0}
	if w.isRelayedSearch(c) {
		key.Search = w.searcher.option
		return key, verdict{}, false
	}
	if subnet := x.query.EDNS.Subnet; subnet != nil && w.cfg.Upstreams.ForwardsSubnet(c.name) {
		if !subnet.IsValidInQuery() {
			w.response.DropRecords() // of the aliases that led here
			return key, c.verdict(malformed, &malformedSubnet), true
		}
		key.Subnet = subnet
	}
	return key, verdict{}, false
}

// cached returns the entry for key, from the replies to this query or from the
// cache, and the time at which it holds; nil when an upstream has to be asked.
// routed reports whether there is one.
func (w *Worker) cached(x *exchange, key cache.Key) (e *cache.Entry, at time.Time, routed bool) {
	for _, r := range w.replies {
		if isSame(r.key, key) {
			return r.entry, r.at, true
		}
	}
	e, routed = w.cfg.Upstreams.Cached(key, x.start)
	return e, x.start, routed
}

// require makes key one of the questions that a pending query needs answered.
func (w *Worker) require(key cache.Key) {
	if !slices.ContainsFunc(w.missing, func(k cache.Key) bool { return isSame(k, key) }) {
		w.missing = append(w.missing, key.Clone())
	}
}

// solveUpstream answers the chain's name from upstream replies; own is the zones'
// answer and steps the way to it. It moves the chain on where aliases leave the
// reply. done reports whether v is final.
func (w *Worker) solveUpstream(x *exchange, c *chain, own *zone.Answer, steps int) (v verdict, done bool) {
	if !w.isRelayedSearch(c) && w.suppresses(x, c.name, x.query.Type) {
		return c.suppressed(), true
	}
	key, v, done := w.upstreamKey(x, c, x.query.Type)
	if done {
		return v, true
	}
	entry, at, routed := w.cached(x, key)
	switch {
	case !routed:
		return w.conclude(x, c, own, steps), true
	case entry == nil:
		w.require(key)
		return c.verdict(pending, nil), true
	}
	reply, aging, stale := entry.Answer(at)
	if reply == nil {
		ede := c.ede
		if entry.Failure != nil {
			ede = &zone.EDE{Code: entry.Failure.Code, Text: entry.Failure.Text}
		}
		return c.verdict(failed, ede), true
	}
	return w.relay(x, c, &relayed{reply, aging, stale, entry.Guarded, steps})
}

// subnetScope is the client subnets that an answer is valid for (RFC 7871,
// section 7.2.1).
type subnetScope struct {
	known bool
	bits  uint8 // of the client's address
}
