package respond

import (
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/zone"
)

var (
	notAllowed = zone.EDE{Code: dnswire.EDEProhibited, Text: "this client may not ask for this name here"}
	blocked    = zone.EDE{Code: dnswire.EDEBlocked, Text: "the name is blocked here"}
)

// mayAsk tells whether the client may ask for the name, and now; where not, it
// sets the outcome.
func (w *Worker) mayAsk(x *exchange) bool {
	if w.cfg.Rules != nil {
		switch w.cfg.Rules.Access(x.client.Addr, w.query.QName()) {
		case filter.Allow:
		case filter.Refuse:
			x.outcome, x.why = refused, &notAllowed
			return false
		case filter.Drop:
			x.outcome = dropped
			return false
		}
	}
	// Who has a good cookie, or a connection, is who it seems to be.
	if w.cfg.Limiter == nil || x.client.Transport != UDP || w.cookie.good {
		return true
	}
	switch w.cfg.Limiter.Count(x.client.Addr, x.now) {
	case filter.Send:
		return true
	case filter.SendTruncated:
		if w.query.Opcode == dnswire.OpcodeNotify {
			x.outcome = dropped // who sent it takes any answer for a good one
			return false
		}
		x.outcome, x.truncated = answered, true
		if w.cookie.asked {
			x.outcome, x.truncated = badCookie, false // RFC 7873, section 5.2.3
		}
	case filter.SendNothing:
		x.outcome = dropped
	}
	return false
}

// solveByRule answers with what somebody wrote down for the name, if anybody did.
func (w *Worker) solveByRule(x *exchange, name []byte) (done bool) {
	r, is := w.byRule(name, w.query.Type)
	switch {
	case !is:
		return false
	case r.blocks:
		x.why = &blocked
	}
	if r.denies {
		x.outcome = denied
		return true
	}
	x.outcome, x.ours = answered, true
	if r.set.Count > 0 {
		w.addFound(x, r.set)
	}
	return true
}

// ruled is what somebody wrote down for a name: that it is blocked, and so denied or
// with other records, or its records.
type ruled struct {
	set            dnswire.RRset
	blocks, denies bool
}

// byRule gives what somebody wrote down for the name and the type, if anybody did.
func (w *Worker) byRule(name []byte, t dnswire.Type) (r ruled, is bool) {
	if r.set, r.denies, r.blocks = w.cfg.Rules.Blocked(name, t); r.blocks {
		return r, true
	}
	r.set, is = w.cfg.Rules.Host(name, t)
	return r, is
}
