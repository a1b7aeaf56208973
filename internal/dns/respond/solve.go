package respond

import (
	"bytes"
	"hash/maphash"
	"math/rand/v2"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// maxAliases is how many CNAME records an answer follows.
const maxAliases = 10

var (
	notOurs  = zone.EDE{Code: dnswire.EDENotAuthoritative, Text: "the name is outside the zones served here, and there is no upstream server"}
	notAsked = zone.EDE{Code: dnswire.EDENotAuthoritative, Text: "the name is outside the zones served here, and the query does not ask for recursion"}
	noEnd    = zone.EDE{Code: dnswire.EDEOther, Text: "the aliases lead in a circle, or on for too long"}
)

// solve answers from the zones.
func (w *Worker) solve(x *exchange) {
	name := w.query.QName()
	if w.cfg.Search != nil {
		switch w.readSearch(x) {
		case searched:
			w.solveSearched(x)
			return
		case relayed:
			w.answer(x, w.searcher.of.Name())
			return
		case concluded:
			return
		case notSearched:
		}
	}
	if w.cfg.Rules != nil {
		name, x.renamed = w.cfg.Rules.Rewrite(name, w.renamed[:])
		if w.solveByRule(x, name) {
			return
		}
	}
	w.answer(x, name)
}

// answer answers from name on, following aliases as far as they stay inside.
func (w *Worker) answer(x *exchange, name []byte) {
	var visited [maxAliases + 1][]byte
	first := x.aliases // that led to name
	for step := first; step < len(visited); step++ {
		a := w.cfg.Data.Lookup(&w.scratch, name, w.query.Type)
		if step == first {
			x.zone = a.SOA
		}
		if a.StaleEDE != nil {
			x.stale = a.StaleEDE
		}
		visited[step] = name
		switch {
		case w.isUpstreams(&a):
			if name = w.solveUpstream(x, step, name, &a); name == nil {
				return
			}
		case a.Outcome != zone.Alias:
			w.conclude(x, step, &a)
			return
		case x.aliases == maxAliases:
		case !w.response.AddRRset(dnswire.Answer, a.RRset, 0):
			x.outcome, x.ours, x.truncated = answered, x.zone != nil, true
			return
		default:
			name = a.RRset.Target()
			x.aliases++
		}
		if contains(visited[first:step+1], name) {
			break
		}
	}
	x.outcome, x.why, x.ours = failed, &noEnd, false
}

func contains(names [][]byte, name []byte) bool {
	for _, n := range names {
		if bytes.Equal(n, name) {
			return true
		}
	}
	return false
}

// conclude ends an answer with what the lookup of its last name found. The
// rcode is that of this last step (RFC 6604, section 3).
func (w *Worker) conclude(x *exchange, aliases int, a *zone.Answer) {
	x.why, x.validated = a.EDE, false
	switch a.Outcome {
	case zone.Found:
		x.outcome, x.ours = answered, x.zone != nil
		w.addFound(x, a.RRset)
	case zone.Authority:
		x.outcome, x.ours = answered, x.zone != nil
		x.truncated = !w.response.AddSOA(dnswire.Answer, a.SOA)
	case zone.NoData:
		x.outcome, x.ours = answered, x.zone != nil
		x.truncated = !w.response.AddSOA(dnswire.Authority, a.SOA)
	case zone.NXDomain:
		x.outcome, x.ours = denied, x.zone != nil
		x.truncated = !w.response.AddSOA(dnswire.Authority, a.SOA)
	case zone.OutOfZone:
		if aliases > 0 {
			x.outcome, x.ours = answered, x.zone != nil
			return
		}
		x.outcome, x.why = refused, &notOurs
		if w.cfg.Upstreams != nil && w.query.Flags&dnswire.FlagRD == 0 {
			x.why = &notAsked
		}
	case zone.Unanswered, zone.Alias:
		x.outcome = failed
	}
}

// addFound writes the records asked for, beginning with another one each time,
// and behind SRV records the addresses of their targets.
func (w *Worker) addFound(x *exchange, set dnswire.RRset) {
	first := 0
	if set.Count > 1 && rotates(set.Type) {
		first = w.turn(set.Type) % int(set.Count)
	}
	if !w.response.AddRRset(dnswire.Answer, set, first) {
		x.truncated = true
		return
	}
	if set.Type == dnswire.TypeSRV {
		w.addGlue()
	}
}

func rotates(t dnswire.Type) bool {
	return t == dnswire.TypeA || t == dnswire.TypeAAAA || t == dnswire.TypeSRV
}

// turnSlots is how many RRsets a Worker keeps the turns of.
const turnSlots = 1024

// turn is whose turn it is in one RRset.
type turn struct{ rrset, next uint32 }

// turn is the record that the answer begins with: another one than last time,
// and where the Worker has forgotten that, or never knew, one by chance.
func (w *Worker) turn(t dnswire.Type) int {
	h := maphash.Bytes(w.hashSeed, w.query.QName()) + uint64(t)
	slot, rrset := &w.turns[h%turnSlots], uint32(h>>32)
	if slot.rrset != rrset {
		*slot = turn{rrset, rand.Uint32()}
	}
	slot.next++
	return int(slot.next)
}

// addGlue writes the addresses of SRV targets while they fit; additional
// records are left out without truncating (RFC 2181, section 9).
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

// solveChaos answers what the server is told to say of itself.
func (w *Worker) solveChaos(x *exchange) {
	name, _, err := dnsname.FromWire(w.query.Question)
	set, ok := w.chaos[name]
	if err != nil || !ok || w.query.Type != dnswire.TypeTXT && w.query.Type != dnswire.TypeANY {
		x.outcome = refused
		return
	}
	x.outcome = answered
	x.truncated = !w.response.AddRRset(dnswire.Answer, set, 0)
}
