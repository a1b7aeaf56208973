package stubresolver

import (
	"fmt"
	"net/netip"
	"strings"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/resolvconf"
)

// musl 1.2.3: src/network/resolvconf.c (resolv.conf), lookup_name.c (the search list, and
// the interpretation of responses), res_msend.c (servers and attempts), res_mkquery.c.
//
// Since 1.2.4 musl skips a candidate that cannot be sent like one that does not exist
// (here it ends the search, or, with the root as search domain, is sent malformed), returns
// EAI_NODATA instead of EAI_NONAME for a response without records, and repeats queries
// with truncated responses over TCP.

const (
	muslAttempts    = 2
	muslMaxAttempts = 10
	// muslLine is the maximum length of a line, in octets without the line feed. musl
	// ignores longer lines.
	muslLine = 254
	// muslName is the maximum length of a name, in octets with a trailing dot, and
	// muslBuffer the size of the buffer for a candidate.
	muslName   = 254
	muslBuffer = 256
)

func (r *resolver) musl() {
	r.setServers(loopback)
	r.muslFile()
	if r.literal(cAddress, func(name string) bool { return name == "localhost" }) {
		return
	}
	if !r.forAddresses() {
		r.trace.Unsearched = "musl's res_search does not use the search list"
		r.muslTry(r.Name, AsGiven, -1)
		r.muslEnd()
		return
	}
	bare := strings.TrimSuffix(r.Name, ".")
	if bare == "" || len(r.Name) > muslName || strings.HasSuffix(bare, ".") {
		r.end(NoSuchName, "it is empty, too long, or ends in two dots: no query is sent")
		return
	}
	r.muslSearch(bare)
}

// muslFile interprets resolv.conf.
func (r *resolver) muslFile() {
	r.trace.Ndots, r.attempts, r.size = 1, muslAttempts, plainSize
	if line := strings.Join(r.Conf.Searches, " "); len("search ")+len(line) <= muslLine {
		r.trace.Searches = r.Conf.Searches
	} else {
		r.trace.Unsearched = fmt.Sprintf("the search line is longer than %d characters: musl ignores it", muslLine)
	}
	if len(resolvconf.Config{Options: r.Conf.Options}.String()) > muslLine+len("\n") {
		return
	}
	if n, digits, _ := number(r.Conf, "ndots"); digits {
		r.trace.Ndots = min(n, maxNdots)
	}
	if n, digits, _ := number(r.Conf, "attempts"); digits {
		r.attempts = min(n, muslMaxAttempts)
	}
	n, digits, _ := number(r.Conf, "timeout")
	r.hasty = digits && n == 0
}

// muslSearch simulates name_from_dns_search for a name without its trailing dot.
func (r *resolver) muslSearch(bare string) {
	cause := Last
	searches := r.trace.Searches
	switch {
	case r.rooted():
		cause, searches = TrailingDot, nil
		r.trace.Unsearched = "the name ends in a dot"
	case r.dots() >= r.trace.Ndots:
		cause, searches = EnoughDots, nil
		r.trace.Unsearched = fmt.Sprintf("the name has at least ndots (%d) dots: musl tries it as given only", r.trace.Ndots)
	}
	for i, domain := range searches {
		if len(domain) >= muslBuffer-len(bare)-1 {
			r.candidate(bare+"."+domain, Searched, i).Skipped = "the name is too long for musl's buffer"
			continue
		}
		if !r.muslTry(bare+"."+domain, Searched, i) {
			r.muslEnd()
			return
		}
	}
	r.muslTry(r.Name, cause, -1)
	r.muslEnd()
}

// muslEnd ends the lookup with the outcome of the last candidate.
func (r *resolver) muslEnd() {
	last := r.trace.Candidates[len(r.trace.Candidates)-1]
	switch {
	case last.Outcome == Found:
		r.end(Found, "it was found")
	case last.Outcome == Crashed:
		r.end(Crashed, "with attempts:0, musl kills the program")
	case last.Skipped != "":
		r.end(last.Outcome, "a name that cannot be sent ends musl's search")
	case last.Outcome == TryAgain:
		r.end(TryAgain, "no server answered, or all failed: musl stops")
	case last.Outcome == NoData && r.forAddresses():
		r.end(NoSuchName,
			"a candidate exists, without records of the type: musl stops, and reports that the name does not exist")
	default:
		r.end(last.Outcome, "nothing was found")
	}
}

// muslTry simulates name_from_dns, and reports whether the search continues.
func (r *resolver) muslTry(name string, cause Cause, domain int) (continues bool) {
	t := r.candidate(name, cause, domain)
	t.Outcome = NoSuchName
	bare := strings.TrimSuffix(name, ".")
	if t.Skipped = fault(bare); t.Skipped != "" {
		return false
	}
	switch {
	case r.attempts == 0:
		t.Skipped, t.Outcome = "attempts is 0: musl divides by it, and the program is killed", Crashed
		return false
	case r.hasty:
		t.Skipped, t.Outcome = "timeout is 0: musl sends nothing", TryAgain
		return false
	case strings.HasSuffix(bare, "."):
		t.Why = "the root as search domain: musl 1.2.3 sends a malformed query, to which no server responds"
	}
	t.Outcome = NoData
	for _, reply := range r.muslSend(t) { // all must have arrived, and none may be NXDOMAIN
		switch {
		case reply.Loss != None:
			t.Outcome = TryAgain
			return false
		case reply.RCode == dnswire.NXDomain:
			t.Outcome = NoSuchName
			return true
		case reply.Records > 0:
			t.Outcome = Found
		}
	}
	return false
}

// muslSend simulates __res_msend_rc. It returns a response for each type; those that did
// not arrive are lost.
func (r *resolver) muslSend(t *Candidate) []Response {
	m := muslExchange{resolver: r, t: t, types: r.types()}
	m.replies = make([]Response, len(m.types))
	for i := range m.replies {
		m.replies[i].Loss = Timeout
	}
	for attempt := 1; attempt <= r.attempts && m.open() > 0; attempt++ {
		m.attempt(attempt)
	}
	return m.replies
}

type muslExchange struct {
	*resolver
	t       *Candidate
	types   []dnswire.Type
	replies []Response // by index of types
}

// open returns the number of types without a response.
func (m *muslExchange) open() int {
	n := 0
	for _, reply := range m.replies {
		if reply.Loss != None {
			n++
		}
	}
	return n
}

// attempt queries all servers at once for the open types. musl uses the first response
// with NOERROR or NXDOMAIN, immediately repeats a query after SERVFAIL, in total twice per
// type, and ignores other codes. The timeout is for all attempts together; if it cannot be
// divided evenly, there may be one more attempt.
func (m *muslExchange) attempt(attempt int) {
	m.t.round()
	type arrival struct {
		of     int // index of the type
		server netip.Addr
		reply  Response
	}
	var arrivals []arrival
	ask := func(of int, server netip.Addr) {
		q := Exchange{Server: server, Attempt: attempt, Query: Query{Type: m.types[of]}}
		arrivals = append(arrivals, arrival{of, server, m.send(m.t, q)})
	}
	for i, reply := range m.replies {
		for _, server := range m.servers {
			if reply.Loss != None {
				ask(i, server)
			}
		}
	}
	retries := 2 * len(m.types)
	for ; len(arrivals) > 0 && m.open() > 0; arrivals = arrivals[1:] {
		a := arrivals[0]
		if a.reply.Loss != None || m.replies[a.of].Loss == None {
			continue
		}
		switch a.reply.RCode {
		case dnswire.NoError, dnswire.NXDomain:
			m.replies[a.of] = a.reply
		case dnswire.ServFail:
			if retries > 0 {
				retries--
				ask(a.of, a.server)
			}
		}
	}
}
