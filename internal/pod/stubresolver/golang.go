package stubresolver

import (
	"net/netip"
	"strings"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// Go 1.26: net/dnsconfig_unix.go (resolv.conf), net/dnsclient_unix.go (search list,
// servers and attempts), net/dnsclient.go (valid names).

const (
	goAttempts = 2
	// goMaxAttempts limits the simulation; Go has no limit.
	goMaxAttempts = 100
	goSize        = 1232
	// goName is the maximum length of a candidate, in octets with its trailing dot.
	goName = 254
)

// golang has the state that is kept between candidates.
type golang struct {
	*resolver
	single  bool // A, and then AAAA
	streams bool // TCP only
	rotate  bool
	sends   int // the number of passes over the list of servers
}

func (r *resolver) golang() {
	r.setServers(loopback, netip.IPv6Loopback())
	g := &golang{resolver: r}
	g.file()
	isLocalhost := func(name string) bool { return strings.EqualFold(name, "localhost") }
	if r.literal(goAddress, isLocalhost) {
		return
	}
	if !isDomainName(r.Name) {
		r.end(NoSuchName, "Go does not accept it as a domain name: no query is sent")
		return
	}
	g.search()
}

// file interprets resolv.conf.
func (g *golang) file() {
	g.trace.Ndots, g.attempts, g.size = 1, goAttempts, goSize
	if n, _, there := number(g.Conf, "ndots"); there {
		g.trace.Ndots = min(n, maxNdots)
	}
	if n, _, there := number(g.Conf, "attempts"); there {
		g.attempts = min(max(n, 1), goMaxAttempts)
	}
	g.single = has(g.Conf, "single-request", "single-request-reopen")
	g.streams = has(g.Conf, "use-vc", "usevc", "tcp")
	g.rotate = has(g.Conf, "rotate")
	for _, domain := range g.Conf.Searches {
		if domain != "." {
			g.trace.Searches = append(g.trace.Searches, domain)
		}
	}
	if domain := domainOf(g.Hostname); len(g.trace.Searches) == 0 && domain != "" {
		g.trace.Searches = []string{domain}
	}
}

// goAddress reports whether a name is an address, and of which family.
func goAddress(name string) (v4, v6 bool) {
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Is4(), err == nil && addr.Is6()
}

// isDomainName reports whether Go looks up a name at all: it has letters, digits,
// underscores and, within labels, hyphens, and not only digits and dots.
func isDomainName(name string) bool {
	if name == "." {
		return true
	}
	if name == "" || fault(name) != "" {
		return false
	}
	numeric := true
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return false
		}
		for _, c := range []byte(label) {
			switch {
			case '0' <= c && c <= '9':
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', c == '-':
				numeric = false
			default:
				return false
			}
		}
	}
	return !numeric
}

// search simulates nameList and the loop over its names.
func (g *golang) search() {
	if g.rooted() {
		g.trace.Unsearched = "the name ends in a dot"
		if !g.try(g.Name, TrailingDot, -1) {
			g.fail()
		}
		return
	}
	enough := g.dots() >= g.trace.Ndots
	if enough && g.try(g.Name, EnoughDots, -1) {
		return
	}
	for i, domain := range g.trace.Searches {
		if g.try(g.Name+"."+domain, Searched, i) {
			return
		}
	}
	if !enough && g.try(g.Name, Last, -1) {
		return
	}
	g.fail()
}

// try sends the queries for one candidate, and reports whether it was found.
func (g *golang) try(name string, cause Cause, domain int) bool {
	t := g.candidate(name, cause, domain)
	switch {
	case len(t.Name) > goName:
		t.Skipped = "the name is longer than 255 octets"
		return false
	case strings.HasSuffix(strings.ToLower(t.Name), ".onion."):
		t.Skipped = "Go does not ask for names below onion (RFC 7686)"
		return false
	case fault(t.Name) != "":
		t.Skipped, t.Outcome = fault(t.Name), Failed
		return false
	}
	t.round()
	for i, qtype := range g.types() {
		if g.single && i > 0 {
			t.round()
		}
		g.merge(t, g.exchange(t, qtype))
	}
	if t.Outcome == Found {
		g.end(Found, "it was found")
	}
	return t.Outcome == Found
}

// merge merges the outcome for one type into that of the candidate: Found wins, else the
// first error, or the last one for the name as given.
func (g *golang) merge(t *Candidate, o Outcome) {
	if o == Found || t.Outcome == Untried || t.Outcome != Found && t.Cause != Searched && t.Cause != TrailingDot {
		t.Outcome = o
	}
}

// fail ends the lookup without a result. For addresses Go returns the error for the name
// as given, else the first one; for other types the last one.
func (g *golang) fail() {
	var asked []Candidate
	for _, t := range g.trace.Candidates {
		if t.Outcome != Untried {
			asked = append(asked, t)
		}
	}
	if len(asked) == 0 {
		g.end(NoSuchName, "no candidate can be sent")
		return
	}
	decisive := asked[len(asked)-1]
	if g.forAddresses() {
		decisive = asked[0]
		for _, t := range asked {
			if t.Cause != Searched {
				decisive = t
			}
		}
	}
	g.end(decisive.Outcome, "nothing was found; the result for "+decisive.Name+" counts")
}

// exchange simulates tryOneName.
func (g *golang) exchange(t *Candidate, qtype dnswire.Type) Outcome {
	offset := 0
	if g.rotate {
		offset = g.sends
	}
	g.sends++
	var outcome Outcome
	for attempt := 1; attempt <= g.attempts; attempt++ {
		for i := range g.servers {
			q := Exchange{
				Server:  g.servers[(i+offset)%len(g.servers)],
				Attempt: attempt,
				Query:   Query{Type: qtype, TCP: g.streams},
			}
			reply := g.send(t, q)
			if reply.Loss == None && reply.Truncated && !q.TCP {
				q.TCP = true
				reply = g.send(t, q)
			}
			switch {
			case reply.Loss != None || reply.RCode == dnswire.ServFail:
				outcome = TryAgain
			case reply.RCode == dnswire.NXDomain, reply.RCode == dnswire.NoError && !reply.found():
				return NoSuchName
			case reply.RCode == dnswire.NoError:
				return Found
			default:
				outcome = Failed
			}
		}
	}
	return outcome
}
