package explain

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// asker asks, and remembers the answers.
type asker struct {
	ask      QueryFunc
	searched func(name string) []string // nil where nobody searches
	answers  map[asked]Answer
}

// asked is a question that is asked once: whoever asks again has the same
// answer.
type asked struct {
	server netip.Addr
	stubresolver.Query
}

func (a *asker) answer(server netip.Addr, q stubresolver.Query) Answer {
	key := asked{server, q}
	answer, known := a.answers[key]
	if !known {
		answer = a.ask(server, q)
		if answer.NotAsked != "" {
			answer = a.search(server, q, answer)
		}
		a.answers[key] = answer
	}
	return answer
}

// search is the answer of a search in which nothing is found without those that
// were not asked: it ends at the first alias that leads to them, as far as is
// known. Where there is none, it is none.
func (a *asker) search(server netip.Addr, q stubresolver.Query, none Answer) Answer {
	if a.searched == nil {
		return none
	}
	for _, name := range a.searched(q.Name) {
		candidate := q
		candidate.Name = name
		answer := a.ask(server, candidate)
		if leadsOut(answer, q.Type) == "" {
			continue
		}
		m := *answer.Message
		alias := dnswire.Record{Name: q.Name, TTL: m.Answer[0].TTL, Type: dnswire.TypeCNAME.String(), Data: name}
		m.Answer = slices.Concat([]dnswire.Record{alias}, m.Answer)
		answer.Message = &m
		return answer
	}
	return none
}

// reply is the answer as resolvers take it.
func (a *asker) reply(server netip.Addr, q stubresolver.Query) stubresolver.Response {
	answer := a.answer(server, q)
	if answer.Message == nil {
		if answer.NotAsked != "" {
			return stubresolver.Response{RCode: dnswire.NXDomain}
		}
		return stubresolver.Response{Loss: answer.Loss}
	}
	m := answer.Message
	reply := stubresolver.Response{RCode: m.Code, Truncated: slices.Contains(m.Flags, "tc")}
	for _, r := range m.Answer {
		switch r.Type {
		case q.Type.String():
			reply.Records++
		case "CNAME":
			reply.Alias = r.Data
		}
	}
	if leadsOut(answer, q.Type) != "" {
		reply.Records = 1 // as far as is known
	}
	return reply
}

// leadsOut is where an alias leads that was not followed, since what it leads to
// is not the cluster's; "" where none does.
func leadsOut(answer Answer, t dnswire.Type) (target string) {
	m := answer.Message
	if m == nil || !answer.FromModel || resultOf(m, t) != noData {
		return ""
	}
	for _, r := range m.Answer {
		if r.Type == "CNAME" {
			target = r.Data
		}
	}
	if slices.ContainsFunc(m.Authority, func(r dnswire.Record) bool { return r.Type == "SOA" }) {
		return "" // it was followed, and there is nothing
	}
	return target
}
