// Package stubresolver simulates the stub resolvers of Pods: the fully qualified names
// that a resolver tries for a name, their order, the queries that it sends for each and to
// which server, where it stops, and the result for the program. It opens no socket: a
// function answers the queries.
//
// The resolvers are glibc 2.36 and musl 1.2.3 (both in Debian 12), Go 1.26's package net
// without cgo, and Windows as described in DNS for Services and Pods. Each file names its
// sources. Notable behavior:
//
//   - A trailing dot and ndots decide most. A name with at least ndots dots is tried as
//     given first; then glibc and Go try the search domains, and musl does not.
//   - musl stops at a name that exists without records of the type, and at a server
//     failure, where glibc and Go continue with the next search domain.
//   - musl queries all servers at once and uses the first response. If the servers answer
//     differently, the result is random; the simulation assumes that they respond in the
//     order of resolv.conf.
//   - With the root as search domain, musl 1.2.3 sends a malformed query, to which no
//     server responds: names that need the search list do not resolve.
//   - musl divides by attempts: with attempts:0 a lookup kills the program. With timeout:0
//     it sends no query, like glibc with attempts:0.
//   - glibc repeats the lookup from the first candidate on if the addresses do not fit
//     into getaddrinfo's buffer: with more than about 25 addresses all queries are sent
//     twice.
//   - glibc stops the search at any failure but SERVFAIL, such as a timeout, and then
//     tries the name as given; if nothing listens at any server address it does not.
//   - A response with an alias and no records of the type (ExternalName) ends the search
//     of glibc, but not of Go.
//   - If one of A and AAAA gets SERVFAIL and the other an answer, glibc uses the answer
//     and does not retry. musl retries, and then fails.
//   - Without search domains in resolv.conf, glibc and Go search the domain of the
//     hostname, which a Pod with setHostnameAsFQDN has.
package stubresolver

import (
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig"
)

// Lookup is a program's lookup, with the configuration of its resolver.
type Lookup struct {
	// Libc is the resolver. With LibcUnknown nothing is simulated.
	Libc dnsconfig.Libc
	// Conf is the Pod's resolv.conf, as Config.AppendTo writes it.
	Conf resolvconf.Config
	// Hostname is the Pod's hostname in the kernel, which may have a domain.
	Hostname string
	// Name is the name as the program passes it.
	Name string
	// Type is the type to look up. 0 is A and AAAA, as getaddrinfo with AF_UNSPEC; A and
	// AAAA are getaddrinfo with one family; others are res_search, or Go's
	// net.LookupSRV.
	Type dnswire.Type
}

// Query is a query of a resolver to a server.
type Query struct {
	// Name is fully qualified, with its trailing dot, in the letter case that is sent;
	// see Malformed.
	Name string
	Type dnswire.Type
	TCP  bool // over TCP; else over UDP
	// Size is the maximum size of a UDP response, in octets: 512 without EDNS.
	Size int
}

// Malformed reports whether the resolver sends a malformed query for Name. No server
// responds to it, and it is not passed to a ServerFunc.
func (q *Query) Malformed() bool { return strings.HasSuffix(q.Name, "..") }

// Response is the response to a Query, or its loss.
type Response struct {
	Loss  Loss // the other fields are valid if it is None
	RCode dnswire.RCode
	// Records is the number of records of the type in the answer section, including those
	// of an alias's target.
	Records int
	// Alias is the target of the last alias in the answer section, or "".
	Alias string
	// Truncated reports whether the TC bit is set.
	Truncated bool
}

// found reports whether the response has records of the type.
func (r *Response) found() bool {
	return r.Loss == None && r.RCode == dnswire.NoError && r.Records > 0
}

// Loss is why there is no response.
type Loss int

// The losses. The zero value is a response.
const (
	None    Loss = iota
	Timeout      // no response arrived in time
	// Unreachable: nothing listens at the address, and the kernel reports it.
	Unreachable
)

// ServerFunc answers a query as the server at the address would. The simulation is
// deterministic if it always returns the same response to the same query.
type ServerFunc func(server netip.Addr, q Query) Response

// Outcome is the result of a lookup for the program, or of one candidate.
type Outcome int

// The outcomes. The zero value is that of an unknown resolver, and of a candidate that
// was skipped.
const (
	Untried    Outcome = iota
	Found              // records
	NoSuchName         // EAI_NONAME, HOST_NOT_FOUND
	NoData             // EAI_NODATA, NO_DATA: the name exists
	TryAgain           // EAI_AGAIN, TRY_AGAIN: no server answered, or all failed
	Failed             // EAI_FAIL, NO_RECOVERY
	Crashed            // the program is killed
)

// String returns the outcome in words.
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

// Cause is why a candidate is tried at its position.
type Cause int

// The causes.
const (
	Searched    Cause = iota // with a search domain
	TrailingDot              // as given, because it ends in a dot
	EnoughDots               // as given, because it has at least ndots dots
	Last                     // as given, after the search domains
	// AsGiven: as given, because the resolver does not use the search list.
	AsGiven
)

// String returns the cause in words.
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

// Exchange is a query that was sent, with its response. One over TCP also counts as one
// packet.
type Exchange struct {
	Server  netip.Addr
	Attempt int // the pass over the list of servers, from 1
	Query
	Response Response
}

// Candidate is a fully qualified name that the resolver derives from the given one.
type Candidate struct {
	Name  string // with its trailing dot
	Cause Cause
	// Domain is the index of the search domain in Trace.Searches, or -1 if Cause is not
	// Searched.
	Domain int
	// Skipped is why no query is sent, or "".
	Skipped string
	// Rounds are the queries. Those of a round are sent at the same time, in no fixed
	// order; the next round begins when all of them are answered or lost.
	Rounds  [][]Exchange
	Outcome Outcome
	// Why is why the resolver neither continues with the next candidate nor stops
	// because this one was found, or "".
	Why string
}

// Trace is the simulation of a Lookup.
type Trace struct {
	// Ndots is the effective ndots.
	Ndots int
	// Searches are the effective search domains as configured, whether or not they are
	// tried for this name.
	Searches   []string
	Candidates []Candidate
	Outcome    Outcome
	// Why is why it ends there: one clause.
	Why string
	// Unsearched is why the search domains are not tried, or "" if they are, or would be
	// if nothing were found before.
	Unsearched string
}

// Packets returns the number of queries that are sent.
func (t *Trace) Packets() int {
	n := 0
	for i := range t.Candidates {
		for _, round := range t.Candidates[i].Rounds {
			n += len(round)
		}
	}
	return n
}

// Resolve simulates a lookup. It calls ask for each query of the resolver; their number is
// limited by the search domains, servers and attempts of the configuration.
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

// maxNameservers is the maximum number of servers of all resolvers (resolv.conf(5)).
const maxNameservers = 3

// loopback is the server if resolv.conf has none (resolv.conf(5)).
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// resolver has the state of one lookup that all resolvers have in common.
type resolver struct {
	Lookup
	ask      ServerFunc
	trace    Trace
	servers  []netip.Addr
	attempts int
	hasty    bool // timeout is 0
	size     int  // maximum size of a UDP response
}

// setServers sets the servers, or the defaults if resolv.conf has none.
func (r *resolver) setServers(defaults ...netip.Addr) {
	r.servers = r.Conf.Nameservers[:min(len(r.Conf.Nameservers), maxNameservers)]
	if len(r.servers) == 0 {
		r.servers = defaults
	}
}

// types returns the types to query for each candidate.
func (r *resolver) types() []dnswire.Type {
	if r.Type == 0 {
		return []dnswire.Type{dnswire.TypeA, dnswire.TypeAAAA}
	}
	return []dnswire.Type{r.Type}
}

// forAddresses reports whether addresses are looked up, as getaddrinfo does.
func (r *resolver) forAddresses() bool {
	return r.Type == 0 || r.Type == dnswire.TypeA || r.Type == dnswire.TypeAAAA
}

// dots returns the number of dots in the name.
func (r *resolver) dots() int { return strings.Count(r.Name, ".") }

// rooted reports whether the name ends in a dot.
func (r *resolver) rooted() bool { return strings.HasSuffix(r.Name, ".") }

// end sets the outcome of the lookup.
func (r *resolver) end(o Outcome, why string) { r.trace.Outcome, r.trace.Why = o, why }

// candidate begins a Candidate. The pointer is valid until the next call.
func (r *resolver) candidate(name string, cause Cause, domain int) *Candidate {
	r.trace.Candidates = append(r.trace.Candidates, Candidate{Name: complete(name), Cause: cause, Domain: domain})
	return &r.trace.Candidates[len(r.trace.Candidates)-1]
}

// round begins a round of t.
func (t *Candidate) round() { t.Rounds = append(t.Rounds, nil) }

// send sends a query in the current round of t.
func (r *resolver) send(t *Candidate, q Exchange) Response {
	q.Name, q.Size = t.Name, r.size
	if q.Response.Loss = Timeout; !q.Malformed() {
		q.Response = r.ask(q.Server, q.Query)
	}
	last := len(t.Rounds) - 1
	t.Rounds[last] = append(t.Rounds[last], q)
	return q.Response
}

// complete returns a name with a trailing dot.
func complete(name string) string { return strings.TrimSuffix(name, ".") + "." }

// number returns the value of an option as atoi parses it, that is its leading digits. It
// reports whether there are digits, and whether the option exists with a value.
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

// has reports whether one of the options without a value is set.
func has(c resolvconf.Config, options ...string) bool {
	return slices.ContainsFunc(c.Options, func(o resolvconf.Option) bool {
		return o.Value == "" && slices.Contains(options, o.Name)
	})
}

// maxName is the maximum length of a name without its trailing dot, in octets (RFC 1035,
// section 2.3.4: 255 octets on the wire).
const maxName = 253

// fault returns why a name cannot be sent, or "" if it can (RFC 1035, section 2.3.4).
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

// domainOf returns what follows the first dot of a hostname, or "".
func domainOf(hostname string) string {
	_, domain, _ := strings.Cut(hostname, ".")
	return domain
}

// verdict returns the outcome for a response without records.
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
