package respond

import (
	"bytes"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// maxAliases is how many CNAME records an answer follows.
const maxAliases = 10

var (
	notOurs = zone.EDE{
		Code: dnswire.EDENotAuthoritative,
		Text: "the name is outside the zones served here, and there is no upstream server",
	}
	notRecursive = zone.EDE{
		Code: dnswire.EDENotAuthoritative,
		Text: "the name is outside the zones served here, and the query does not ask for recursion",
	}
	endless = zone.EDE{
		Code: dnswire.EDEOther, Text: "the aliases lead in a circle, or on for too long", Reason: zone.AliasLoop,
	}
)

// solve answers a query of class IN: by a search, by a rule, or from the zones
// and upstreams.
func (w *Worker) solve(x *exchange) verdict {
	c := chain{name: x.query.QName()}
	if w.cfg.Search != nil {
		if v, done := w.solveSearch(x); done {
			return v
		}
	}
	if w.cfg.Rules != nil {
		c.name, c.renamed = w.cfg.Rules.Rewrite(c.name, w.rewritten[:])
		if v, done := w.solveByRule(x, c.name); done {
			return v
		}
	}
	return w.answer(x, &c)
}

// chain is an answer's way along CNAME records.
type chain struct {
	// The start, set by the caller of answer:
	name    []byte
	renamed bool // it is not the query's name
	relayed bool // upstreams search for it
	aliases int  // CNAME records written so far

	zone      *dnswire.SOA // of the start; nil outside all zones
	stale     *zone.EDE    // a part of the answer is stale
	ede       *zone.EDE    // from the last upstream reply
	authentic bool         // upstreams validated all records so far
	scope     subnetScope
}

// isOurs reports whether the start is in a zone that is all served here.
func (c *chain) isOurs() bool { return c.zone != nil && !isOpen(c.zone) }

// verdict returns a verdict with what the chain has found so far.
func (c *chain) verdict(o outcome, ede *zone.EDE) verdict {
	return verdict{outcome: o, ede: ede, zone: c.zone, stale: c.stale, scope: c.scope}
}

// answer follows aliases from the chain's start to the records that the query
// asks for, in the zones and in upstream replies.
func (w *Worker) answer(x *exchange, c *chain) verdict {
	var visited [maxAliases + 1][]byte
	first := c.aliases
	for step := first; step < len(visited); step++ {
		a := w.cfg.Data.Lookup(&w.scratch, c.name, x.query.Type)
		if step == first {
			c.zone = a.SOA
		}
		if a.StaleEDE != nil {
			c.stale = a.StaleEDE
		}
		visited[step] = c.name
		switch {
		case w.isForwarded(x, &a):
			v, done := w.solveUpstream(x, c, &a, step)
			if done {
				return v
			}
		case a.Outcome != zone.Alias:
			return w.conclude(x, c, &a, step)
		case c.aliases == maxAliases:
		case !w.response.AddRRset(dnswire.Answer, a.RRset, 0):
			v := c.verdict(answered, c.ede)
			v.authoritative, v.truncated = c.zone != nil, true
			return v
		default:
			c.name = a.RRset.Target()
			c.aliases++
		}
		if contains(visited[first:step+1], c.name) {
			break
		}
	}
	return c.verdict(failed, &endless)
}

func contains(names [][]byte, name []byte) bool {
	for _, n := range names {
		if bytes.Equal(n, name) {
			return true
		}
	}
	return false
}

// conclude ends an answer with the lookup of its last name, which so many steps
// led to. The rcode is that of this last step (RFC 6604, section 3).
func (w *Worker) conclude(x *exchange, c *chain, a *zone.Answer, steps int) verdict {
	v := c.verdict(answered, a.EDE)
	v.authoritative = c.zone != nil
	switch a.Outcome {
	case zone.Found:
		v.truncated = !w.addFound(x, a.RRset)
	case zone.Authority:
		v.truncated = !w.response.AddSOA(dnswire.Answer, a.SOA)
	case zone.NoData:
		v.truncated = !w.response.AddDenial(a.SOA)
	case zone.NXDomain:
		v.outcome = denied
		v.truncated = !w.response.AddDenial(a.SOA)
	case zone.Referral:
		v.authoritative = steps > 0
		if steps == 0 {
			v.truncated = !w.response.AddReferral(a.RRset, a.Cut)
			w.addServers(a.RRset)
		}
	case zone.OutOfZone:
		switch {
		case steps > 0:
		case w.cfg.Upstreams != nil && !x.wantsRecursion():
			return c.verdict(refused, &notRecursive)
		default:
			return c.verdict(refused, &notOurs)
		}
	case zone.Unanswered, zone.Alias:
		return c.verdict(failed, a.EDE)
	}
	return v
}

// addFound writes the records that the query asks for, each time beginning with
// another one, and the addresses of SRV targets. whole reports whether the
// records fit; addresses are left out without truncating (RFC 2181, section 9).
func (w *Worker) addFound(x *exchange, set dnswire.RRset) (whole bool) {
	first := 0
	if set.Count > 1 && rotates(set.Type) {
		first = w.rotate(x.query.QName(), set.Type) % int(set.Count)
	}
	if !w.response.AddRRset(dnswire.Answer, set, first) {
		return false
	}
	if set.Type == dnswire.TypeSRV {
		w.addGlue()
	}
	return true
}

// addServers writes the addresses of the name servers in a referral while they fit.
func (w *Worker) addServers(set dnswire.RRset) {
	for name := range set.Targets {
		a, aaaa := w.cfg.Data.Addresses(&w.scratch, name)
		if a.Count > 0 && !w.response.AddOwned(a, name) || aaaa.Count > 0 && !w.response.AddOwned(aaaa, name) {
			return
		}
	}
}

// addGlue writes the addresses of SRV targets while they fit.
func (w *Worker) addGlue() {
	target, at, next := w.response.SRVTarget(0)
	for target != nil {
		a, aaaa := w.cfg.Data.Addresses(&w.scratch, target)
		if a.Count > 0 && !w.response.AddGlue(a, target, at) || aaaa.Count > 0 && !w.response.AddGlue(aaaa, target, at) {
			return
		}
		target, at, next = w.response.SRVTarget(next)
	}
}
