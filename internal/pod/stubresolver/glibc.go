package stubresolver

import (
	"fmt"
	"net/netip"
	"strings"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// glibc 2.36: resolv/res_init.c (resolv.conf), resolv/res_query.c (the search list, and the
// interpretation of responses), resolv/res_send.c (servers, attempts, A beside AAAA),
// resolv/nss_dns/dns-host.c and sysdeps/posix/getaddrinfo.c (the result for the program).

// The limits and defaults of resolv/resolv.h.
const (
	glibcAttempts    = 2
	glibcMaxAttempts = 5
	maxNdots         = 15 // also of musl and Go
	glibcEDNSSize    = 1200
	plainSize        = 512
	// glibcRoom is the size of getaddrinfo's first buffer, in octets.
	glibcRoom = 1024
)

// glibc has the state that is kept between candidates.
type glibc struct {
	*resolver
	// single and reopen are the options single-request and single-request-reopen: A, and
	// then AAAA. A server that answers only one of two queries sets them permanently.
	single, reopen bool
	streams        bool // use-vc: TCP only
	rotate         bool
	sends          int // the number of passes over the list of servers
	noAAAA         bool
	// first is the response code that was read first from the last server. The search
	// uses it to distinguish SERVFAIL from other failures.
	first dnswire.RCode
	// silent reports whether no server responded to the last query, or all failed.
	silent bool
	// need is the buffer space for the addresses found, in octets.
	need int
}

// answer is the result for a candidate.
type answer struct {
	outcome Outcome
	// ends reports whether the search is over: there are records, an alias, or no server
	// to query.
	ends bool
	// unreachable reports whether nothing listens at any server address.
	unreachable bool
}

func (r *resolver) glibc() {
	r.setServers(loopback)
	r.trace.Searches = r.Conf.Searches
	if domain := domainOf(r.Hostname); len(r.Conf.Searches) == 0 && domain != "" {
		r.trace.Searches = []string{domain}
	}
	g := &glibc{resolver: r}
	g.options()
	if r.literal(cAddress, func(name string) bool { return strings.EqualFold(name, "localhost") }) {
		return
	}
	if r.forAddresses() && !isHostname(r.Name) {
		r.end(NoSuchName, "it is not a valid hostname: no query is sent")
		return
	}
	g.search()
	if !r.forAddresses() {
		return
	}
	for room := glibcRoom; r.trace.Outcome == Found && g.need > room; room *= 2 {
		last := len(r.trace.Candidates) - 1
		r.trace.Candidates[last].Why = fmt.Sprintf(
			"the addresses do not fit into getaddrinfo's buffer of %d octets: it looks up again with a larger one", room)
		g.search()
	}
	r.trace.Outcome = g.getaddrinfoOutcome(r.trace.Outcome)
}

// getaddrinfoOutcome returns the outcome that getaddrinfo reports for that of the search.
// For A it uses other functions than for AAAA or both, which map errors differently.
func (g *glibc) getaddrinfoOutcome(o Outcome) Outcome {
	switch {
	case o == Found || o == NoData:
	case g.Type == dnswire.TypeA && g.silent && o != TryAgain:
		return NoData
	case g.Type == dnswire.TypeA && !g.silent && o == TryAgain, o == Failed:
		return NoSuchName
	}
	return o
}

func (g *glibc) options() {
	g.trace.Ndots, g.attempts, g.size = 1, glibcAttempts, plainSize
	if n, _, there := number(g.Conf, "ndots"); there {
		g.trace.Ndots = min(n, maxNdots)
	}
	if n, _, there := number(g.Conf, "attempts"); there {
		g.attempts = min(n, glibcMaxAttempts)
	}
	if has(g.Conf, "edns0") {
		g.size = glibcEDNSSize
	}
	g.reopen = has(g.Conf, "single-request-reopen")
	g.single = g.reopen || has(g.Conf, "single-request")
	g.streams = has(g.Conf, "use-vc")
	g.rotate = has(g.Conf, "rotate")
	g.noAAAA = has(g.Conf, "no-aaaa")
}

// isHostname reports whether getaddrinfo looks up a name at all
// (resolv/res-name-checking.c): it has letters, digits, hyphens and underscores only, and
// does not begin with a hyphen.
func isHostname(name string) bool {
	if fault(name) != "" || strings.HasPrefix(name, "-") {
		return false
	}
	return !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	})
}

// search simulates __res_context_search.
func (g *glibc) search() {
	dots, rooted := g.dots(), g.rooted()
	var early answer
	switch {
	case rooted:
		g.trace.Unsearched = "the name ends in a dot"
		if only := g.query(g.Name, TrailingDot, -1); !g.ended(only) {
			g.end(only.outcome, "nothing was found, and the search list does not apply to a name that ends in a dot")
		}
		return
	case dots >= g.trace.Ndots:
		if early = g.query(g.Name, EnoughDots, -1); g.ended(early) {
			return
		}
	}
	list := g.domains()
	if g.ended(list.last) {
		return
	}
	tried := early.outcome != Untried || list.root
	if !tried && (dots > 0 || !list.any || !has(g.Conf, "no-tld-query", "no_tld_query")) {
		if list.last = g.query(g.Name, Last, -1); list.last.ends {
			g.ended(list.last)
			return
		}
	}
	switch {
	case early.outcome != Untried:
		g.end(early.outcome, "nothing was found; the result for the name as given counts")
	case list.noData:
		g.end(NoData, "nothing was found; a candidate exists, without records of the type")
	case list.servFail:
		g.end(TryAgain, "nothing was found; for a candidate all servers failed")
	default:
		g.end(list.last.outcome, "nothing was found")
	}
}

// ended ends the lookup if a does, and reports whether it did.
func (g *glibc) ended(a answer) bool {
	switch {
	case !a.ends:
		return false
	case a.outcome == Found:
		g.end(Found, "it was found")
	case a.unreachable:
		g.end(a.outcome, "no server can be reached: glibc gives up")
	default:
		g.end(a.outcome, "the answer is an alias without records of the type: glibc stops the search")
	}
	return true
}

// searched is the result of the search domains.
type searched struct {
	any    bool // whether there are search domains
	root   bool // whether the root is one of them, which is the name as given
	last   answer
	noData bool
	// servFail reports whether all servers answered SERVFAIL for a candidate.
	servFail bool
}

func (g *glibc) domains() searched {
	list := searched{last: answer{outcome: NoSuchName}}
	for i, domain := range g.trace.Searches {
		list.any = true
		domain = strings.TrimPrefix(domain, ".")
		list.root = list.root || domain == ""
		a := g.query(g.Name+"."+domain, Searched, i)
		a.ends = a.ends || a.unreachable
		list.last = a
		switch {
		case a.ends:
			return list
		case a.outcome == NoData:
			list.noData = true
		case a.outcome == NoSuchName:
		case a.outcome == TryAgain && g.first == dnswire.ServFail:
			list.servFail = true
		default:
			g.trace.Candidates[len(g.trace.Candidates)-1].Why = "glibc skips the other search domains after a failure " +
				"that is not SERVFAIL"
			return list
		}
	}
	return list
}

// query simulates __res_context_query.
func (g *glibc) query(name string, cause Cause, domain int) answer {
	t := g.candidate(name, cause, domain)
	a := g.answer(t, name)
	t.Outcome = a.outcome
	return a
}

func (g *glibc) answer(t *Candidate, name string) answer {
	g.first = dnswire.NoError
	if t.Skipped = fault(name); name == "" {
		t.Skipped = "the name is empty"
	}
	if t.Skipped != "" {
		return answer{outcome: Failed}
	}
	types := g.types()
	if g.noAAAA && g.forAddresses() {
		types = []dnswire.Type{dnswire.TypeA}
	}
	replies, unreachable := g.exchange(t, types)
	if g.silent = len(replies) == 0; g.silent {
		return answer{outcome: TryAgain, unreachable: unreachable}
	}
	if g.noAAAA && g.Type == dnswire.TypeAAAA { // the response for A is used
		replies[0].Records, replies[0].Alias = 0, ""
	}
	g.need = g.room(t.Name, replies)
	return g.interpret(replies)
}

// room returns the space that the responses use in getaddrinfo's buffer, in octets, with
// pointers of eight octets: for one family the lists of pointers and names, for both
// families a struct gaih_addrtuple per address.
func (g *glibc) room(name string, replies []Response) int {
	const pointer, tuple = 8, 40
	records := 0
	for _, reply := range replies {
		records += reply.Records
	}
	names := []string{name}
	if alias := replies[0].Alias; alias != "" {
		names = append(names, complete(alias))
	}
	if g.Type == 0 { // the last name only
		return tuple*records + align(len(names[len(names)-1]), pointer)
	}
	addr := 16
	if g.Type == dnswire.TypeA {
		addr = 4
	}
	text := len(strings.Join(names, "")) // a NUL replaces each trailing dot
	return align(align(text, 4)+addr*records, pointer) + pointer*(records+1+len(names))
}

// align rounds n up to a multiple of of.
func align(n, of int) int { return (n + of - 1) / of * of }

// interpret returns the result of __res_context_query and nss_dns for one or two
// responses.
func (g *glibc) interpret(replies []Response) answer {
	alias := false
	code := dnswire.NoError
	for _, reply := range replies {
		if reply.RCode == dnswire.NoError {
			if reply.Records > 0 {
				return answer{outcome: Found, ends: true}
			}
			alias = alias || reply.Alias != ""
		} else if code == dnswire.NoError {
			code = reply.RCode
		}
	}
	switch {
	case alias && (g.Type == 0 || g.Type == dnswire.TypeAAAA):
		return answer{outcome: NoSuchName, ends: true}
	case alias:
		return answer{outcome: NoData, ends: true}
	}
	return answer{outcome: verdict(code)}
}

// exchange simulates __res_context_send. It returns the responses that glibc uses, or none
// if all servers failed, and then whether nothing listens at any address.
func (g *glibc) exchange(t *Candidate, types []dnswire.Type) (replies []Response, unreachable bool) {
	offset := 0
	if g.rotate { // glibc begins at a random server, the simulation at the first
		offset = g.sends
	}
	g.sends++
	streams, unreachable := g.streams, !g.streams
	if g.attempts == 0 {
		t.Skipped = "attempts is 0: glibc sends nothing"
	}
	for attempt := 1; attempt <= g.attempts; attempt++ {
		for i := range g.servers {
			v := visit{glibc: g, t: t, server: g.servers[(i+offset)%len(g.servers)], attempt: attempt}
			var heard bool
			if !streams {
				replies, streams, heard = v.datagrams(types)
				unreachable = unreachable && !heard
			}
			if streams {
				replies, heard = v.stream(types)
				unreachable = !heard
			}
			if len(replies) > 0 {
				return replies, false
			}
		}
		if streams { // at most one attempt over TCP
			break
		}
	}
	return nil, unreachable
}

// visit is one attempt with one server.
type visit struct {
	*glibc
	t       *Candidate
	server  netip.Addr
	attempt int
	// open reports whether TCP begins while a UDP response is outstanding.
	open bool
}

func (v *visit) query(q Query) Response {
	return v.send(v.t, Exchange{Server: v.server, Attempt: v.attempt, Query: q})
}

// isFailure reports whether glibc queries the next server after this code over UDP.
func isFailure(code dnswire.RCode) bool {
	return code == dnswire.ServFail || code == dnswire.NotImp || code == dnswire.Refused
}

// datagrams simulates send_dg. It returns the responses that glibc uses, whether TCP is
// needed, and whether anything listens at the address.
func (v *visit) datagrams(types []dnswire.Type) (replies []Response, streams, heard bool) {
	if len(types) == 2 && !v.single {
		v.t.round()
		both := []Response{v.query(Query{Type: types[0]}), v.query(Query{Type: types[1]})}
		replies, streams, heard = v.read(both)
		if streams || len(replies) == 0 || both[0].Loss == None && both[1].Loss == None {
			return replies, streams, heard
		}
		// Only one of two responses arrived: the server may not handle two queries at once.
		v.single = true
	}
	if len(types) == 2 {
		return v.serially(types)
	}
	v.t.round()
	return v.read([]Response{v.query(Query{Type: types[0]})})
}

// read interprets the responses to queries sent at the same time. One answer beside a
// failure is enough; failures alone are no responses.
func (v *visit) read(all []Response) (replies []Response, streams, heard bool) {
	read := 0
	for i, reply := range all {
		switch reply.Loss {
		case Unreachable:
			return nil, false, heard
		case Timeout:
			heard = true
			continue
		}
		heard = true
		if read++; read == 1 {
			v.first = reply.RCode
		}
		switch {
		case isFailure(reply.RCode):
		case reply.Truncated:
			v.open = i < len(all)-1
			return nil, true, true
		default:
			replies = append(replies, reply)
		}
	}
	return replies, false, heard
}

// serially sends A, and AAAA after an answer to A. After a failure of A, glibc waits for
// a response to the query for AAAA that it did not send.
func (v *visit) serially(types []dnswire.Type) (replies []Response, streams, heard bool) {
	for {
		v.t.round()
		replies, streams, heard = v.read([]Response{v.query(Query{Type: types[0]})})
		if streams || len(replies) == 0 {
			return replies, streams, heard
		}
		v.t.round()
		second := v.query(Query{Type: types[1]})
		switch {
		case second.Loss == Unreachable:
			return nil, false, true
		case second.Loss == Timeout && !v.reopen:
			v.reopen = true
			continue
		case second.Loss == Timeout || isFailure(second.RCode):
			return replies, false, true
		case second.Truncated:
			return nil, true, true
		}
		return append(replies, second), false, true
	}
}

// stream simulates send_vc: both queries over one connection. glibc uses all responses,
// including failures.
func (v *visit) stream(types []dnswire.Type) (replies []Response, heard bool) {
	if !v.open {
		v.t.round()
	}
	for _, qtype := range types {
		replies = append(replies, v.query(Query{Type: qtype, TCP: true}))
	}
	for _, reply := range replies {
		if reply.Loss != None {
			return nil, reply.Loss != Unreachable
		}
	}
	v.first = replies[0].RCode
	return replies, true
}
