package respond

import (
	"bytes"

	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/zone"
)

var (
	badSearch = zone.EDE{
		Code: dnswire.EDEOther,
		Text: "the option with search paths is malformed, of another version, or too long",
	}
	aboveSearch = zone.EDE{Code: dnswire.EDEOther, Text: "names below this one are searched for; this one is none of them"}
	notASearch  = zone.EDE{
		Code: dnswire.EDEOther,
		Text: "the name is below the suffix of names that are searched for, and is not NAME.search.NAMESPACE.ZONE before it",
	}
	noneFound = zone.EDE{
		Code: dnswire.EDEOther,
		Text: "nothing was found in the search paths, nor for the name as given",
	}
	staleDenial = zone.EDE{
		Code: dnswire.EDEStale,
		Text: "names that would come before this one are denied by earlier data",
	}
)

// searchSource is what carries a query's search paths.
type searchSource uint8

const (
	notSearched searchSource = iota
	searchByName
	searchByOption
)

// searcher is a Worker's memory for searches, and the state of one.
type searcher struct {
	of     autopath.Search
	source searchSource
	option []byte // with the search paths, for upstreams

	name   [dnsname.MaxWire]byte    // under consideration
	target [2][dnsname.MaxWire]byte // of the aliases in upstream replies
	found  []byte                   // the name at which the search ended here, in name; nil without one
	alias  dnswire.RRsetBuilder     // from the query's name to the name that was found
	rdata  [dnsname.MaxWire]byte    // of alias

	// denials of names in the zones served here
	denied bool         // there is one
	soa    dnswire.SOA  // of the first one, with the lowest TTL of all
	zone   *dnswire.SOA // of the search, for statistics
	stale  *zone.EDE    // a denial is from stale data

	asGiven *relayed // upstreams' denial of the name as given; nil without one
	denial  relayed  // asGiven
}

// reset prepares for a new search.
func (s *searcher) reset(source searchSource) {
	s.source, s.found, s.denied, s.zone, s.stale, s.asGiven = source, nil, false, nil, nil, nil
}

// solveSearch answers a query that carries search paths. Paths in the name take
// precedence over an option. done reports whether the query carries any.
func (w *Worker) solveSearch(x *exchange) (v verdict, done bool) {
	s, q, echo := &w.searcher, x.query, false
	switch w.cfg.Search.Name(q.QName(), &s.of) {
	case autopath.Named:
		s.reset(searchByName)
	case autopath.Above:
		return w.denySuffix(answered, &aboveSearch), true
	case autopath.Nothing:
		return w.denySuffix(denied, &notASearch), true
	case autopath.Outside:
		if q.EDNS.Search == nil || !w.cfg.Search.MayAsk(x.client.Addr) {
			return verdict{}, false
		}
		if w.cfg.Search.Option(q.EDNS.Search, q.QName(), &s.of) != nil {
			return verdict{outcome: malformed, ede: &badSearch}, true
		}
		s.reset(searchByOption)
		if echo = w.response.Fits(dnswire.OptionLen(0)); echo {
			w.response.Reserve(dnswire.OptionLen(0))
		}
	}
	if w.relaysSearch(x) {
		v = w.answer(x, &chain{name: s.of.Name(), relayed: true, renamed: s.source == searchByName})
	} else {
		v = w.search(x)
	}
	v.search, v.searchEcho = s.source, echo
	return v, true
}

// denySuffix answers for a name at or below the suffix of names that carry search
// paths, if it carries none.
func (w *Worker) denySuffix(o outcome, reason *zone.EDE) verdict {
	whole := w.response.AddSOA(dnswire.Authority, &w.cfg.SearchSOA)
	return verdict{outcome: o, authoritative: true, truncated: !whole, ede: reason}
}

// relaysSearch reports whether upstreams do the search, and sets the option that
// they receive.
func (w *Worker) relaysSearch(x *exchange) bool {
	s := &w.searcher
	switch {
	case w.cfg.Relay == NoRelay, w.rulesApply(x):
		return false
	case s.source == searchByOption:
		s.option = append(s.option[:0], x.query.EDNS.Search...)
	case w.cfg.Relay == RelayCompact:
		s.option = s.of.AppendCompact(s.option[:0])
	default:
		s.option = s.of.AppendPaths(s.option[:0])
	}
	return true
}

// rulesApply reports whether a rule applies to a name of the search. Upstreams
// don't know the rules, so this server has to search. Suppression does not count: it is
// applied to what the upstreams found.
func (w *Worker) rulesApply(x *exchange) bool {
	if w.cfg.Rules == nil {
		return false
	}
	s := &w.searcher
	for i := range s.of.Len() {
		name := s.of.Append(s.name[:0], i)
		if name == nil {
			continue
		}
		_, renamed := w.cfg.Rules.Rewrite(name, w.rewritten[:])
		_, exists := w.findLocal(name, x.query.Type)
		if renamed || exists || w.cfg.Rules.Access(x.client.Addr, name) != filter.Allow {
			return true
		}
	}
	return false
}

// search answers with the first name of the search that exists, to which the
// query's name becomes an alias.
func (w *Worker) search(x *exchange) verdict {
	name, v := w.findName(x)
	if name == nil {
		v.zone, v.stale = w.searcher.zone, w.searcher.stale
		return v
	}
	s := &w.searcher
	c, ttl := chain{name: name}, w.cfg.SearchSOA.TTL
	if s.stale != nil {
		c.stale, ttl = &staleDenial, min(ttl, s.soa.TTL)
	}
	if !bytes.Equal(name, x.query.QName()) {
		s.alias.Start(dnswire.TypeCNAME, ttl)
		s.alias.Add(append(append(s.rdata[:0], name...), 0))
		if !w.response.AddRRset(dnswire.Answer, s.alias.RRset(), 0) {
			return verdict{outcome: answered, truncated: true, zone: s.zone, stale: c.stale}
		}
		c.aliases++
	}
	if w.cfg.Rules != nil {
		if v, done := w.solveByRule(x, name); done {
			v.zone, v.stale = s.zone, c.stale
			return v
		}
	}
	return w.answer(x, &c)
}

// findName returns the name at which the search ends, or the verdict when there
// is none. Names in the zones served here are known at once; of the others, all
// that the search may need become upstream queries at once.
func (w *Worker) findName(x *exchange) (name []byte, v verdict) {
	s := &w.searcher
	var unknown *zone.EDE // why a name that was passed over is unknown
	wait := false
	for i := range s.of.Len() {
		if name = s.of.Append(s.name[:0], i); name == nil {
			continue
		}
		p := w.probe(x, name)
		switch {
		case p.finding == invalid:
			return nil, p.verdict
		case p.finding == waiting:
			wait = true
		case p.finding == found && !wait:
			s.found = name
			return p.name, verdict{}
		case p.finding == failing && !p.decisive:
			unknown = p.ede
		case p.finding == failing && !wait:
			return nil, verdict{ede: p.ede}
		case p.finding == found, p.finding == failing:
			return nil, verdict{outcome: pending} // for the names before it
		}
	}
	switch {
	case wait:
		return nil, verdict{outcome: pending}
	case unknown != nil:
		return nil, verdict{ede: unknown}
	}
	return nil, w.denySearch(x)
}

// denySearch ends a search that found nothing. It denies the query's name, so
// that the client goes on to the name as given. The SOA is of a zone that the
// query's name is in.
func (w *Worker) denySearch(x *exchange) verdict {
	s := &w.searcher
	v := verdict{outcome: denied, authoritative: s.source == searchByName, ede: &noneFound}
	soa := w.cfg.SearchSOA
	if s.denied {
		soa.TTL, soa.Minimum = min(soa.TTL, s.soa.TTL), min(soa.Minimum, s.soa.Minimum)
	}
	if s.source == searchByOption {
		// The zone of the name as given denies it, for as long as all names are denied.
		a := w.cfg.Data.Lookup(&w.scratch, x.query.QName(), x.query.Type)
		switch {
		case a.SOA != nil && !isOpen(a.SOA):
			v.authoritative, soa.Zone = true, a.SOA.Zone
		case s.asGiven != nil:
			if ttl := s.asGiven.aging.TTL(soa.TTL); ttl > 0 {
				s.asGiven.aging = dnswire.Aging{Stale: ttl}
			}
			v.truncated = !w.addDenial(x, s.asGiven)
			return v
		default:
			soa.Zone = dnsname.Root
		}
	}
	v.truncated = !w.response.AddSOA(dnswire.Authority, &soa)
	return v
}

// denyRelayed denies a name that carries search paths, for as long as the
// upstream that searched does. whole reports whether the denial fits.
func (w *Worker) denyRelayed(r *relayed) (whole bool) {
	soa := w.cfg.SearchSOA
	for rec := range r.reply.Records {
		if rec.Section == dnswire.Authority && rec.Type() == dnswire.TypeSOA {
			soa.TTL, soa.Minimum = min(soa.TTL, r.aging.TTL(rec.TTL())), min(soa.Minimum, rec.NegativeTTL())
		}
	}
	return w.response.AddSOA(dnswire.Authority, &soa)
}
