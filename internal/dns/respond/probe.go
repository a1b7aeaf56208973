package respond

import (
	"slices"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/zone"
)

var truncatedReply = zone.EDE{
	Code: dnswire.EDEOther,
	Text: "an upstream server's answer is cut off, and it gives no whole one",
}

// finding is what a search knows of a name.
type finding uint8

const (
	absent  finding = iota // it does not exist, or only names below it do
	noData                 // it has records of other types
	found                  // it has the records
	failing                // it is unknown
	waiting                // upstream replies are missing
	invalid                // the query can't be answered
)

// probed is the result of a probe.
type probed struct {
	finding finding
	name    []byte // that is looked up for it, which a rule may have rewritten
	// decisive says that the search can't pass the name over while it is unknown:
	// it is in a zone served here, or something exists there.
	decisive bool
	ede      *zone.EDE // why it is failing
	verdict  verdict   // when it is invalid
}

// probe finds out whether a name of a search exists. For A and AAAA, an address
// of either family ends a search, so that searches for both end at the same name.
func (w *Worker) probe(x *exchange, name []byte) probed {
	if w.cfg.Rules != nil {
		if w.cfg.Rules.Access(x.client.Addr, name) != filter.Allow {
			return probed{name: name}
		}
		name, _ = w.cfg.Rules.Rewrite(name, w.rewritten[:])
	}
	p := w.probeType(x, name, x.query.Type)
	p.name = name
	var otherFamily dnswire.Type
	switch x.query.Type {
	case dnswire.TypeA:
		otherFamily = dnswire.TypeAAAA
	case dnswire.TypeAAAA:
		otherFamily = dnswire.TypeA
	default:
		return p
	}
	if p.finding == absent || p.finding == found || p.finding == invalid || p.finding == failing && p.decisive {
		return p
	}
	other := w.probeType(x, name, otherFamily) // also when waiting: both are asked for at once
	switch {
	case p.finding == noData, other.finding == invalid:
		p.finding, p.ede, p.verdict = other.finding, other.ede, other.verdict
	case p.finding == failing && other.finding == waiting:
		p.finding = waiting
	case p.finding == failing:
		p.decisive = other.finding == found
	}
	return p
}

// probeType finds out whether a name has records of a type, along aliases.
func (w *Worker) probeType(x *exchange, name []byte, t dnswire.Type) (p probed) {
	if w.cfg.Rules != nil {
		if a, exists := w.findLocal(name, t); exists {
			return probed{finding: a.finding(), decisive: true}
		}
	}
	for step := range maxAliases + 1 {
		a := w.cfg.Data.Lookup(&w.scratch, name, t)
		if step == 0 {
			p.decisive = a.SOA != nil && !isOpen(a.SOA) || w.cfg.Search.IsCluster(name)
		}
		if w.isForwarded(x, &a) {
			up, next := w.probeUpstream(x, name, t)
			if next == nil {
				up.decisive = up.decisive || p.decisive
				return up
			}
			name = next
			continue
		}
		switch a.Outcome {
		case zone.Alias:
			name = a.RRset.Target()
			continue
		case zone.Found, zone.Authority, zone.Referral:
			p.finding = found
		case zone.NoData:
			w.searcher.noteDenial(&a)
			p.finding = noData
		case zone.NXDomain:
			w.searcher.noteDenial(&a)
			p.finding = absent
		case zone.OutOfZone:
			p.finding = absent
		case zone.Unanswered:
			w.searcher.zone = a.SOA
			p.finding, p.ede = failing, a.EDE
		}
		return p
	}
	p.finding, p.ede = failing, &endless
	return p
}

// finding is the finding of a name that the rules hold.
func (a *localAnswer) finding() finding {
	switch {
	case a.denied:
		return absent
	case a.set.Count == 0:
		return noData
	}
	return found
}

// noteDenial notes a denial by a zone served here: its SOA and TTL, and whether
// it is stale.
func (s *searcher) noteDenial(a *zone.Answer) {
	if a.StaleEDE != nil {
		s.stale = a.StaleEDE
	}
	if !s.denied {
		s.soa, s.denied = *a.SOA, true
		s.zone = &s.soa
	}
	s.soa.TTL, s.soa.Minimum = min(s.soa.TTL, a.SOA.TTL), min(s.soa.Minimum, a.SOA.Minimum)
}

// probeUpstream finds out from upstream replies whether a name has records of a
// type. Where aliases lead to a name served here, or to one that the upstream did
// not look up, next is that name.
func (w *Worker) probeUpstream(x *exchange, name []byte, t dnswire.Type) (p probed, next []byte) {
	if w.suppresses(x, name, t) {
		return probed{finding: noData}, nil
	}
	key, v, done := w.upstreamKey(x, &chain{name: name}, t)
	if done {
		return probed{finding: invalid, verdict: v}, nil
	}
	e, at, routed := w.cached(x, key)
	switch {
	case !routed:
		return probed{finding: absent}, nil
	case e == nil:
		w.require(key)
		return probed{finding: waiting}, nil
	}
	reply, aging, _ := e.Answer(at)
	switch {
	case reply == nil && forward.IsGivenUp(e): // the name may exist
		return probed{finding: failing, decisive: true, ede: &zone.EDE{Code: e.Failure.Code, Text: e.Failure.Text}}, nil
	case reply == nil:
		p = probed{finding: failing, ede: &zone.EDE{Code: dnswire.EDEOther}}
		if e.Failure != nil {
			p.ede = &zone.EDE{Code: e.Failure.Code, Text: e.Failure.Text}
		}
		return p, nil
	}
	r := relayed{reply: reply, aging: aging, guarded: e.Guarded}
	p, next = w.probeReply(x, name, t, &r)
	s := &w.searcher
	switch {
	case next != nil || p.finding == found:
	case reply.Flags&dnswire.FlagTC != 0: // the records may be among those left out
		return probed{finding: failing, decisive: true, ede: &truncatedReply}, nil
	case string(name) == string(s.of.Name()):
		s.denial = r
		s.asGiven = &s.denial
	}
	return p, next
}

// probeReply finds out the same from one reply.
func (w *Worker) probeReply(x *exchange, name []byte, t dnswire.Type, r *relayed) (p probed, next []byte) {
	first := name
	for step := range maxAliases {
		target, has := ownedBy(r.reply, name, t, w.searcher.target[step%2][:0])
		switch {
		case has:
			return probed{finding: found}, nil
		case target != nil:
		case r.reply.RCode == dnswire.NXDomain:
			return probed{finding: absent}, nil
		case string(name) != string(first) && !endsAt(r.reply, name, t):
			return probed{}, slices.Clone(name)
		default:
			return probed{finding: noData}, nil
		}
		name = target
		a := w.cfg.Data.Lookup(&w.scratch, name, t)
		switch {
		case w.isForwarded(x, &a):
		case r.guarded:
			return probed{finding: failing, ede: &intoCluster}, nil
		default:
			return probed{}, slices.Clone(name)
		}
	}
	return probed{finding: failing, ede: &endless}, nil
}

// ownedBy reports whether a reply has records of type t of name, and returns the
// target of its alias, in room.
func ownedBy(reply *dnswire.Reply, name []byte, t dnswire.Type, room []byte) (target []byte, has bool) {
	var owner [dnsname.MaxWire]byte
	for rec := range reply.Records {
		if rec.Section != dnswire.Answer || string(rec.AppendOwner(owner[:0])) != string(name) {
			continue
		}
		switch rec.Type() {
		case t:
			return nil, true
		case dnswire.TypeCNAME:
			target = rec.AppendTarget(room)
		}
	}
	return target, t == dnswire.TypeANY && target != nil
}
