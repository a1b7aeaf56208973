// Package stubresolver foretells what a stub resolver does with a name: which complete
// names it tries, in which order, what it asks whom for each, where it stops,
// and what the program is told. It opens no socket: who answers is a function.
//
// The resolvers are those that Pods have: glibc as of 2.36, musl as of 1.2.3
// (Debian 12 has both), that of Go 1.26's package net without cgo, and Windows'
// as DNS for Services and Pods describes it. Each file names the sources that it
// follows. What surprises:
//
//   - The closing dot and ndots decide everything. A name with at least ndots
//     dots is tried as it is given first, and then with the search domains by
//     glibc and Go, with none by musl.
//   - musl stops at a name that exists without records of the type, and at a
//     server that fails, where glibc and Go go on to the next search domain.
//   - musl asks all servers at once, and who answers first is right. Where they
//     don't say the same, chance decides; what is foretold is that they answer
//     in the order of resolv.conf.
//   - musl 1.2.3 makes a malformed question of the root as search domain, which
//     nobody answers: no name that is searched is found.
//   - musl divides by attempts: with attempts:0, looking a name up kills the
//     program. With timeout:0 it sends nothing, as glibc with attempts:0.
//   - glibc looks up again, from the first candidate on, what does not fit into
//     getaddrinfo's buffer: from about 25 addresses on, all queries come twice.
//   - glibc stops searching at any failure but SERVFAIL (at a timeout, say), and
//     then tries the name as it is given; where nothing listens at any server's
//     address it doesn't even do that.
//   - An answer that is an alias without records of the type (ExternalName) ends
//     glibc's search, but not Go's.
//   - SERVFAIL for one of A and AAAA costs glibc nothing where the other has an
//     answer: that one is taken, and nobody is asked again. musl asks again and
//     again, and then finds nothing.
//   - Where resolv.conf has no search domain, glibc and Go search the domain of
//     the hostname, which a Pod with setHostnameAsFQDN has.
package stubresolver

import (
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig"
)

// Lookup is what a program wants to know, and what its resolver goes by.
type Lookup struct {
	// Libc is whose resolver it is; LibcUnknown is nobody's.
	Libc dnsconfig.Libc
	// Conf is the Pod's resolv.conf, as AppendTo writes it.
	Conf resolvconf.Config
	// Hostname is the Pod's, as it sees it; "" has no domain.
	Hostname string
	// Name is as the program gives it.
	Name string
	// Type is what is looked up. 0 is A and AAAA together, as getaddrinfo with
	// AF_UNSPEC does it; A and AAAA are getaddrinfo with one family; others
	// are looked up as res_search, or Go's net.LookupSRV, do it.
	Type dnswire.Type
}

// Question is what a resolver asks a server.
type Query struct {
	// Name is complete, with its closing dot, in the case that it is sent in; see
	// Malformed.
	Name string
	Type dnswire.Type
	TCP  bool // over TCP; else over UDP
	// Size is the longest reply that is taken over UDP, in octets: 512 without
	// EDNS.
	Size int
}

// Malformed tells whether the resolver sends something that is no question of
// Name. Nobody answers it, and no Ask is given it.
func (q *Query) Malformed() bool { return strings.HasSuffix(q.Name, "..") }

// Reply is what comes of a Question.
type Response struct {
	Loss  Loss // the rest counts only where nothing was lost
	RCode dnswire.RCode
	// Records is how many of the type are in the answer, also where an alias
	// leads to them.
	Records int
	// Alias is where the answer's last alias leads, "" without one.
	Alias string
	// Truncated says that not all of the answer fitted.
	Truncated bool
}

// found tells whether the reply has what was asked for.
func (r *Response) found() bool {
	return r.Loss == None && r.RCode == dnswire.NoError && r.Records > 0
}

// Loss says why there is no reply.
type Loss int

// A reply came, or none did. The zero is that one came.
const (
	None    Loss = iota
	Timeout      // nothing was heard
	// Unreachable is that nothing listens there, and the system says so.
	Unreachable
)

// Ask answers one question, as the server would. It gives the same answer to the
// same question where a Trace is to be the same twice.
type ServerFunc func(server netip.Addr, q Query) Response

// Outcome is what the program is told, or what came of one candidate.
type Outcome int

// The outcomes. The zero is that of a resolver that nobody knows, and of a
// candidate that was passed over.
const (
	Untried    Outcome = iota
	Found              // records
	NoSuchName         // EAI_NONAME, HOST_NOT_FOUND
	NoData             // EAI_NODATA, NO_DATA: the name exists
	TryAgain           // EAI_AGAIN, TRY_AGAIN: no server answered, or all failed
	Failed             // EAI_FAIL, NO_RECOVERY
	Crashed            // the program is killed
)

// String is the outcome in words.
func (o Outcome) String() string {
	switch o {
	case Found:
		return "found"
	case NoSuchName:
		return "no such name"
	case NoData:
		return "no data"
	case TryAgain:
		return "try again"
	case Failed:
		return "failed"
	case Crashed:
		return "crashed"
	}
	return "not tried"
}

// Cause is why a candidate is tried in its place.
type Cause int

// The causes.
const (
	Searched    Cause = iota // made with a search domain
	TrailingDot              // as given, for it ends in a dot
	EnoughDots               // as given, for it has ndots dots
	Last                     // as given, after the search domains
	// AsGiven is as given, for the resolver does not search.
	AsGiven
)

// String is the cause in words.
func (c Cause) String() string {
	switch c {
	case Searched:
		return "search domain"
	case TrailingDot:
		return "as given: it ends in a dot"
	case EnoughDots:
		return "as given: it has at least ndots dots"
	case Last:
		return "as given, after the search domains"
	}
	return "as given"
}

// Query is a Question on the wire, and what came of it. Over TCP, a packet is
// counted for each as well.
type Exchange struct {
	Server  netip.Addr
	Attempt int // from 1: which time the servers are gone through
	Query
	Response Response
}

// Try is one candidate: a complete name that the resolver makes of the one given.
type Candidate struct {
	Name  string // with its closing dot
	Cause Cause
	// Domain is the search domain's index in Trace.Searches, -1 where Cause is
	// not Searched.
	Domain int
	// Skipped is why nothing is asked; "" where something is.
	Skipped string
	// Rounds are the queries. Those of one round are under way together, in no
	// fixed order; the next round begins when that one is over.
	Rounds  [][]Exchange
	Outcome Outcome
	// Why is why the resolver does not simply go on with the next candidate
	// after this one, or stop because it is found; else "".
	Why string
}

// Trace is all that a resolver does for a Lookup.
type Trace struct {
	// Ndots is how many dots make the resolver try a name as given first.
	Ndots int
	// Searches are the search domains that the resolver goes by, spelt as
	// configured, whether they are tried for this name or not.
	Searches   []string
	Candidates []Candidate
	Outcome    Outcome
	// Why is why it ends there, in one sentence.
	Why string
	// Unsearched is why the search domains are not tried; "" where they are,
	// or would be if nothing were found before.
	Unsearched string
}

// Packets is how many queries are sent.
func (t *Trace) Packets() int {
	n := 0
	for i := range t.Candidates {
		for _, round := range t.Candidates[i].Rounds {
			n += len(round)
		}
	}
	return n
}

// Resolve foretells a lookup. It asks as often as the resolver would, which the
// Conf's search domains, servers and attempts bound.
func Resolve(l Lookup, ask ServerFunc) Trace {
	r := &resolver{Lookup: l, ask: ask}
	switch l.Libc {
	case dnsconfig.Glibc:
		r.glibc()
	case dnsconfig.Musl:
		r.musl()
	case dnsconfig.GoResolver:
		r.golang()
	case dnsconfig.WindowsClient:
		r.windows()
	default:
		r.trace.Why = "the resolver is not known"
	}
	return r.trace
}

// maxNameservers is how many servers all resolvers take (resolv.conf(5)).
const maxNameservers = 3

// loopback is asked where resolv.conf names nobody (resolv.conf(5)).
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// resolver is what all resolvers have in common during one lookup.
type resolver struct {
	Lookup
	ask      ServerFunc
	trace    Trace
	servers  []netip.Addr
	attempts int
	hasty    bool // timeout is 0
	size     int  // of replies over UDP
}

// setServers takes the first servers, or what is asked where there are none.
func (r *resolver) setServers(instead ...netip.Addr) {
	r.servers = r.Conf.Nameservers[:min(len(r.Conf.Nameservers), maxNameservers)]
	if len(r.servers) == 0 {
		r.servers = instead
	}
}

// types are what is asked for of each candidate.
func (r *resolver) types() []dnswire.Type {
	if r.Type == 0 {
		return []dnswire.Type{dnswire.TypeA, dnswire.TypeAAAA}
	}
	return []dnswire.Type{r.Type}
}

// forAddresses tells whether addresses are looked up, as getaddrinfo does.
func (r *resolver) forAddresses() bool {
	return r.Type == 0 || r.Type == dnswire.TypeA || r.Type == dnswire.TypeAAAA
}

// dots is how many the name has.
func (r *resolver) dots() int { return strings.Count(r.Name, ".") }

// rooted tells whether the name ends in a dot.
func (r *resolver) rooted() bool { return strings.HasSuffix(r.Name, ".") }

// end sets how the lookup ends.
func (r *resolver) end(o Outcome, why string) { r.trace.Outcome, r.trace.Why = o, why }

// candidate begins a Try, which stays good until the next one begins.
func (r *resolver) candidate(name string, cause Cause, domain int) *Candidate {
	r.trace.Candidates = append(r.trace.Candidates, Candidate{Name: complete(name), Cause: cause, Domain: domain})
	return &r.trace.Candidates[len(r.trace.Candidates)-1]
}

// round begins a round of t.
func (t *Candidate) round() { t.Rounds = append(t.Rounds, nil) }

// send asks a server in the present round of t.
func (r *resolver) send(t *Candidate, q Exchange) Response {
	q.Name, q.Size = t.Name, r.size
	if q.Response.Loss = Timeout; !q.Malformed() {
		q.Response = r.ask(q.Server, q.Query)
	}
	last := len(t.Rounds) - 1
	t.Rounds[last] = append(t.Rounds[last], q)
	return q.Response
}

// complete is a name with a closing dot.
func complete(name string) string { return strings.TrimSuffix(name, ".") + "." }

// number is an option's, as atoi reads it: its digits up to something else. It
// is not there without a value.
func number(c resolvconf.Config, option string) (n int, digits, there bool) {
	i := slices.IndexFunc(c.Options, func(o resolvconf.Option) bool { return o.Name == option })
	if i < 0 || c.Options[i].Value == "" {
		return 0, false, false
	}
	for _, digit := range []byte(c.Options[i].Value) {
		if digit < '0' || digit > '9' {
			break
		}
		n, digits = min(n*10+int(digit-'0'), 1<<20), true
	}
	return n, digits, true
}

// has tells whether an option is there.
func has(c resolvconf.Config, options ...string) bool {
	return slices.ContainsFunc(c.Options, func(o resolvconf.Option) bool {
		return o.Value == "" && slices.Contains(options, o.Name)
	})
}

// maxName is the longest name without its closing dot, in octets (RFC 1035,
// section 2.3.4: 255 octets on the wire).
const maxName = 253

// fault is why a name can't be sent, and "" where it can (RFC 1035, section
// 2.3.4).
func fault(name string) string {
	name = strings.TrimSuffix(name, ".")
	if len(name) > maxName {
		return "the name is longer than 255 octets"
	}
	if name == "" {
		return ""
	}
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return "the name has an empty label"
		case len(label) > 63:
			return "the name has a label longer than 63 octets"
		}
	}
	return ""
}

// domainOf is what follows the first dot of a hostname; "" if nothing does.
func domainOf(hostname string) string {
	_, domain, _ := strings.Cut(hostname, ".")
	return domain
}

// verdict is the outcome of a reply without records.
func verdict(code dnswire.RCode) Outcome {
	switch code {
	case dnswire.NoError:
		return NoData
	case dnswire.NXDomain:
		return NoSuchName
	case dnswire.ServFail:
		return TryAgain
	}
	return Failed
}
