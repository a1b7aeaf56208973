package explain

import (
	"iter"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// exchanges iterates over all queries and their answers, with the names queried.
func (d *diagnoser) exchanges() iter.Seq2[string, *Exchange] {
	return func(yield func(string, *Exchange) bool) {
		for i := range d.e.Candidates {
			for k := range d.e.Candidates[i].Exchanges {
				if !yield(d.e.Candidates[i].Name, &d.e.Candidates[i].Exchanges[k]) {
					return
				}
			}
		}
	}
}

// silent reports whether a server did not respond to any query.
func (d *diagnoser) silent() bool {
	answered := make(map[string]bool)
	for _, q := range d.exchanges() {
		answered[q.Server] = answered[q.Server] || !q.lost()
	}
	for _, q := range d.exchanges() {
		if !answered[q.Server] {
			cure := "check that it runs and can be reached from where the queries are sent: --server sends them from this " +
				"machine to another address, and --tcp also through kubectl port-forward"
			if q.instead() {
				cure = "check that a DNS server listens there; kubectl port-forward takes TCP only, so that it needs --tcp"
			}
			d.add("server-silent", cure, "%s does not answer (%s)", q.Server, q.Result)
			return true
		}
	}
	return false
}

// lost reports whether there was no response.
func (q *Exchange) lost() bool { return q.Result == timeout || q.Result == unreachable }

// instead reports whether a server was asked that the resolv.conf does not have.
func (q Exchange) instead() bool { return q.to.IsValid() && q.Server != serverName(q.to) }

// failing reports whether a server did not answer for a name of the cluster. What it says of
// names outside the cluster is considered in outside, where the name stands for nothing else.
func (d *diagnoser) failing() bool {
	for name, q := range d.exchanges() {
		if !d.inDomain(name) {
			continue
		}
		switch {
		case q.Result == dnswire.ServFail.String() && d.modelFails(name, q):
			if d.notLoaded(cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindPod) {
				return true
			}
			continue // the objects are the cause
		case q.Result == dnswire.ServFail.String() && q.code == uint16(dnswire.EDENotReady):
			d.add("server-not-ready", "check the server's /readyz, its log and the rights of its account",
				"%s has not read what %s depends on (SERVFAIL%s)", q.Server, name, noteOf(q))
		case q.Result == dnswire.ServFail.String():
			d.add("server-fails", "check the server's /readyz and its log", "%s fails to answer for %s (SERVFAIL%s)",
				q.Server, name, noteOf(q))
		case q.Result == dnswire.Refused.String():
			d.add("server-refuses", "check that the server has this cluster's domain (dns.zones) and that its rules "+
				"allow this client",
				"%s refuses to answer for %s, a name of the cluster (REFUSED%s)", q.Server, name, noteOf(q))
		case q.lost():
			d.add("server-silent", "check the server's log", "%s does not answer for %s (%s)", q.Server, name, q.Result)
		default:
			continue
		}
		return true
	}
	return false
}

// zoneNotLoaded reports whether a server does not answer because it has not loaded the zone
// of the name, or of the alias' target.
func (d *diagnoser) zoneNotLoaded() bool {
	for name, q := range d.exchanges() {
		if q.Result != dnswire.ServFail.String() || q.code != uint16(dnswire.EDENotReady) {
			continue
		}
		for _, r := range q.Records {
			if r.Type == dnswire.TypeCNAME.String() {
				name = r.Data
			}
		}
		if d.inDomain(name) {
			continue
		}
		if p := d.zoneProblem(name); p != nil {
			d.add("zone-not-loaded", "correct the file; the server reads it again when it changes",
				"%s does not resolve because the %s", name, p)
			return true
		}
		d.add("server-not-ready", "check the server's log, and /readyz?verbose of its admin address",
			"%s has not loaded the zone of %s (SERVFAIL%s)", q.Server, name, noteOf(q))
		return true
	}
	return false
}

// zoneProblem returns why the zone of a name is not loaded. What this command reads is not
// what a live server has read.
func (d *diagnoser) zoneProblem(name string) *localzone.ZoneError {
	if d.Model != nil || d.ZoneProblem == nil {
		return nil
	}
	return d.ZoneProblem(name)
}

// modelFails reports whether the model has no answer to a query either.
func (d *diagnoser) modelFails(name string, q *Exchange) bool {
	if d.Model == nil {
		return true
	}
	model := d.modelAnswer(name, q)
	return model.Message != nil && model.Message.Code == dnswire.ServFail
}

// modelAnswer returns the model's answer to a query that was sent to a server.
func (d *diagnoser) modelAnswer(name string, q *Exchange) Answer {
	t, err := dnswire.ParseType(q.Type)
	if err != nil || len(d.Node.ClusterDNS) == 0 {
		return Answer{}
	}
	return d.Model(d.Node.ClusterDNS[0], stubresolver.Query{Name: name, Type: t, TCP: true, Size: dnswire.MaxMessage})
}

func noteOf(q *Exchange) string {
	if q.Note == "" {
		return ""
	}
	return ": " + q.Note
}

// isClusterDNS reports whether a query was sent to the cluster DNS, or to a node's cache.
func (d *diagnoser) isClusterDNS(q *Exchange) bool {
	return slices.Contains(d.Node.ClusterDNS, q.to) || q.to.IsLinkLocalUnicast()
}

// differs reports whether the answer of the cluster DNS differs from the model.
func (d *diagnoser) differs() bool {
	if d.Model == nil || len(d.Node.ClusterDNS) == 0 {
		return false
	}
	for name, q := range d.exchanges() {
		t, err := dnswire.ParseType(q.Type)
		if err != nil || q.assumed || !d.isClusterDNS(q) {
			continue
		}
		model := d.modelAnswer(name, q)
		if model.Message == nil || model.Message.Code == dnswire.ServFail || isFailure(q.Result) {
			continue // one of them has no answer
		}
		records := q.Records
		if externalTarget(model, t) != "" { // the server follows the alias, the model does not
			records = withOwnersOf(records, model.Message.Answer)
		}
		live, known := answerText(q.Result, records), answerText(resultOf(model.Message, t), model.Message.Answer)
		if live != known {
			d.add("server-differs",
				"check whether the server is up to date (/readyz, /debug/model), and whether it serves this cluster",
				"%s answers %s %s with %s; the cluster that was read has %s", q.Server, name, q.Type, live, known)
			return true
		}
	}
	return false
}

// withOwnersOf returns the records whose owner names have records in the model.
func withOwnersOf(records, model []dnswire.Record) (owned []dnswire.Record) {
	for _, r := range records {
		if slices.ContainsFunc(model, func(m dnswire.Record) bool { return strings.EqualFold(m.Name, r.Name) }) {
			owned = append(owned, r)
		}
	}
	return owned
}

// answerText returns an answer as text that does not depend on the order of its records.
func answerText(result string, records []dnswire.Record) string {
	if len(records) == 0 {
		return result
	}
	var words []string
	for _, r := range records {
		words = append(words, r.Data)
	}
	slices.Sort(words)
	return firstFew(slices.Compact(words))
}
