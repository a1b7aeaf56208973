package stubresolver

import (
	"strings"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// Windows: DNS for Services and Pods, "DNS resolution on Windows nodes". The page defines
// the names that are tried: a name with a dot is fully qualified, others get the only
// suffix. It does not define how servers are queried, and Windows versions differ. The
// simulation queries each server once, in order, A beside AAAA, until one responds with
// NOERROR or NXDOMAIN.
func (r *resolver) windows() {
	r.setServers()
	r.trace.Ndots, r.size, r.attempts = 1, goSize, 1
	r.trace.Searches = r.Conf.Searches[:min(len(r.Conf.Searches), 1)]
	if r.literal(cAddress, func(name string) bool { return strings.EqualFold(name, "localhost") }) {
		return
	}
	if len(r.servers) == 0 {
		r.end(TryAgain, "there is no server to ask")
		return
	}
	name, cause, domain := r.Name, AsGiven, -1
	switch {
	case r.rooted():
		cause = TrailingDot
		r.trace.Unsearched = "the name ends in a dot"
	case r.dots() > 0:
		cause = EnoughDots
		r.trace.Unsearched = "the name has a dot: Windows treats it as fully qualified"
	case len(r.trace.Searches) > 0:
		name, cause, domain = r.Name+"."+r.trace.Searches[0], Searched, 0
	}
	t := r.candidate(name, cause, domain)
	r.windowsTry(t)
	if t.Outcome == Found {
		r.end(Found, "it was found")
		return
	}
	r.end(t.Outcome, "nothing was found, and Windows tries one name only")
}

// windowsTry sends the queries for one candidate.
func (r *resolver) windowsTry(t *Candidate) {
	t.Outcome = NoSuchName
	if t.Skipped = fault(t.Name); t.Skipped != "" || t.Name == "." {
		return
	}
	for _, server := range r.servers {
		t.round()
		t.Outcome = TryAgain
		for _, qtype := range r.types() {
			reply := r.send(t, Exchange{Server: server, Attempt: 1, Query: Query{Type: qtype}})
			if reply.Loss == None && reply.Truncated {
				reply = r.send(t, Exchange{Server: server, Attempt: 1, Query: Query{Type: qtype, TCP: true}})
			}
			switch {
			case reply.Loss != None || t.Outcome == Found:
			case reply.found():
				t.Outcome = Found
			case reply.RCode == dnswire.NoError, reply.RCode == dnswire.NXDomain:
				t.Outcome = verdict(reply.RCode)
			}
		}
		if t.Outcome != TryAgain {
			return
		}
	}
}
