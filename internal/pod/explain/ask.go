package explain

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// querier sends queries, and keeps the answers, so that each query is sent once.
type querier struct {
	query        QueryFunc
	serverSearch func(name string) []string // nil if the server does not search
	answers      map[queryKey]Answer
}

// queryKey identifies a query.
type queryKey struct {
	server netip.Addr
	stubresolver.Query
}

func (a *querier) answer(server netip.Addr, q stubresolver.Query) Answer {
	key := queryKey{server, q}
	answer, known := a.answers[key]
	if !known {
		answer = a.query(server, q)
		if answer.NotAsked != "" {
			answer = a.search(server, q, answer)
		}
		a.answers[key] = answer
	}
	return answer
}

// search returns the answer of a server that applies the search list, for a name of which
// the model has no answer: that for the first name of the search list which is an alias
// of a name outside the cluster, as far as is known. If there is none, it returns notSent.
func (a *querier) search(server netip.Addr, q stubresolver.Query, notSent Answer) Answer {
	if a.serverSearch == nil {
		return notSent
	}
	for _, name := range a.serverSearch(q.Name) {
		candidate := q
		candidate.Name = name
		answer := a.query(server, candidate)
		if externalTarget(answer, q.Type) == "" {
			continue
		}
		m := *answer.Message
		alias := dnswire.Record{Name: q.Name, TTL: m.Answer[0].TTL, Type: dnswire.TypeCNAME.String(), Data: name}
		m.Answer = slices.Concat([]dnswire.Record{alias}, m.Answer)
		answer.Message = &m
		return answer
	}
	return notSent
}

// response returns the answer in the form that the simulated resolvers use.
func (a *querier) response(server netip.Addr, q stubresolver.Query) stubresolver.Response {
	answer := a.answer(server, q)
	if answer.Message == nil {
		if answer.NotAsked != "" {
			return stubresolver.Response{RCode: dnswire.NXDomain}
		}
		return stubresolver.Response{Loss: answer.Loss}
	}
	m := answer.Message
	response := stubresolver.Response{RCode: m.Code, Truncated: slices.Contains(m.Flags, "tc")}
	for _, r := range m.Answer {
		switch r.Type {
		case q.Type.String():
			response.Records++
		case "CNAME":
			response.Alias = r.Data
		}
	}
	if externalTarget(answer, q.Type) != "" {
		response.Records = 1 // assume that the target exists
	}
	return response
}

// externalTarget returns the target of the answer's last alias, if it is outside the
// cluster, where the model does not follow it, else "".
func externalTarget(answer Answer, t dnswire.Type) (target string) {
	if answer.Message == nil || !answer.FromModel {
		return ""
	}
	return Unfollowed(answer.Message, t)
}

// Unfollowed returns the target of the message's last alias, if the server did not look it
// up, else "".
func Unfollowed(m *dnswire.Message, t dnswire.Type) (target string) {
	if resultOf(m, t) != noData {
		return ""
	}
	for _, r := range m.Answer {
		if r.Type == "CNAME" {
			target = r.Data
		}
	}
	if slices.ContainsFunc(m.Authority, func(r dnswire.Record) bool { return r.Type == "SOA" }) {
		return "" // the target does not exist
	}
	if slices.ContainsFunc(m.Errors, func(e dnswire.ExtendedError) bool { return e.Code == uint16(dnswire.EDEFiltered) }) {
		return "" // it is answered without records of the type
	}
	return target
}
