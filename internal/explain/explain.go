// Package explain says what becomes of a name in a Pod: what its resolver asks,
// candidate by candidate, what the answers are, where it stops, and why it ends
// as it does.
package explain

import (
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/check"
	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/podresolv"
	"portolan.dev/portolan/internal/resolvconf"
	"portolan.dev/portolan/internal/stub"
)

// Request is a name in a Pod, and what is known of the Pod and its cluster.
type Request struct {
	// Name is as a program gives it.
	Name string
	// Type is what is looked up; 0 is A and AAAA, as programs mostly do it.
	Type    dnswire.Type
	Subject podresolv.Subject
	Libc    podresolv.Libc
	Node    podresolv.Node
	// Cluster is the model, and the rules over it.
	Cluster *check.Cluster
	// Ask asks a server.
	Ask Ask
}

// Ask asks a server one question.
type Ask func(server netip.Addr, q stub.Question) Answer

// Answer is what came of a question.
type Answer struct {
	// Message is nil where nobody answered, or was asked.
	Message *dnswire.Message
	Loss    stub.Loss
	// Unasked is why nobody was asked, such as that the name is not the
	// cluster's; then it counts as a name that does not exist. "" is that
	// somebody was.
	Unasked string
}

// Explanation is what becomes of the name.
type Explanation struct {
	Name string   `json:"name"`
	Type []string `json:"types"`
	// Pod is kind and key.
	Pod      string `json:"pod"`
	Resolver string `json:"resolver"`
	// Policy is the dnsPolicy in effect.
	Policy     podresolv.Policy `json:"policy"`
	ResolvConf string           `json:"resolvConf"`
	Warnings   []string         `json:"warnings,omitempty"`
	Ndots      int              `json:"ndots"`
	Tries      []Try            `json:"tries"`
	Outcome    string           `json:"outcome"`
	Why        string           `json:"why"`
	Records    []dnswire.Record `json:"records,omitempty"`
	Packets    int              `json:"packets"`
	Diagnoses  []Diagnosis      `json:"diagnoses"`
	trace      stub.Trace
}

// Found tells whether there are records.
func (e *Explanation) Found() bool { return e.trace.Outcome == stub.Found }

// Try is one candidate.
type Try struct {
	Name string `json:"name"` // complete, with its closing dot
	// Why is why it is tried in its place.
	Why string `json:"why"`
	// Skipped is why nothing is asked.
	Skipped string  `json:"skipped,omitempty"`
	Queries []Query `json:"queries"`
	Outcome string  `json:"outcome"`
	// Stopped is why the resolver does not simply go on after it.
	Stopped string `json:"stopped,omitempty"`
}

// Query is one packet, and what came of it.
type Query struct {
	Server string `json:"server"`
	Type   string `json:"type"`
	// Round tells which are under way together; Attempt is from 1.
	Round   int `json:"round"`
	Attempt int `json:"attempt"`
	// Result is the code of the answer, NODATA for no records of the type, or
	// TIMEOUT or UNREACHABLE.
	Result  string           `json:"result"`
	Records []dnswire.Record `json:"records,omitempty"`
	// Note is what else the server said, or why nobody was asked.
	Note string `json:"note,omitempty"`
}

// resolverNames are those that --libc takes.
var resolverNames = map[string]podresolv.Libc{
	"glibc": podresolv.Glibc, "musl": podresolv.Musl, "go": podresolv.GoResolver, "windows": podresolv.WindowsClient,
}

// Resolver is the Libc of a name that --libc takes.
func Resolver(name string) (l podresolv.Libc, ok bool) {
	l, ok = resolverNames[name]
	return l, ok
}

func resolverName(l podresolv.Libc) string {
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
	if r.Subject.Spec.OS == string(podresolv.Windows) {
		r.Libc = podresolv.WindowsClient
	}
	pod := r.Subject.Settings()
	pod.Libc = r.Libc
	resolved := podresolv.Resolve(pod, r.Node)
	a := &asker{ask: r.Ask, answers: make(map[asked]Answer)}
	e := &Explanation{
		Name: r.Name, Type: typeNames(r.types()), Pod: r.Subject.String(), Resolver: resolverName(r.Libc),
		Policy: resolved.Policy, ResolvConf: resolved.Config.String(),
		trace: r.resolve(resolved.Config, r.Libc, a),
	}
	for _, w := range resolved.Warnings {
		e.Warnings = append(e.Warnings, w.String())
	}
	e.Ndots, e.Packets = e.trace.Ndots, e.trace.Packets()
	e.Outcome, e.Why = e.trace.Outcome.String(), e.trace.Why
	e.Tries = make([]Try, 0, len(e.trace.Tries))
	for i := range e.trace.Tries {
		e.Tries = append(e.Tries, a.try(&e.trace, i))
	}
	if e.Found() && len(e.Tries) > 0 {
		for _, q := range e.Tries[len(e.Tries)-1].Queries {
			e.Records = append(e.Records, q.Records...)
		}
		e.Records = unique(e.Records)
	}
	d := &diagnosis{Request: &r, e: e, a: a, conf: resolved.Config}
	e.Diagnoses = d.diagnose()
	return e
}

// resolve does as a resolver with this resolv.conf. The Pod's own name is in its
// /etc/hosts, which the kubelet writes.
func (r *Request) resolve(conf resolvconf.Config, libc podresolv.Libc, a *asker) stub.Trace {
	hostname, _ := podresolv.HostnameOf(r.Subject.Settings(), r.Node) // that it does not start is another matter
	if own := strings.EqualFold; !r.Subject.Spec.HostNetwork && (own(r.Name, hostname.Kernel) || own(r.Name, hostname.FQDN)) {
		return stub.Trace{Outcome: stub.Found, Why: "it is the Pod's own name, which is in its /etc/hosts"}
	}
	return stub.Resolve(stub.Lookup{Libc: libc, Conf: conf, Hostname: hostname.Kernel, Name: r.Name, Type: r.Type}, a.reply)
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

// unique are the records without those that are there twice.
func unique(records []dnswire.Record) (once []dnswire.Record) {
	for _, r := range records {
		if !slices.Contains(once, r) {
			once = append(once, r)
		}
	}
	return once
}

// asker asks, and remembers the answers.
type asker struct {
	ask     Ask
	answers map[asked]Answer
}

// asked is a question that is asked once: whoever asks again has the same
// answer.
type asked struct {
	server netip.Addr
	stub.Question
}

func (a *asker) answer(server netip.Addr, q stub.Question) Answer {
	key := asked{server, q}
	answer, known := a.answers[key]
	if !known {
		answer = a.ask(server, q)
		a.answers[key] = answer
	}
	return answer
}

// reply is the answer as resolvers take it.
func (a *asker) reply(server netip.Addr, q stub.Question) stub.Reply {
	answer := a.answer(server, q)
	if answer.Message == nil {
		if answer.Unasked != "" {
			return stub.Reply{RCode: dnswire.NXDomain}
		}
		return stub.Reply{Loss: answer.Loss}
	}
	m := answer.Message
	reply := stub.Reply{RCode: m.Code, Truncated: slices.Contains(m.Flags, "tc")}
	for _, r := range m.Answer {
		switch r.Type {
		case q.Type.String():
			reply.Records++
		case "CNAME":
			reply.Alias = r.Data
		}
	}
	return reply
}

// assumedNote begins the note on an answer that nobody gave.
const assumedNote = "assumed: "

// try is a candidate with its answers.
func (a *asker) try(t *stub.Trace, i int) Try {
	from := &t.Tries[i]
	try := Try{Name: from.Name, Why: from.Cause.String(), Skipped: from.Skipped, Outcome: from.Outcome.String(), Stopped: from.Why, Queries: []Query{}}
	if from.Cause == stub.Searched {
		try.Why += " " + strings.TrimSuffix(t.Searches[from.Domain], ".")
	}
	for round, queries := range from.Rounds {
		for _, q := range queries {
			try.Queries = append(try.Queries, a.query(q, round+1))
		}
	}
	return try
}

// query is a packet with what came of it.
func (a *asker) query(q stub.Query, round int) Query {
	answer := a.answer(q.Server, q.Question)
	made := Query{Server: q.Server.String(), Type: q.Type.String(), Round: round, Attempt: q.Attempt}
	switch {
	case answer.Unasked != "":
		made.Result, made.Note = dnswire.NXDomain.String(), assumedNote+answer.Unasked
	case answer.Message == nil && answer.Loss == stub.Unreachable:
		made.Result = "UNREACHABLE"
	case answer.Message == nil:
		made.Result = "TIMEOUT"
	default:
		m := answer.Message
		made.Result, made.Records = m.Status, m.Answer
		if made.Result == dnswire.NoError.String() && q.Reply.Records == 0 {
			made.Result = "NODATA"
		}
		for _, e := range m.Errors {
			made.Note = e.Text
		}
	}
	return made
}
