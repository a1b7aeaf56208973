package respond

import (
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// route chooses the stage that answers, by opcode, class and type.
func (w *Worker) route(x *exchange) verdict {
	q := x.query
	isTransfer := q.Type == dnswire.TypeAXFR || q.Type == dnswire.TypeIXFR
	switch {
	case q.Opcode == dnswire.OpcodeNotify:
		return w.notify(x)
	case q.Class == dnswire.ClassCHAOS && len(w.chaos) > 0:
		return w.solveChaos(x)
	case q.Class != dnswire.ClassIN:
		return verdict{outcome: refused}
	case isTransfer && w.cfg.Transfers != nil:
		return w.beginTransfer(x)
	case isTransfer:
		return verdict{outcome: refused, ede: &noTransfer}
	}
	return w.solve(x)
}

// solveChaos answers queries for the server's identity and version in class
// CHAOS.
func (w *Worker) solveChaos(x *exchange) verdict {
	name, _, err := dnsname.FromWire(x.query.Question)
	set, ok := w.chaos[name]
	if err != nil || !ok || x.query.Type != dnswire.TypeTXT && x.query.Type != dnswire.TypeANY {
		return verdict{outcome: refused}
	}
	return verdict{outcome: answered, truncated: !w.response.AddRRset(dnswire.Answer, set, 0)}
}
