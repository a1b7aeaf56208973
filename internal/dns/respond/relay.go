package respond

import (
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

var (
	intoCluster = zone.EDE{
		Code: dnswire.EDEBlocked,
		Text: "the name is an alias of one in the cluster, which names from there may not be",
	}
	staleReply    = zone.EDE{Code: dnswire.EDEStale, Text: "no upstream server answers; this is what one answered before"}
	staleNXDomain = zone.EDE{Code: dnswire.EDEStaleNXDomain, Text: staleReply.Text}
)

// relayed is an upstream reply that a response relays.
type relayed struct {
	reply   *dnswire.Reply
	aging   dnswire.Aging
	stale   bool
	guarded bool // its aliases must not lead into the zones served here
	steps   int  // that led to it; 0 is that it answers the query's name
}

// relay answers with an upstream reply to the chain's name. It moves the chain on
// where aliases leave the reply. done reports whether v is final.
func (w *Worker) relay(x *exchange, c *chain, r *relayed) (v verdict, done bool) {
	if !w.reserveScope(x, c, r.reply) {
		v = c.verdict(answered, c.ede)
		v.truncated = true
		return v, true
	}
	c.noteEDE(r)
	c.authentic = r.reply.Flags&dnswire.FlagAD != 0 && !r.stale && !c.renamed && (r.steps == 0 || c.authentic)
	isWhole := r.steps == 0 && !c.renamed && !w.filtersSearch(x, c) && len(r.reply.Question()) == len(x.query.Question)
	if isWhole && (!r.reply.HasCNAME || w.endsOutside(x, r.reply)) {
		last := w.response.AddReply(r.reply, r.aging)
		v = c.verdict(outcomeOf(r.reply), c.ede)
		v.truncated, v.authentic = isCut(x, r.reply, last), c.authentic
		return v, true
	}
	return w.followReply(x, c, r)
}

// filtersSearch reports whether the reply is to a search, and the rules may suppress what
// it found.
func (w *Worker) filtersSearch(x *exchange, c *chain) bool {
	return w.isRelayedSearch(c) && w.cfg.Rules != nil && w.cfg.Rules.SuppressesType(x.query.Type)
}

// suppressesFound reports whether a reply to a search ends at the chain's name, and the
// rules suppress its records. It exists: if nothing is found, upstreams deny it.
func (w *Worker) suppressesFound(x *exchange, c *chain, reply *dnswire.Reply) bool {
	if !c.relayed || reply.RCode == dnswire.NXDomain || !w.suppresses(x, c.name, x.query.Type) {
		return false
	}
	target, _ := ownedBy(reply, c.name, x.query.Type, w.targets[maxAliases][:0])
	return target == nil
}

// reserveScope notes the client subnets that a reply is valid for, and reserves
// room for the option. ok reports whether there is room. An answer made from
// several replies is valid for the clients that all of them are valid for.
func (w *Worker) reserveScope(x *exchange, c *chain, reply *dnswire.Reply) (ok bool) {
	if reply.Subnet == nil || x.query.EDNS.Subnet == nil {
		return true
	}
	if !c.scope.known {
		n := dnswire.OptionLen(len(x.query.EDNS.Subnet))
		if !w.response.Fits(n) {
			return false
		}
		w.response.Reserve(n)
		c.scope.known = true
	}
	c.scope.bits = max(c.scope.bits, reply.Subnet.Scope())
	return true
}

// noteEDE notes the Extended DNS Error of a reply: another server of the cluster
// gives the reason for a denial, and says that its data is stale.
func (c *chain) noteEDE(r *relayed) {
	switch {
	case r.stale && r.reply.RCode == dnswire.NXDomain:
		c.stale = &staleNXDomain
	case r.stale:
		c.stale = &staleReply
	}
	e := r.reply.EDE
	switch {
	case e == nil:
	case e.Code == dnswire.EDEStale, e.Code == dnswire.EDEStaleNXDomain:
		c.stale = &zone.EDE{Code: e.Code, Text: e.Text}
	default:
		c.ede = &zone.EDE{Code: e.Code, Text: e.Text}
	}
}

// isCut reports whether a response that has the sections of a reply up to last is
// truncated. Without its authority section a denial can't be cached, and a signed
// answer not be checked.
func isCut(x *exchange, reply *dnswire.Reply, last dnswire.Section) bool {
	switch {
	case last < dnswire.Answer, reply.Flags&dnswire.FlagTC != 0:
		return true
	case last >= dnswire.Authority || reply.Count(dnswire.Authority) == 0:
		return false
	}
	return reply.Count(dnswire.Answer) == 0 || x.wantsDNSSEC()
}

func outcomeOf(reply *dnswire.Reply) outcome {
	if reply.RCode == dnswire.NXDomain {
		return denied
	}
	return answered
}

// endsOutside reports whether the aliases of a reply end within it and never lead
// into the zones served here, so that the reply can be relayed as it is.
func (w *Worker) endsOutside(x *exchange, reply *dnswire.Reply) bool {
	t := x.query.Type
	complete := reply.RCode == dnswire.NXDomain || t == dnswire.TypeCNAME || t == dnswire.TypeANY
	target := w.targets[maxAliases][:0] // of no alias that is followed yet
	for rec := range reply.Records {
		switch recType := rec.Type(); {
		case rec.Section == dnswire.Authority && recType == dnswire.TypeSOA:
			complete = true
		case rec.Section != dnswire.Answer:
		case recType == t:
			complete = true
		case recType == dnswire.TypeCNAME:
			a := w.cfg.Data.Lookup(&w.scratch, rec.AppendTarget(target), t)
			if !w.isForwarded(x, &a) {
				return false
			}
		}
	}
	return complete
}

// followReply writes the records of a reply from the chain's name on, along its
// aliases. It moves the chain to the name at which the aliases leave the reply or
// enter a zone served here; done reports whether they end in the reply instead.
func (w *Worker) followReply(x *exchange, c *chain, r *relayed) (v verdict, done bool) {
	v = c.verdict(answered, c.ede)
	v.authoritative, v.authentic = c.isOurs(), c.authentic
	for first := c.name; ; {
		if w.suppressesFound(x, c, r.reply) {
			return c.suppressed(), true
		}
		isFirst := string(c.name) == string(first)
		target, whole := w.addOwned(x, c, r)
		switch {
		case !whole:
			v.truncated = true
			return v, true
		case target == nil && !isFirst && r.reply.RCode == dnswire.NoError && !endsAt(r.reply, c.name, x.query.Type):
			return verdict{}, false // the upstream did not look up the records of this name
		case target == nil:
			v.outcome = outcomeOf(r.reply)
			if c.relayed && w.searcher.source == searchByName && isFirst {
				v.truncated = !w.denyRelayed(r)
			} else {
				v.truncated = !w.addDenial(x, r) || r.reply.Flags&dnswire.FlagTC != 0
			}
			return v, true
		case c.aliases == maxAliases:
			return c.verdict(failed, &endless), true
		}
		c.name = target
		c.aliases++
		a := w.cfg.Data.Lookup(&w.scratch, c.name, x.query.Type)
		switch {
		case w.isForwarded(x, &a):
		case r.guarded:
			return c.verdict(failed, &intoCluster), true
		default:
			return verdict{}, false
		}
	}
}

// addOwned writes the answer records of a reply that the chain's name owns and
// the query asks for, or an alias of that name, whose target it returns. whole
// reports whether they fit.
func (w *Worker) addOwned(x *exchange, c *chain, r *relayed) (target []byte, whole bool) {
	var owner [dnsname.MaxWire]byte
	next := 0
	for rec := range r.reply.Records {
		if rec.Section != dnswire.Answer || string(rec.AppendOwner(owner[:0])) != string(c.name) {
			continue
		}
		t := rec.Type()
		if t == dnswire.TypeRRSIG && x.wantsDNSSEC() {
			t = rec.Covers()
		}
		if t != x.query.Type && x.query.Type != dnswire.TypeANY && t != dnswire.TypeCNAME {
			continue
		}
		at, whole := w.response.AddRelayedAtOwner(rec, r.aging)
		if !whole {
			return nil, false
		}
		if rec.Type() == dnswire.TypeCNAME && x.query.Type != dnswire.TypeCNAME {
			target, next = rec.AppendTarget(w.targets[c.aliases][:0]), at
		}
	}
	return target, target == nil || w.response.SetOwner(next)
}

// endsAt reports whether a reply has the records of type t of name, or denies
// them.
func endsAt(reply *dnswire.Reply, name []byte, t dnswire.Type) bool {
	var owner [dnsname.MaxWire]byte
	for rec := range reply.Records {
		switch {
		case rec.Section == dnswire.Authority && rec.Type() == dnswire.TypeSOA:
			return true
		case rec.Section == dnswire.Answer && rec.Type() == t && string(rec.AppendOwner(owner[:0])) == string(name):
			return true
		}
	}
	return false
}

// addDenial writes the records that deny, if the reply has any: the SOA record
// and, for clients that check signatures, the rest of the authority section.
// whole reports whether they fit.
func (w *Worker) addDenial(x *exchange, r *relayed) (whole bool) {
	for rec := range r.reply.Records {
		if rec.Section != dnswire.Authority || rec.Type() != dnswire.TypeSOA && !x.wantsDNSSEC() {
			continue
		}
		if !w.response.AddRelayed(dnswire.Authority, rec, r.aging) {
			return false
		}
	}
	return true
}
