package respond

import (
	"bytes"
	"slices"

	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/zone"
)

var (
	badSearch   = zone.EDE{Code: dnswire.EDEOther, Text: "the option with search paths is malformed, of another version, or too long"}
	noSearch    = zone.EDE{Code: dnswire.EDEOther, Text: "names below this one are searched for; this one is none of them"}
	cutShort    = zone.EDE{Code: dnswire.EDEOther, Text: "an upstream server's answer is cut off, and it gives no whole one"}
	passedOver  = zone.EDE{Code: dnswire.EDEStale, Text: "names that would come before this one are denied by earlier data"}
	noneFound   = zone.EDE{Code: dnswire.EDEOther, Text: "nothing was found in the search paths, nor for the name as given"}
	notToSearch = zone.EDE{Code: dnswire.EDEOther, Text: "the name is below the suffix of names that are searched for, and is not NAME.search.NAMESPACE.ZONE before it"}
)

// searcher is what a Worker searches in.
type searcher struct {
	of     autopath.Search
	named  bool // the name says what it is searched for in
	alias  dnswire.RRsetBuilder
	rdata  [dnsname.MaxWire]byte
	name   [dnsname.MaxWire]byte    // that is looked at
	target [2][dnsname.MaxWire]byte // of others' aliases
	soa    dnswire.SOA              // that denies
	denied bool                     // something of ours does: soa is set
	option []byte                   // that others are told
	// What others say that deny the name as it was given, and how that is shown.
	given *dnswire.Reply
	as    dnswire.Aging
}

// searching is whether a query's name is searched for.
type searching uint8

const (
	notSearched searching = iota
	searched
	relayed   // by others
	concluded // the outcome is set
)

// readSearch reads whether the query's name is searched for, and what in. A name
// that says so counts for more than an option.
func (w *Worker) readSearch(x *exchange) searching {
	s := &w.searcher
	s.denied, s.given = false, nil
	switch w.cfg.Search.Name(w.query.QName(), &s.of) {
	case autopath.Named:
		s.named = true
		return w.relay(x)
	case autopath.Above:
		x.outcome, x.ours, x.why = answered, true, &noSearch
		x.truncated = !w.response.AddSOA(dnswire.Authority, &w.cfg.SearchSOA)
		return concluded
	case autopath.Nothing:
		x.outcome, x.ours, x.why = denied, true, &notToSearch
		x.truncated = !w.response.AddSOA(dnswire.Authority, &w.cfg.SearchSOA)
		return concluded
	case autopath.Outside:
	}
	s.named = false
	if w.query.EDNS.Search == nil || !w.cfg.Search.MayAsk(x.client.Addr) {
		return notSearched
	}
	if w.cfg.Search.Option(w.query.EDNS.Search, w.query.QName(), &s.of) != nil {
		x.outcome, x.why = malformed, &badSearch
		return concluded
	}
	if x.echoes = w.response.Fits(dnswire.OptionLen(0)); x.echoes {
		w.response.Reserve(dnswire.OptionLen(0))
	}
	return w.relay(x)
}

// relay tells who searches; where others do, it makes what they are told.
func (w *Worker) relay(x *exchange) searching {
	s := &w.searcher
	if w.counts != nil {
		x.search = &w.counts.searches[0]
		if !s.named {
			x.search = &w.counts.searches[1]
		}
	}
	switch {
	case w.cfg.Relay == NoRelay, w.rulesTouch(x):
		return searched
	case !s.named:
		s.option = append(s.option[:0], w.query.EDNS.Search...)
	case w.cfg.Relay == RelayCompact:
		s.option = s.of.AppendCompact(s.option[:0])
	default:
		s.option = s.of.AppendPaths(s.option[:0])
	}
	x.relayed, x.renamed = true, s.named
	return relayed
}

// rulesTouch tells whether a rule is of a name that would be looked for: then who
// searches must know the rules.
func (w *Worker) rulesTouch(x *exchange) bool {
	if w.cfg.Rules == nil {
		return false
	}
	s := &w.searcher
	for i := range s.of.Len() {
		name := s.of.Append(s.name[:0], i)
		if name == nil {
			continue
		}
		_, renamed := w.cfg.Rules.Rewrite(name, w.renamed[:])
		_, is := w.byRule(name, w.query.Type)
		if renamed || is || w.cfg.Rules.Access(x.client.Addr, name) != filter.Allow {
			return true
		}
	}
	return false
}

// solveSearched answers with the first that is found, as an alias of the query's
// name.
func (w *Worker) solveSearched(x *exchange) {
	name := w.find(x)
	if name == nil {
		return
	}
	s, ttl := &w.searcher, w.cfg.SearchSOA.TTL
	x.why = nil // of what was not found before it
	if x.stale != nil {
		x.stale, ttl = &passedOver, min(ttl, s.soa.TTL)
	}
	if !bytes.Equal(name, w.query.QName()) {
		s.alias.Start(dnswire.TypeCNAME, ttl)
		s.alias.Add(append(append(s.rdata[:0], name...), 0))
		if !w.response.AddRRset(dnswire.Answer, s.alias.RRset(), 0) {
			x.outcome, x.truncated = answered, true
			return
		}
		x.aliases++
	}
	if w.cfg.Rules != nil && w.solveByRule(x, name) {
		return
	}
	w.answer(x, name)
}

// verdict is what a name comes to that is looked for.
type verdict uint8

const (
	absent  verdict = iota // nothing is there
	without                // something is, of another type
	found
	failing // nobody knows
	waiting // others must be asked first
	ended   // the outcome of the exchange is set
)

// find gives the name at which the search ends. Where there is none, or others
// must be asked first, it sets the outcome. Names in our zones are known at once;
// of those that others know, all are asked for at once that may be needed.
func (w *Worker) find(x *exchange) (name []byte) {
	s := &w.searcher
	var unknown *zone.EDE // why it is not known of a name that is passed over
	wait := false
	for i := range s.of.Len() {
		if name = s.of.Append(s.name[:0], i); name == nil {
			continue
		}
		var v verdict
		var must bool
		x.why = nil
		name, v, must = w.searchName(x, name)
		switch {
		case v == ended:
			return nil
		case v == waiting:
			wait = true
		case v == found && !wait:
			return name
		case v == failing && !must:
			unknown = x.why
		case v == failing && !wait:
			x.outcome, x.ours = failed, false
			return nil
		case v == found, v == failing:
			x.outcome = pending // for what comes before it
			return nil
		}
	}
	switch {
	case wait:
		x.outcome = pending
	case unknown != nil:
		x.outcome, x.why, x.ours = failed, unknown, false
	default:
		w.denySearch(x)
	}
	return nil
}

// searchName tells what a name comes to, as which it is answered, and whether it must be
// known for the search to go on behind it: it is in our zones, or something is
// there. An address of either family ends a search for one, so that searches for
// both end at the same name.
func (w *Worker) searchName(x *exchange, name []byte) (as []byte, v verdict, must bool) {
	if w.cfg.Rules != nil {
		if w.cfg.Rules.Access(x.client.Addr, name) != filter.Allow {
			return name, absent, false
		}
		name, _ = w.cfg.Rules.Rewrite(name, w.renamed[:])
	}
	v, must = w.searchType(x, name, w.query.Type)
	other := dnswire.TypeA
	switch w.query.Type {
	case dnswire.TypeA:
		other = dnswire.TypeAAAA
	case dnswire.TypeAAAA:
	default:
		return name, v, must
	}
	if v == absent || v == found || v == ended || v == failing && must {
		return name, v, must
	}
	why := x.why
	also, _ := w.searchType(x, name, other) // is asked for at the same time
	switch {
	case v == without, also == ended, v == failing && also == waiting:
		v = also
	case v == failing:
		x.why, must = why, also == found
	}
	return name, v, must
}

// searchType tells the same of one type, along aliases.
func (w *Worker) searchType(x *exchange, name []byte, t dnswire.Type) (v verdict, ours bool) {
	if w.cfg.Rules != nil {
		if r, is := w.byRule(name, t); is {
			return r.verdict(), true
		}
	}
	for step := range maxAliases + 1 {
		a := w.cfg.Data.Lookup(&w.scratch, name, t)
		if step == 0 {
			ours = a.SOA != nil && !isOpen(a.SOA) || w.cfg.Search.IsCluster(name)
		}
		if w.isUpstreams(&a) {
			var must bool
			if v, must, name = w.searchUpstream(x, name, t); name == nil {
				return v, ours || must
			}
			continue
		}
		switch a.Outcome {
		case zone.Alias:
			name = a.RRset.Target()
		case zone.Found, zone.Authority:
			return found, ours
		case zone.NoData, zone.NXDomain:
			w.noteDenial(x, &a)
			if a.Outcome == zone.NoData {
				return without, ours
			}
			return absent, ours
		case zone.OutOfZone:
			return absent, ours
		case zone.Unanswered:
			x.why, x.zone = a.EDE, a.SOA
			return failing, ours
		}
	}
	x.why = &noEnd
	return failing, ours
}

// verdict is what a name comes to of which that is written down.
func (r *ruled) verdict() verdict {
	switch {
	case r.denies:
		return absent
	case r.set.Count == 0:
		return without
	}
	return found
}

// noteDenial notes how a zone of ours denies: for how long, and by which SOA.
func (w *Worker) noteDenial(x *exchange, a *zone.Answer) {
	s := &w.searcher
	if a.StaleEDE != nil {
		x.stale = a.StaleEDE
	}
	if !s.denied {
		s.soa, s.denied = *a.SOA, true
		x.zone = &s.soa
	}
	s.soa.TTL, s.soa.Minimum = min(s.soa.TTL, a.SOA.TTL), min(s.soa.Minimum, a.SOA.Minimum)
}

// denySearch ends a search in which nothing was found: with a denial, for then
// the client goes on to the name as it was given. Its SOA is of a zone that the
// query's name is in.
func (w *Worker) denySearch(x *exchange) {
	s := &w.searcher
	x.outcome, x.ours, x.why = denied, s.named, &noneFound
	soa := w.cfg.SearchSOA
	if s.denied {
		soa.TTL, soa.Minimum = min(soa.TTL, s.soa.TTL), min(soa.Minimum, s.soa.Minimum)
	}
	if s.named {
		x.truncated = !w.response.AddSOA(dnswire.Authority, &soa)
		return
	}
	// The name as it was given is denied by its own zone, for as long as the others
	// are.
	a := w.cfg.Data.Lookup(&w.scratch, w.query.QName(), w.query.Type)
	switch {
	case a.SOA != nil && !isOpen(a.SOA):
		x.ours, soa.Zone = true, a.SOA.Zone
	case s.given != nil:
		if ttl := s.as.TTL(soa.TTL); ttl > 0 {
			s.as = dnswire.Aging{Stale: ttl}
		}
		x.truncated = !w.addDenial(s.given, s.as)
		return
	default:
		soa.Zone = dnsname.Root
	}
	x.truncated = !w.response.AddSOA(dnswire.Authority, &soa)
}

// denyRelayed denies a name that says itself what it is searched for in, for as long
// as who has searched does.
func (w *Worker) denyRelayed(reply *dnswire.Reply, as dnswire.Aging) (whole bool) {
	soa := w.cfg.SearchSOA
	for rec := range reply.Records {
		if rec.Section == dnswire.Authority && rec.Type() == dnswire.TypeSOA {
			soa.TTL, soa.Minimum = min(soa.TTL, as.TTL(rec.TTL())), min(soa.Minimum, rec.NegativeTTL())
		}
	}
	return w.response.AddSOA(dnswire.Authority, &soa)
}

// searchUpstream tells what others say of name, and whether that must be known for
// the search to go on. Where their aliases lead on, to a name of ours or one that
// they were not asked for, it gives that.
func (w *Worker) searchUpstream(x *exchange, name []byte, t dnswire.Type) (v verdict, must bool, next []byte) {
	q, ok := w.question(x, name, t)
	if !ok {
		return ended, false, nil
	}
	e, at, routed := w.known(x, q)
	switch {
	case !routed:
		return absent, false, nil
	case e == nil:
		w.askFor(x, q)
		return waiting, false, nil
	case e == noPlace:
		x.why = &tooMany
		return failing, true, nil
	}
	reply, as, _ := e.Answer(at)
	if reply == nil {
		x.why = &zone.EDE{Code: dnswire.EDEOther}
		if e.Failure != nil {
			x.why = &zone.EDE{Code: e.Failure.Code, Text: e.Failure.Text}
		}
		return failing, false, nil
	}
	v, next = w.searchReply(x, name, t, reply, e.Guarded)
	switch {
	case next != nil || v == found:
	case reply.Flags&dnswire.FlagTC != 0: // what is there was left out
		x.why = &cutShort
		return failing, true, nil
	case string(name) == string(w.searcher.of.Name()):
		w.searcher.given, w.searcher.as = reply, as
	}
	return v, false, next
}

// searchReply tells the same of a reply.
func (w *Worker) searchReply(x *exchange, name []byte, t dnswire.Type, reply *dnswire.Reply, guarded bool) (v verdict, next []byte) {
	first := name
	for step := range maxAliases {
		target, has := ownedBy(reply, name, t, w.searcher.target[step%2][:0])
		switch {
		case has:
			return found, nil
		case target != nil:
		case reply.RCode == dnswire.NXDomain:
			return absent, nil
		case string(name) != string(first) && !ends(reply, name, t):
			return absent, slices.Clone(name)
		default:
			return without, nil
		}
		name = target
		a := w.cfg.Data.Lookup(&w.scratch, name, t)
		switch {
		case w.isUpstreams(&a):
		case guarded:
			x.why = &intoCluster
			return failing, nil
		default:
			return absent, slices.Clone(name)
		}
	}
	x.why = &noEnd
	return failing, nil
}

// ownedBy tells whether name has records of type t in a reply, or the target of
// its alias, in room.
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
