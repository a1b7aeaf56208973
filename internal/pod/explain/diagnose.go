package explain

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// Diagnosis is a cause of the outcome, and its cure.
type Diagnosis struct {
	// Rule is the ID of the rule of package lint that found it, or an ID of this package.
	Rule string `json:"rule"`
	Why  string `json:"why"`
	Cure string `json:"cure"`
}

// diagnoser has the input of the diagnosis, and the causes found so far.
type diagnoser struct {
	*Request
	e *Explanation
	a *querier
	// conf is the Pod's resolv.conf, and names are the names that the resolver tries. Once
	// a cause in the Pod's settings or in the form of the name is found, they are those
	// without it, so that a second cause is found, too.
	conf  resolvconf.Config
	names []string
	found []Diagnosis
}

// namesOf returns the names that a resolver tried.
func namesOf(t *stubresolver.Trace) (names []string) {
	for i := range t.Candidates {
		names = append(names, t.Candidates[i].Name)
	}
	return names
}

// simulate returns the trace of the lookup with another resolv.conf or resolver.
func (d *diagnoser) simulate(conf resolvconf.Config, libc dnsconfig.Libc) stubresolver.Trace {
	return d.resolve(conf, libc, d.a)
}

func (d *diagnoser) add(rule, cure, format string, args ...any) {
	d.found = append(d.found, Diagnosis{Rule: rule, Why: fmt.Sprintf(format, args...), Cure: cure})
}

// addFindings adds the findings of the given rules, and reports whether there are any.
func (d *diagnoser) addFindings(findings []lint.Finding, rules ...string) bool {
	before := len(d.found)
	for _, f := range findings {
		if slices.Contains(rules, f.Rule) {
			d.found = append(d.found, Diagnosis{Rule: f.Rule, Why: f.Object.String() + ": " + f.Message, Cure: f.Fix})
		}
	}
	return len(d.found) > before
}

// diagnose returns the causes of the outcome. Causes that affect every name come first,
// then wrong answers of servers, then causes that concern this name only:
//
//	the Pod has finished, NetworkPolicies, the cluster DNS has no endpoint
//	─► malformed, silent, server differs from model, failing, zone not loaded, not read
//	─► dnsPolicy, trailing dot, resolver ─► the name itself (see name)
//
// A cause in the third line hides those of the name itself: if the name would not resolve
// without it either, both are returned.
func (d *diagnoser) diagnose() []Diagnosis {
	blocks := d.blocked()
	differs := d.differs()
	switch {
	case d.e.trace.Outcome == stubresolver.Found:
		d.endpoints()
		d.unqueried()
		d.queries()
	case d.malformed() || d.silent() || differs || d.failing() || d.zoneNotLoaded():
	case d.notLoaded(cluster.KindNamespace, cluster.KindService):
	case d.policy() || d.trailingDot() || d.resolver():
	default:
		d.name()
	}
	if blocks != "" {
		d.e.block(blocks)
	}
	return d.found
}

// blocked returns why none of the Pod's queries reaches the cluster DNS, or "".
func (d *diagnoser) blocked() string {
	if d.Subject.Finished() {
		d.add("pod-finished", "name a Pod that runs, or its workload", "%s has finished: it looks nothing up any more",
			&d.Subject)
		return "the Pod has finished"
	}
	usesService := slices.ContainsFunc(d.conf.Nameservers, func(a netip.Addr) bool {
		return slices.Contains(d.Node.ClusterDNS, a) && !a.IsLinkLocalUnicast()
	})
	// Policies are judged of Pods with the labels of the selector, which none need have.
	s := d.Linter.View.Service(d.Linter.DNSService)
	hasPods := s == nil || len(s.Selector) == 0 || d.selectsPod(s)
	if hasPods && d.addFindings(d.Linter.CheckSubject(&d.Subject), lint.NetworkPolicyBlocksDNS) {
		return "NetworkPolicies keep the Pod's queries from the cluster DNS"
	}
	if s != nil && usesService && d.addFindings(d.Linter.CheckService(s), lint.DNSServiceNoEndpoint) {
		return "nothing answers at the address of the cluster DNS"
	}
	if !hasPods && d.addFindings(d.Linter.CheckSubject(&d.Subject), lint.NetworkPolicyBlocksDNS) {
		return "NetworkPolicies keep the Pod's queries from the cluster DNS"
	}
	return ""
}

// selectsPod reports whether there is a Pod that a Service selects.
func (d *diagnoser) selectsPod(s *cluster.Service) bool {
	for p := range d.Linter.View.Pods() {
		if s.Selects(p) && !p.Finished {
			return true
		}
	}
	return false
}

// notLoaded reports whether one of the kinds was not read, which the API refused.
func (d *diagnoser) notLoaded(kinds ...cluster.Kind) bool {
	for _, k := range kinds {
		if !d.Linter.View.Loaded(k) {
			d.add("not-read", fmt.Sprintf("grant the account of this command the right to list %s, or use another account",
				strings.ToLower(k.Plural())),
				"this command may not read %s, so the cause is not known; the server may have read them", k.Plural())
			return true
		}
	}
	return false
}

// resolves reports whether a name resolves in this Pod.
func (d *diagnoser) resolves(name string) bool {
	other := *d.Request
	other.Name = name
	t := other.resolve(d.conf, d.Libc, d.a)
	return t.Outcome == stubresolver.Found
}

// nameOf returns the shortest name of a Service, of its endpoint or of its port that
// resolves in the Pod, and reports whether there is one. If none resolves, it returns the
// fully qualified name.
func (d *diagnoser) nameOf(m meaning) (name string, resolves bool) {
	name = m.service.Name
	switch {
	case m.host != "":
		name = m.host + "." + name
	case m.port != "":
		name = "_" + m.port + "._" + m.protocol + "." + name
	}
	qualified := name + "." + m.service.Namespace + ".svc." + d.Linter.Domains[0] + "."
	if m.service.Namespace == d.Subject.Namespace && d.resolves(name) {
		return name, true
	}
	if name += "." + m.service.Namespace; d.resolves(name) {
		return name, true
	}
	return qualified, d.resolves(qualified)
}

// suggest adds a cause whose cure is to use the name of m instead. Such a name is looked
// up first: if it does not resolve either, the cure says so, and the cause of that follows.
func (d *diagnoser) suggest(rule string, m meaning, certain, format string, args ...any) {
	d.e.Meant = m.service
	name, resolves := d.nameOf(m)
	if resolves {
		d.add(rule, fmt.Sprintf("ask for %q%s", name, certain), format, args...)
		return
	}
	d.add(rule, fmt.Sprintf("ask for %q%s, which does not resolve yet", name, certain), format, args...)
	if s := d.Linter.View.Service(m.service); s != nil {
		d.service(s, m)
	}
}

// ifMeant is the reservation of a cure that guesses.
const ifMeant = ", if that is what is meant"

// trailingDot reports whether the name resolves without its trailing dot.
func (d *diagnoser) trailingDot() bool {
	name, rooted := strings.CutSuffix(d.Name, ".")
	if !rooted || name == "" {
		return false
	}
	other := *d.Request
	other.Name = name
	trace := other.resolve(d.conf, d.Libc, d.a)
	switch {
	case trace.Outcome == stubresolver.Found:
		d.mean(namesOf(&trace))
		d.add("trailing-dot", fmt.Sprintf("ask for %q", name),
			"the trailing dot disables the search list, with which the name resolves")
		return true
	case d.meansOnly(&trace):
		d.add(
			"trailing-dot",
			"leave it out",
			"the trailing dot disables the search list, with which names of Services are completed",
		)
		d.names = namesOf(&trace)
	}
	return false
}

// mean notes the Service that one of the names which another lookup tries stands for.
func (d *diagnoser) mean(names []string) {
	if m, likely := d.likeliest(names); likely > 0 {
		d.e.Meant = m.service
	}
}

// meansOnly reports whether the name stands for something in the cluster in another
// lookup, and not in this one.
func (d *diagnoser) meansOnly(other *stubresolver.Trace) bool {
	if _, ok := d.meaning(); ok {
		return false
	}
	_, likely := d.likeliest(namesOf(other))
	return likely >= inNamespace
}

// malformed reports whether the resolver sends no query for the name.
func (d *diagnoser) malformed() bool {
	if d.e.Packets > 0 {
		return false
	}
	i := strings.IndexFunc(d.Name, func(r rune) bool {
		return r != '.' && r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	var r rune
	if i >= 0 {
		r, _ = utf8.DecodeRuneInString(d.Name[i:])
	}
	_, notAddr := netip.ParseAddr(d.Name)
	switch {
	case notAddr == nil:
		d.add("no-query", "look up the type that the address has", "it is an address: %s", d.e.Why)
	case r > unicode.MaxASCII && r != utf8.RuneError:
		d.add("invalid-hostname", "write it in its ASCII form, xn--... (RFC 5891)",
			"%q contains %q, which queries can have in its ASCII form only", d.Name, r)
	case i >= 0:
		d.add("invalid-hostname", "give the hostname alone, without scheme, port, path or spaces",
			"%q contains %q, which is not allowed in a hostname", d.Name, r)
	default:
		d.add("no-query", "give a name of at most 253 characters, in labels of 1 to 63", "no query is sent: %s", d.e.Why)
	}
	return true
}

// exchanges iterates over all queries and their answers, with the names queried.
func (d *diagnoser) exchanges() iter.Seq2[string, *Exchange] {
	return func(yield func(string, *Exchange) bool) {
		for i := range d.e.Candidates {
			for k := range d.e.Candidates[i].Exchanges {
				if !yield(d.e.Candidates[i].Name, &d.e.Candidates[i].Exchanges[k]) {
					return
				}
			}
		}
	}
}

// silent reports whether a server did not respond to any query.
func (d *diagnoser) silent() bool {
	answered := make(map[string]bool)
	for _, q := range d.exchanges() {
		answered[q.Server] = answered[q.Server] || !q.lost()
	}
	for _, q := range d.exchanges() {
		if !answered[q.Server] {
			d.add("server-silent",
				"check that it runs and can be reached from here: --live sends queries from where this command runs, "+
					"--server to another address, and --tcp also through kubectl port-forward",
				"%s does not answer (%s)", q.Server, q.Result)
			return true
		}
	}
	return false
}

// lost reports whether there was no response.
func (q *Exchange) lost() bool { return q.Result == timeout || q.Result == unreachable }

// failing reports whether a server did not answer for a name of the cluster. What it says of
// names outside the cluster is considered in outside, where the name stands for nothing else.
func (d *diagnoser) failing() bool {
	for name, q := range d.exchanges() {
		if !d.inDomain(name) {
			continue
		}
		switch {
		case q.Result == dnswire.ServFail.String() && d.modelFails(name, q):
			if d.notLoaded(cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindPod) {
				return true
			}
			continue // the objects are the cause
		case q.Result == dnswire.ServFail.String() && q.code == uint16(dnswire.EDENotReady):
			d.add("server-not-ready", "check the server's /readyz, its log and the rights of its account",
				"%s has not read what %s depends on (SERVFAIL%s)", q.Server, name, noteOf(q))
		case q.Result == dnswire.ServFail.String():
			d.add("server-fails", "check the server's /readyz and its log", "%s fails to answer for %s (SERVFAIL%s)",
				q.Server, name, noteOf(q))
		case q.Result == dnswire.Refused.String():
			d.add("server-refuses", "check that the server has this cluster's domain (dns.zones) and that its rules "+
				"allow this client",
				"%s refuses to answer for %s, a name of the cluster (REFUSED%s)", q.Server, name, noteOf(q))
		case q.lost():
			d.add("server-silent", "check the server's log", "%s does not answer for %s (%s)", q.Server, name, q.Result)
		default:
			continue
		}
		return true
	}
	return false
}

// zoneNotLoaded reports whether a server does not answer because it has not loaded the zone
// of the name, or of the alias' target.
func (d *diagnoser) zoneNotLoaded() bool {
	for name, q := range d.exchanges() {
		if q.Result != dnswire.ServFail.String() || q.code != uint16(dnswire.EDENotReady) {
			continue
		}
		for _, r := range q.Records {
			if r.Type == dnswire.TypeCNAME.String() {
				name = r.Data
			}
		}
		if d.inDomain(name) {
			continue
		}
		if p := d.zoneProblem(name); p != nil {
			d.add("zone-not-loaded", "correct the file; the server reads it again when it changes",
				"%s does not resolve because the %s", name, p)
			return true
		}
		d.add("server-not-ready", "check the server's log, and /readyz?verbose of its admin address",
			"%s has not loaded the zone of %s (SERVFAIL%s)", q.Server, name, noteOf(q))
		return true
	}
	return false
}

// zoneProblem returns why the zone of a name is not loaded. What this command reads is not
// what a live server has read.
func (d *diagnoser) zoneProblem(name string) *localzone.ZoneError {
	if d.Model != nil || d.ZoneProblem == nil {
		return nil
	}
	return d.ZoneProblem(name)
}

// modelFails reports whether the model has no answer to a query either.
func (d *diagnoser) modelFails(name string, q *Exchange) bool {
	if d.Model == nil {
		return true
	}
	model := d.modelAnswer(name, q)
	return model.Message != nil && model.Message.Code == dnswire.ServFail
}

// modelAnswer returns the model's answer to a query that was sent to a server.
func (d *diagnoser) modelAnswer(name string, q *Exchange) Answer {
	t, err := dnswire.ParseType(q.Type)
	if err != nil || len(d.Node.ClusterDNS) == 0 {
		return Answer{}
	}
	return d.Model(d.Node.ClusterDNS[0], stubresolver.Query{Name: name, Type: t, TCP: true, Size: dnswire.MaxMessage})
}

// inDomain reports whether a name is in a cluster domain.
func (d *diagnoser) inDomain(name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return slices.ContainsFunc(d.Linter.Domains, func(domain string) bool {
		return name == domain || strings.HasSuffix(name, "."+domain)
	})
}

func noteOf(q *Exchange) string {
	if q.Note == "" {
		return ""
	}
	return ": " + q.Note
}

// isClusterDNS reports whether a query was sent to the cluster DNS, or to a node's cache.
func (d *diagnoser) isClusterDNS(q *Exchange) bool {
	addr, err := netip.ParseAddr(q.Server)
	return err == nil && (slices.Contains(d.Node.ClusterDNS, addr) || addr.IsLinkLocalUnicast())
}

// differs reports whether the answer of the cluster DNS differs from the model.
func (d *diagnoser) differs() bool {
	if d.Model == nil || len(d.Node.ClusterDNS) == 0 {
		return false
	}
	for name, q := range d.exchanges() {
		t, err := dnswire.ParseType(q.Type)
		if err != nil || q.assumed || !d.isClusterDNS(q) {
			continue
		}
		model := d.modelAnswer(name, q)
		if model.Message == nil || model.Message.Code == dnswire.ServFail || isFailure(q.Result) {
			continue // one of them has no answer
		}
		records := q.Records
		if externalTarget(model, t) != "" { // the server follows the alias, the model does not
			records = withOwnersOf(records, model.Message.Answer)
		}
		live, known := answerText(q.Result, records), answerText(resultOf(model.Message, t), model.Message.Answer)
		if live != known {
			d.add("server-differs",
				"check whether the server is up to date (/readyz, /debug/model), and whether it serves this cluster",
				"%s answers %s %s with %s; the cluster that was read has %s", q.Server, name, q.Type, live, known)
			return true
		}
	}
	return false
}

// withOwnersOf returns the records whose owner names have records in the model.
func withOwnersOf(records, model []dnswire.Record) (owned []dnswire.Record) {
	for _, r := range records {
		if slices.ContainsFunc(model, func(m dnswire.Record) bool { return strings.EqualFold(m.Name, r.Name) }) {
			owned = append(owned, r)
		}
	}
	return owned
}

// answerText returns an answer as text that does not depend on the order of its records.
func answerText(result string, records []dnswire.Record) string {
	if len(records) == 0 {
		return result
	}
	var words []string
	for _, r := range records {
		words = append(words, r.Data)
	}
	slices.Sort(words)
	return firstFew(slices.Compact(words))
}

// endpointRules are the rules about Services without ready endpoints.
var endpointRules = []string{lint.ServiceNoReadyEndpoint, lint.ServiceSelectsNoPod, lint.ServiceNoEndpoints,
	lint.ServiceTargetPortMissing, lint.ServiceScaledToZero}

// endpoints adds why nothing answers at the address of a name that resolves.
func (d *diagnoser) endpoints() {
	if m, ok := d.meaning(); ok {
		if s := d.Linter.View.Service(m.service); s != nil && d.Model == nil {
			d.addFindings(d.Linter.CheckService(s), lint.ExternalNameUnqualified)
		}
		if s := d.Linter.View.Service(m.service); s != nil && s.ExternalName == "" {
			d.addFindings(d.Linter.CheckService(s), endpointRules...)
		}
	}
}

// queries adds why the lookup took more packets than necessary, and how to avoid them.
func (d *diagnoser) queries() {
	least, tries := len(d.types()), d.e.Candidates
	if len(tries) == 0 || d.e.Packets <= 2*least {
		return
	}
	wasted := 0
	for _, t := range tries[:len(tries)-1] {
		wasted += len(t.Exchanges)
	}
	last := tries[len(tries)-1].Name
	if wasted <= least {
		d.add("large-answer", "use a Service with a cluster IP, if clients need not choose an endpoint",
			"the response is large: %s for one name, because it did not fit the first time", packets(d.e.Packets))
		return
	}
	cure := fmt.Sprintf("ask for %q, with the trailing dot: %s", last, packets(d.e.Packets-wasted))
	const usual = 2 // the dots of most names outside the cluster
	if d.e.Ndots > usual && strings.Count(strings.TrimSuffix(d.Name, "."), ".") >= usual {
		cure += fmt.Sprintf("; or set the option ndots:%d in the Pod's dnsConfig, "+
			"so that the name is tried as given first", usual)
	}
	if n := d.withAutopath(); n > 0 && n < d.e.Packets {
		cure += fmt.Sprintf("; or, with the webhook, give the Pod the policy %s, with which the server "+
			"applies the search list (docs/webhook.md): %s", dnsconfig.ClusterFirstWithAutopath, packets(n))
	}
	d.add("many-queries", cure, "%d of %s were for names of the search list that do not exist (ndots:%d)",
		wasted, packets(d.e.Packets), d.e.Ndots)
}

// withAutopath returns the number of packets of the lookup with
// ClusterFirstWithAutopath, or 0 if the name would not resolve, or the Pod's policy is
// another one than ClusterFirst.
func (d *diagnoser) withAutopath() int {
	if d.e.Policy != dnsconfig.ClusterFirst {
		return 0
	}
	pod := d.Subject.Settings()
	pod.Policy = dnsconfig.ClusterFirstWithAutopath
	trace := d.simulate(dnsconfig.Resolve(pod, d.Node).Config, d.Libc)
	if trace.Outcome != stubresolver.Found {
		return 0
	}
	return trace.Packets()
}

func packets(n int) string {
	if n == 1 {
		return "1 packet"
	}
	return fmt.Sprintf("%d packets", n)
}

// policy reports whether the name resolves with the default policy. If it does not, and
// only stands for something in the cluster with that policy, it sets the names to those of
// the default policy.
func (d *diagnoser) policy() bool {
	if len(d.Node.ClusterDNS) == 0 {
		return false
	}
	pod := d.Subject.Settings()
	pod.Policy, pod.DNSConfig = dnsconfig.ClusterFirstWithHostNet, nil
	usual := dnsconfig.Resolve(pod, d.Node).Config
	trace := d.simulate(usual, d.Libc)
	if trace.Outcome == stubresolver.Found {
		d.mean(namesOf(&trace))
		d.addPolicy("the name resolves")
		return true
	}
	if d.meansOnly(&trace) {
		d.addPolicy("names of Services are completed")
		d.conf, d.names = usual, namesOf(&trace)
	}
	return false
}

// usualNdots is the option ndots of dnsPolicy ClusterFirst.
const usualNdots = 5

// addPolicy adds that the Pod's settings differ from those with which lookups succeed.
func (d *diagnoser) addPolicy(lookups string) {
	cure := "set dnsPolicy: ClusterFirst"
	if d.Subject.Spec.HostNetwork {
		cure = "set dnsPolicy: ClusterFirstWithHostNet, because the Pod has hostNetwork"
	}
	given, effect := policyName(d.Subject.Spec.DNSPolicy), ""
	if given != string(d.e.Policy) {
		effect = fmt.Sprintf(", in effect %s", d.e.Policy)
	}
	isClusterDNS := func(a netip.Addr) bool { return slices.Contains(d.Node.ClusterDNS, a) || a.IsLinkLocalUnicast() }
	switch {
	case d.hasAutopath():
		d.add("autopath", "point the Pod to a server that does (docs/webhook.md), or use the fully qualified name",
			"the Pod's search domain, %s, stands for a search list that the server applies, and this server does not",
			strings.Join(d.conf.Searches, " "))
	case !slices.ContainsFunc(d.conf.Nameservers, isClusterDNS):
		d.add("not-cluster-dns", cure, "the Pod does not use the cluster DNS: its dnsPolicy is %s%s", given, effect)
	case d.e.Ndots < usualNdots && slices.Contains(d.conf.Searches, "svc."+d.Linter.Domains[0]):
		d.add("few-ndots", fmt.Sprintf("set the option ndots:%d in dnsConfig, or use the fully qualified name", usualNdots),
			"the Pod has ndots:%d, so that its resolver (%s) does not complete a name with as many dots; with ndots:%d %s",
			d.e.Ndots, d.e.Resolver, usualNdots, lookups)
	default:
		d.add("no-search", "add the search domains of ClusterFirst to dnsConfig, or use the fully qualified name",
			"the Pod lacks the search domains, or the ndots, with which %s", lookups)
	}
}

// hasAutopath reports whether the Pod has a search domain of ClusterFirstWithAutopath:
// search.NAMESPACE.ZONE.SUFFIX, with any suffix.
func (d *diagnoser) hasAutopath() bool {
	return slices.ContainsFunc(d.conf.Searches, func(domain string) bool {
		rest, ok := strings.CutPrefix(strings.ToLower(domain), "search.")
		_, rest, _ = strings.Cut(rest, ".") // after the namespace
		return ok && slices.ContainsFunc(d.Linter.Domains, func(zone string) bool {
			return strings.HasPrefix(rest, strings.ToLower(zone)+".")
		})
	})
}

func policyName(policy string) string {
	if policy == "" {
		return string(dnsconfig.ClusterFirst)
	}
	return policy
}

// resolver reports whether the name resolves with glibc.
func (d *diagnoser) resolver() bool {
	if d.Libc == dnsconfig.Glibc {
		return false
	}
	trace := d.simulate(d.conf, dnsconfig.Glibc)
	if trace.Outcome != stubresolver.Found || len(trace.Candidates) == 0 {
		return false
	}
	d.mean(namesOf(&trace))
	name := trace.Candidates[len(trace.Candidates)-1].Name
	d.add("resolver", fmt.Sprintf("use the fully qualified name, %q", name),
		"glibc's resolver would find %s; this one (%s) does not: %s", name, d.e.Resolver, d.e.Why)
	return true
}
