// Package explain simulates the lookup of a name in a Pod: the names that the resolver
// tries, the queries it sends for each, the answers, where it stops, and why the lookup
// ends as it does.
//
//	Pod ─► dnsconfig: resolv.conf ─► stubresolver: queries ◄─► QueryFunc: model or server
//	                                        │
//	                                        ▼
//	                              Explanation ◄─ diagnose: lint, model
package explain

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// Request is the input of Explain: the name, the Pod and the cluster.
type Request struct {
	// Name is the name as a program passes it to its resolver.
	Name string
	// Type is the type to look up; 0 is A and AAAA, as most programs do.
	Type    dnswire.Type
	Subject dnsconfig.Subject
	Libc    dnsconfig.Libc
	Node    dnsconfig.NodeSettings
	// Linter has the model and its rules.
	Linter *lint.Linter
	// Query sends a query to a server.
	Query QueryFunc
	// Model answers from the model, for comparison; nil if Query does that.
	Model QueryFunc
	// NoPodNames reports whether the server gives Pods no names by address.
	NoPodNames bool
	// Unread reports whether objects of a kind in a namespace are not in the model because
	// the account may not list them; nil if there are none.
	Unread func(k cluster.Kind, namespace string) bool
	// ZoneProblem returns why the local zone that a name is in is not loaded from its file;
	// nil if it is, or if the name is in none.
	ZoneProblem func(name string) *localzone.ZoneError
	// ServerSearch returns the names that the server tries instead of a name with a
	// search domain of ClusterFirstWithAutopath, in order; nil for other names.
	ServerSearch func(name string) []string
	// Routed reports whether routes have the name as a host: it is not taken for that of a Service in a namespace that
	// does not exist.
	Routed bool
}

// QueryFunc sends a query to a server and returns the answer.
type QueryFunc func(server netip.Addr, q stubresolver.Query) Answer

// Answer is the result of a query.
type Answer struct {
	// Message is nil if there was no response, or no query was sent.
	Message *dnswire.Message
	Loss    stubresolver.Loss
	// Instead is the server that was asked, if it is not that of the query.
	Instead netip.AddrPort
	// NotAsked is why no query was sent, such as a name outside the cluster, or "" if it
	// was sent. The name then counts as one that does not exist.
	NotAsked string
	// FromModel reports whether the answer is from the model, which does not follow
	// aliases of names outside the cluster.
	FromModel bool
}

// Explanation is the result of Explain.
type Explanation struct {
	Name  string   `json:"name"`
	Types []string `json:"types"`
	// Pod is kind and key of the Subject.
	Pod      string `json:"pod"`
	Resolver string `json:"resolver"`
	// Policy is the effective dnsPolicy.
	Policy     dnsconfig.DNSPolicy `json:"policy"`
	ResolvConf string              `json:"resolvConf"`
	// Unknown is what of ResolvConf is not known, or "".
	Unknown    string           `json:"unknown,omitempty"`
	Warnings   []string         `json:"warnings,omitempty"`
	Ndots      int              `json:"ndots"`
	Candidates []Candidate      `json:"tries"`
	Outcome    string           `json:"outcome"`
	Why        string           `json:"why"`
	Records    []dnswire.Record `json:"records,omitempty"`
	// Own are the Pod's addresses, if the name is its own, which its /etc/hosts has.
	Own     []netip.Addr `json:"own,omitempty"`
	Packets int          `json:"packets"`
	// Meant is the Service that a name which does not resolve stands for, or is taken for; the zero key if there is none.
	Meant cluster.Key `json:"-"`
	// Diagnoses are those of the layer name, of which the JSON has them.
	Diagnoses []Diagnosis `json:"-"`
	trace     stubresolver.Trace
}

// Found reports whether the name resolves.
func (e *Explanation) Found() bool {
	return e.Outcome == stubresolver.Found.String()
}

// NotKnown reports whether it depends on servers that were not queried whether the name resolves.
func (e *Explanation) NotKnown() bool { return e.Outcome == unknown }

// Blocked reports whether no query of the Pod reaches a server, as the model has it.
func (e *Explanation) Blocked() bool { return e.Outcome == blocked }

// Answers returns how the lookup ends by the answers, also if it is blocked, or not known.
func (e *Explanation) Answers() stubresolver.Outcome { return e.trace.Outcome }

// blocked is the outcome if no query of the Pod reaches a server.
const blocked = "blocked"

// block sets the outcome to blocked, for a reason that has no influence on the simulation.
func (e *Explanation) block(reason string) {
	e.Why = reason + "; without that: " + e.Outcome
	e.Outcome = blocked
}

// Candidate is a fully qualified name that the resolver tries.
type Candidate struct {
	Name string `json:"name"` // with its trailing dot
	// Why is why it is tried at this position.
	Why string `json:"why"`
	// Skipped is why no query is sent for it, or "".
	Skipped   string     `json:"skipped,omitempty"`
	Exchanges []Exchange `json:"queries"`
	Outcome   string     `json:"outcome"`
	// Stopped is why the resolver does not continue with the next candidate, or "".
	Stopped string `json:"stopped,omitempty"`
}

// Exchange is a query and its answer.
type Exchange struct {
	// Server is the one that was asked, an address of the resolv.conf or ADDRESS:PORT of another one instead.
	Server string `json:"server"`
	Type   string `json:"type"`
	TCP    bool   `json:"tcp,omitempty"`
	// Round is the same for queries that are sent at the same time. Round and Attempt
	// begin at 1.
	Round   int `json:"round"`
	Attempt int `json:"attempt"`
	// Result is the response code, NODATA for a response without records of the type, or
	// TIMEOUT or UNREACHABLE.
	Result  string           `json:"result"`
	Records []dnswire.Record `json:"records,omitempty"`
	// Note is the extra text of the server, or why no query was sent.
	Note    string     `json:"note,omitempty"`
	to      netip.Addr // that of the resolv.conf
	assumed bool       // no query was sent
	// unfollowed: the answer is an alias whose target the server did not look up.
	unfollowed bool
	// assumedTarget is the alias's target outside the cluster that no server was queried
	// for, and is assumed to exist; "" if there is none.
	assumedTarget string
	code          uint16 // of the last Extended DNS Error (RFC 8914), 0 if there is none
}

// resolverNames has the values of --libc.
var resolverNames = map[string]dnsconfig.Libc{
	"glibc": dnsconfig.Glibc, "musl": dnsconfig.Musl, "go": dnsconfig.GoResolver, "windows": dnsconfig.WindowsClient,
}

// ParseResolver parses a value of --libc.
func ParseResolver(name string) (l dnsconfig.Libc, ok bool) {
	l, ok = resolverNames[name]
	return l, ok
}

func resolverName(l dnsconfig.Libc) string {
	for name, of := range resolverNames {
		if of == l {
			return name
		}
	}
	return "unknown"
}

// Explain simulates a lookup and diagnoses its outcome. It sends each query of the
// resolver once, and further queries for the diagnosis.
func Explain(r Request) *Explanation {
	if r.Subject.Spec.OS == string(dnsconfig.Windows) {
		r.Libc = dnsconfig.WindowsClient
	}
	pod := r.Subject.Settings()
	pod.Libc = r.Libc
	resolved := dnsconfig.Resolve(pod, r.Node)
	conf := resolved.Config
	if resolved.Unknown == dnsconfig.Everything && len(conf.Nameservers) == 0 {
		conf.Nameservers = []netip.Addr{UnknownServer()}
	}
	a := &querier{query: r.Query, serverSearch: r.ServerSearch, answers: make(map[queryKey]Answer)}
	e := &Explanation{
		Name: r.Name, Types: typeNames(r.types()), Pod: r.Subject.String(), Resolver: resolverName(r.Libc),
		Policy: resolved.Policy, ResolvConf: resolved.Config.String(),
		trace: r.resolve(conf, r.Libc, a), Unknown: UnknownText(resolved.Unknown),
	}
	if len(e.trace.Candidates) == 0 && e.trace.Outcome == stubresolver.Found && r.Subject.Pod != nil {
		e.Own = r.ownAddresses()
	}
	e.warn(pod, r.Node, resolved.Warnings)
	e.Ndots, e.Packets = e.trace.Ndots, e.trace.Packets()
	e.Outcome, e.Why = e.trace.Outcome.String(), e.trace.Why
	e.Candidates = make([]Candidate, 0, len(e.trace.Candidates))
	for i := range e.trace.Candidates {
		e.Candidates = append(e.Candidates, a.candidate(&e.trace, i))
	}
	if e.trace.Outcome == stubresolver.Found && len(e.Candidates) > 0 {
		for _, q := range e.Candidates[len(e.Candidates)-1].Exchanges {
			e.Records = append(e.Records, q.Records...)
		}
		e.Records = unique(e.Records)
	}
	d := &diagnoser{
		Request: &r, e: e, a: a, conf: conf, names: namesOf(&e.trace), found: []Diagnosis{},
	}
	e.Diagnoses = d.diagnose()
	return e
}

// UnknownServer stands for the nameservers of a node whose resolv.conf is not known.
func UnknownServer() netip.Addr { return netip.IPv4Unspecified() }

// serverName returns how a nameserver is printed.
func serverName(server netip.Addr) string {
	if server == UnknownServer() {
		return "the node's nameserver"
	}
	return server.String()
}

// UnknownText returns a note on a part of a resolv.conf that is not known, "" if there is
// none.
func UnknownText(p dnsconfig.Part) string {
	const pass = " (--node-resolv-conf FILE)"
	switch p {
	case dnsconfig.LastSearches:
		return "the search domains of the node, which come last, are not known" + pass
	case dnsconfig.Everything:
		return "the node's resolv.conf, which the Pod has, is not known" + pass
	}
	return ""
}

// unknown is the outcome if it depends on servers that were not queried.
const unknown = "not known"

// last returns the candidate that was tried last, or nil if there is none.
func (e *Explanation) last() *Candidate {
	if len(e.Candidates) == 0 {
		return nil
	}
	return &e.Candidates[len(e.Candidates)-1]
}

// warn adds warnings about the settings of the Pod and its node.
func (e *Explanation) warn(pod dnsconfig.PodSettings, node dnsconfig.NodeSettings, warnings []dnsconfig.Warning) {
	for _, refused := range dnsconfig.Validate(pod) {
		e.Warnings = append(e.Warnings, "the API server refuses the Pod: "+refused.Error())
	}
	hostname, err := dnsconfig.HostnameOf(pod, node)
	if err != nil {
		e.Warnings = append(e.Warnings, "the Pod does not start: "+err.Error())
	}
	for _, w := range slices.Concat(dnsconfig.CheckNode(node), warnings, hostname.Warnings) {
		e.Warnings = append(e.Warnings, w.String())
	}
}

// resolve simulates the lookup with a resolv.conf. The Pod's own name is in /etc/hosts,
// which the kubelet writes.
func (r *Request) resolve(conf resolvconf.Config, libc dnsconfig.Libc, a *querier) stubresolver.Trace {
	hostname, _ := dnsconfig.HostnameOf(r.Subject.Settings(), r.Node) // warn reports the error
	own := strings.EqualFold(r.Name, hostname.Kernel) || strings.EqualFold(r.Name, hostname.FQDN)
	if own && !r.Subject.Spec.HostNetwork && r.forAddresses() {
		return stubresolver.Trace{Outcome: stubresolver.Found, Why: "it is the Pod's own name, which is in its /etc/hosts"}
	}
	lookup := stubresolver.Lookup{Libc: libc, Conf: conf, Hostname: hostname.Kernel, Name: r.Name, Type: r.Type}
	return stubresolver.Resolve(lookup, a.response)
}

// ownAddresses returns the addresses of the Pod that have a type that is looked up.
func (r *Request) ownAddresses() (addrs []netip.Addr) {
	for _, a := range r.Subject.Pod.IPs {
		if a.Is4() && r.Type != dnswire.TypeAAAA || a.Is6() && r.Type != dnswire.TypeA {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// forAddresses reports whether addresses are looked up; /etc/hosts has no other types.
func (r *Request) forAddresses() bool {
	return r.Type == 0 || r.Type == dnswire.TypeA || r.Type == dnswire.TypeAAAA
}

// types returns the types that are looked up.
func (r *Request) types() []dnswire.Type {
	if r.Type == 0 {
		return []dnswire.Type{dnswire.TypeA, dnswire.TypeAAAA}
	}
	return []dnswire.Type{r.Type}
}

func typeNames(list []dnswire.Type) (names []string) {
	for _, t := range list {
		names = append(names, t.String())
	}
	return names
}

// sorted returns the records in an order that does not depend on the server. Aliases keep
// their position.
func sorted(records []dnswire.Record) []dnswire.Record {
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b dnswire.Record) int {
		if a.Type == "CNAME" || b.Type == "CNAME" {
			return 0
		}
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Data, b.Data))
	})
	return records
}

// unique returns the records without duplicates.
func unique(records []dnswire.Record) (once []dnswire.Record) {
	for _, r := range records {
		if !slices.Contains(once, r) {
			once = append(once, r)
		}
	}
	return once
}

// candidate returns a candidate of the trace with its answers.
func (a *querier) candidate(t *stubresolver.Trace, i int) Candidate {
	from := &t.Candidates[i]
	c := Candidate{
		Name:      from.Name,
		Why:       from.Cause.String(),
		Skipped:   from.Skipped,
		Outcome:   from.Outcome.String(),
		Stopped:   from.Why,
		Exchanges: []Exchange{},
	}
	if from.Cause == stubresolver.Searched {
		domain := t.Searches[from.Domain]
		if domain != "." {
			domain = strings.TrimSuffix(domain, ".")
		}
		c.Why += " " + domain
	}
	for round, queries := range from.Rounds {
		for _, q := range queries {
			c.Exchanges = append(c.Exchanges, a.exchange(q, round+1))
		}
	}
	return c
}

// exchange returns a query with its answer.
func (a *querier) exchange(q stubresolver.Exchange, round int) Exchange {
	e := Exchange{
		Server: serverName(q.Server), Type: q.Type.String(), TCP: q.TCP, Round: round, Attempt: q.Attempt, to: q.Server,
	}
	if q.Malformed() {
		e.Result, e.Note = timeout, "the query is malformed"
		return e
	}
	answer := a.answer(q.Server, q.Query)
	if answer.Instead.IsValid() {
		e.Server = answer.Instead.String()
	}
	switch {
	case answer.NotAsked != "":
		e.Result, e.Note, e.assumed = dnswire.NXDomain.String(), "assumed: "+answer.NotAsked, true
	case answer.Message == nil && answer.Loss == stubresolver.Unreachable:
		e.Result = unreachable
	case answer.Message == nil:
		e.Result = timeout
	default:
		m := answer.Message
		e.Result, e.Records = resultOf(m, q.Type), sorted(m.Answer)
		e.unfollowed = Unfollowed(m, q.Type) != ""
		if e.assumedTarget = externalTarget(answer, q.Type); e.assumedTarget != "" {
			e.Note = "the target is outside the cluster, no server was queried; use --live"
		}
		for _, extended := range m.Errors {
			e.Note, e.code = extended.Text, extended.Code
		}
	}
	return e
}

// The results that are not response codes.
const (
	noData      = "NODATA"
	timeout     = "TIMEOUT"
	unreachable = "UNREACHABLE"
)

// resultOf returns the response code, or NODATA if there are no records of the type.
func resultOf(m *dnswire.Message, t dnswire.Type) string {
	has := slices.ContainsFunc(m.Answer, func(r dnswire.Record) bool { return r.Type == t.String() })
	if m.Code == dnswire.NoError && !has {
		return noData
	}
	return m.Status
}
