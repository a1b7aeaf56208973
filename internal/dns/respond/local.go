package respond

import (
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

var blocked = zone.EDE{Code: dnswire.EDEBlocked, Text: "the name is blocked here"}

// localAnswer is what the rules hold for a name: a blocklist entry, which denies
// the name or gives it other records, or the records of a hosts entry.
type localAnswer struct {
	set             dnswire.RRset
	blocked, denied bool
}

// findLocal returns what the rules hold for the name and the type.
func (w *Worker) findLocal(name []byte, t dnswire.Type) (a localAnswer, exists bool) {
	if a.set, a.denied, a.blocked = w.cfg.Rules.Blocked(name, t); a.blocked {
		return a, true
	}
	a.set, exists = w.cfg.Rules.Host(name, t)
	return a, exists
}

// solveByRule answers from the rules. done reports whether they hold the name.
func (w *Worker) solveByRule(x *exchange, name []byte) (v verdict, done bool) {
	a, exists := w.findLocal(name, x.query.Type)
	if !exists {
		return verdict{}, false
	}
	if a.blocked {
		v.ede = &blocked
	}
	if a.denied {
		v.outcome = denied
		return v, true
	}
	v.outcome, v.authoritative = answered, true
	if a.set.Count > 0 {
		v.truncated = !w.addFound(x, a.set)
	}
	return v, true
}
