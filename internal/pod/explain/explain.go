// Package explain says what becomes of a name in a Pod: what its resolver asks,
// candidate by candidate, what the answers are, where it stops, and why it ends
// as it does.
package explain

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// Request is a name in a Pod, and what is known of the Pod and its cluster.
type Request struct {
	// Name is as a program gives it.
	Name string
	// Type is what is looked up; 0 is A and AAAA, as programs mostly do it.
	Type    dnswire.Type
	Subject dnsconfig.Subject
	Libc    dnsconfig.Libc
	Node    dnsconfig.NodeSettings
	// Cluster is the model, and the rules over it.
	Linter *lint.Linter
	// Ask asks a server.
	Query QueryFunc
	// Model answers as the model has it, for comparison; nil when Ask does.
	Model QueryFunc
	// Searched are the names that the server looks for in place of one that says
	// what it shall be searched for in, in their order; nil of any other.
	ServerSearch func(name string) []string
}

// Ask asks a server one question.
type QueryFunc func(server netip.Addr, q stubresolver.Query) Answer

// Answer is what came of a question.
type Answer struct {
	// Message is nil where nobody answered, or was asked.
	Message *dnswire.Message
	Loss    stubresolver.Loss
	// Unasked is why nobody was asked, such as that the name is not the
	// cluster's; then it counts as a name that does not exist. "" is that
	// somebody was.
	NotAsked string
	// FromModel says that it is of the model, which follows no alias out of the
	// cluster.
	FromModel bool
}

// Explanation is what becomes of the name.
type Explanation struct {
	Name  string   `json:"name"`
	Types []string `json:"types"`
	// Pod is kind and key.
	Pod      string `json:"pod"`
	Resolver string `json:"resolver"`
	// Policy is the dnsPolicy in effect.
	Policy     dnsconfig.DNSPolicy `json:"policy"`
	ResolvConf string              `json:"resolvConf"`
	Warnings   []string            `json:"warnings,omitempty"`
	Ndots      int                 `json:"ndots"`
	Candidates []Candidate         `json:"tries"`
	Outcome    string              `json:"outcome"`
	Why        string              `json:"why"`
	Records    []dnswire.Record    `json:"records,omitempty"`
	Packets    int                 `json:"packets"`
	Diagnoses  []Diagnosis         `json:"diagnoses"`
	trace      stubresolver.Trace
}

// Found tells whether the program has an answer.
func (e *Explanation) Found() bool {
	return e.trace.Outcome == stubresolver.Found && e.Outcome != blocked
}

// blocked is the outcome when the Pod's packets do not reach a server.
const blocked = "blocked"

// block says that the Pod may not ask what was found out here.
func (e *Explanation) block() {
	e.Why = "NetworkPolicies keep the Pod's queries from the cluster DNS; without them: " + e.Outcome
	e.Outcome = blocked
}

// Try is one candidate.
type Candidate struct {
	Name string `json:"name"` // complete, with its closing dot
	// Why is why it is tried in its place.
	Why string `json:"why"`
	// Skipped is why nothing is asked.
	Skipped   string     `json:"skipped,omitempty"`
	Exchanges []Exchange `json:"queries"`
	Outcome   string     `json:"outcome"`
	// Stopped is why the resolver does not simply go on after it.
	Stopped string `json:"stopped,omitempty"`
}

// Query is one packet, and what came of it.
type Exchange struct {
	Server string `json:"server"`
	Type   string `json:"type"`
	TCP    bool   `json:"tcp,omitempty"`
	// Round tells which are under way together; Attempt is from 1.
	Round   int `json:"round"`
	Attempt int `json:"attempt"`
	// Result is the code of the answer, NODATA for no records of the type, or
	// TIMEOUT or UNREACHABLE.
	Result  string           `json:"result"`
	Records []dnswire.Record `json:"records,omitempty"`
	// Note is what else the server said, or why nobody was asked.
	Note    string `json:"note,omitempty"`
	assumed bool   // nobody was asked
}

// resolverNames are those that --libc takes.
var resolverNames = map[string]dnsconfig.Libc{
	"glibc": dnsconfig.Glibc, "musl": dnsconfig.Musl, "go": dnsconfig.GoResolver, "windows": dnsconfig.WindowsClient,
}

// Resolver is the Libc of a name that --libc takes.
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

// Explain explains. It asks as often as the resolver would, and a little more
// for the diagnosis.
func Explain(r Request) *Explanation {
	if r.Subject.Spec.OS == string(dnsconfig.Windows) {
		r.Libc = dnsconfig.WindowsClient
	}
	pod := r.Subject.Settings()
	pod.Libc = r.Libc
	resolved := dnsconfig.Resolve(pod, r.Node)
	a := &asker{ask: r.Query, searched: r.ServerSearch, answers: make(map[asked]Answer)}
	e := &Explanation{
		Name: r.Name, Types: typeNames(r.types()), Pod: r.Subject.String(), Resolver: resolverName(r.Libc),
		Policy: resolved.Policy, ResolvConf: resolved.Config.String(),
		trace: r.resolve(resolved.Config, r.Libc, a),
	}
	e.warn(pod, r.Node, resolved.Warnings)
	e.Ndots, e.Packets = e.trace.Ndots, e.trace.Packets()
	e.Outcome, e.Why = e.trace.Outcome.String(), e.trace.Why
	e.Candidates = make([]Candidate, 0, len(e.trace.Candidates))
	for i := range e.trace.Candidates {
		e.Candidates = append(e.Candidates, a.try(&e.trace, i))
	}
	if e.trace.Outcome == stubresolver.Found && len(e.Candidates) > 0 {
		for _, q := range e.Candidates[len(e.Candidates)-1].Exchanges {
			e.Records = append(e.Records, q.Records...)
		}
		e.Records = unique(e.Records)
	}
	d := &diagnosis{Request: &r, e: e, a: a, conf: resolved.Config, found: []Diagnosis{}}
	e.Diagnoses = d.diagnose()
	return e
}

// unknown is the outcome when it depends on who was not asked.
const unknown = "not known"

// last is the candidate that was tried last, nil if there is none.
func (e *Explanation) last() *Candidate {
	if len(e.Candidates) == 0 {
		return nil
	}
	return &e.Candidates[len(e.Candidates)-1]
}

// warn takes down what is wrong with the Pod's settings.
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

// resolve does as a resolver with this resolv.conf. The Pod's own name is in its
// /etc/hosts, which the kubelet writes.
func (r *Request) resolve(conf resolvconf.Config, libc dnsconfig.Libc, a *asker) stubresolver.Trace {
	hostname, _ := dnsconfig.HostnameOf(r.Subject.Settings(), r.Node) // that it does not start is another matter
	if own := strings.EqualFold; !r.Subject.Spec.HostNetwork && r.forAddresses() && (own(r.Name, hostname.Kernel) || own(r.Name, hostname.FQDN)) {
		return stubresolver.Trace{Outcome: stubresolver.Found, Why: "it is the Pod's own name, which is in its /etc/hosts"}
	}
	return stubresolver.Resolve(stubresolver.Lookup{Libc: libc, Conf: conf, Hostname: hostname.Kernel, Name: r.Name, Type: r.Type}, a.reply)
}

// forAddresses tells whether addresses are looked up: files have nothing else.
func (r *Request) forAddresses() bool {
	return r.Type == 0 || r.Type == dnswire.TypeA || r.Type == dnswire.TypeAAAA
}

// types are what is looked up.
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

// sorted are records in an order that does not depend on the server's. What is
// no alias comes last.
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

// unique are the records without those that are there twice.
func unique(records []dnswire.Record) (once []dnswire.Record) {
	for _, r := range records {
		if !slices.Contains(once, r) {
			once = append(once, r)
		}
	}
	return once
}

// try is a candidate with its answers.
func (a *asker) try(t *stubresolver.Trace, i int) Candidate {
	from := &t.Candidates[i]
	try := Candidate{Name: from.Name, Why: from.Cause.String(), Skipped: from.Skipped, Outcome: from.Outcome.String(), Stopped: from.Why, Exchanges: []Exchange{}}
	if from.Cause == stubresolver.Searched {
		domain := t.Searches[from.Domain]
		if domain != "." {
			domain = strings.TrimSuffix(domain, ".")
		}
		try.Why += " " + domain
	}
	for round, queries := range from.Rounds {
		for _, q := range queries {
			try.Exchanges = append(try.Exchanges, a.query(q, round+1))
		}
	}
	return try
}

// query is a packet with what came of it.
func (a *asker) query(q stubresolver.Exchange, round int) Exchange {
	made := Exchange{Server: q.Server.String(), Type: q.Type.String(), TCP: q.TCP, Round: round, Attempt: q.Attempt}
	if q.Malformed() {
		made.Result, made.Note = timeout, "the query is malformed"
		return made
	}
	answer := a.answer(q.Server, q.Query)
	switch {
	case answer.NotAsked != "":
		made.Result, made.Note, made.assumed = dnswire.NXDomain.String(), "assumed: "+answer.NotAsked, true
	case answer.Message == nil && answer.Loss == stubresolver.Unreachable:
		made.Result = unreachable
	case answer.Message == nil:
		made.Result = timeout
	default:
		m := answer.Message
		made.Result, made.Records = resultOf(m, q.Type), sorted(m.Answer)
		if leadsOut(answer, q.Type) != "" {
			made.Note = "the target is outside the cluster, no server was queried; use --live"
		}
		for _, e := range m.Errors {
			made.Note = e.Text
		}
	}
	return made
}

// Results that are no code of an answer.
const (
	noData      = "NODATA"
	timeout     = "TIMEOUT"
	unreachable = "UNREACHABLE"
)

// resultOf is an answer's code, or that there are no records of the type.
func resultOf(m *dnswire.Message, t dnswire.Type) string {
	has := slices.ContainsFunc(m.Answer, func(r dnswire.Record) bool { return r.Type == t.String() })
	if m.Code == dnswire.NoError && !has {
		return noData
	}
	return m.Status
}
