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
	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// Diagnosis is why it ended as it did, in a sentence, and the cure.
type Diagnosis struct {
	// Rule is that of the check that found it, or a word of explain's own.
	Rule string `json:"rule"`
	Why  string `json:"why"`
	Cure string `json:"cure"`
}

// diagnosis holds what a diagnosis is made from, and what was found so far.
type diagnosis struct {
	*Request
	e     *Explanation
	a     *asker
	conf  resolvconf.Config // the Pod's
	found []Diagnosis
}

// would is what the name came to with another resolv.conf, or resolver.
func (d *diagnosis) would(conf resolvconf.Config, libc dnsconfig.Libc) stubresolver.Trace {
	return d.resolve(conf, libc, d.a)
}

func (d *diagnosis) add(rule, cure, format string, args ...any) {
	d.found = append(d.found, Diagnosis{Rule: rule, Why: fmt.Sprintf(format, args...), Cure: cure})
}

// take takes over findings of the given rules, and tells whether there were any.
func (d *diagnosis) take(findings []lint.Finding, rules ...string) bool {
	before := len(d.found)
	for _, f := range findings {
		if slices.Contains(rules, f.Rule) {
			d.found = append(d.found, Diagnosis{Rule: f.Rule, Why: f.Object.String() + ": " + f.Message, Cure: f.Fix})
		}
	}
	return len(d.found) > before
}

// diagnose says why the name ended as it did. What keeps every name from
// resolving comes first, then what the servers say that they should not; only
// then what is about this name.
func (d *diagnosis) diagnose() []Diagnosis {
	blocks := d.take(d.Linter.CheckSubject(&d.Subject), lint.NetworkPolicyBlocksDNS)
	differs := d.differs()
	switch {
	case d.e.trace.Outcome == stubresolver.Found:
		d.behind()
		d.queries()
	case d.malformed() || d.silent() || differs || d.failing() || d.unread():
	case d.policy() || d.closingDot() || d.resolver():
	default:
		d.name()
	}
	if blocks {
		d.e.block()
	}
	return d.found
}

// unread tells whether what decides is not known.
func (d *diagnosis) unread() bool {
	for _, k := range []cluster.Kind{cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice} {
		if !d.Linter.View.Loaded(k) {
			d.add("not-read", "grant the account access to read them", "%ss were not read, so the cause is not known", k)
			return true
		}
	}
	return false
}

// works tells whether a name is found in this Pod, by its resolver.
func (d *diagnosis) works(name string) bool {
	other := *d.Request
	other.Name = name
	t := other.resolve(d.conf, d.Libc, d.a)
	return t.Outcome == stubresolver.Found
}

// nameOf is the shortest name by which the Pod finds a Service, or the host of
// it that is meant; the whole name if it finds none.
func (d *diagnosis) nameOf(service cluster.Key, host string) string {
	name := service.Name
	if host != "" {
		name = host + "." + name
	}
	whole := name + "." + service.Namespace + ".svc." + d.Linter.Domains[0] + "."
	if service.Namespace == d.Subject.Namespace && d.works(name) {
		return name
	}
	if name += "." + service.Namespace; d.works(name) {
		return name
	}
	return whole
}

// closingDot tells whether the name is found without its closing dot.
func (d *diagnosis) closingDot() bool {
	name, rooted := strings.CutSuffix(d.Name, ".")
	if !rooted || name == "" || !d.works(name) {
		return false
	}
	d.add("closing-dot", fmt.Sprintf("ask for %q", name), "the trailing dot disables the search list, with which the name resolves")
	return true
}

// malformed speaks of what nobody is asked for.
func (d *diagnosis) malformed() bool {
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
		d.add("not-asked", "look up the type that the address has", "it is an address: %s", d.e.Why)
	case r > unicode.MaxASCII && r != utf8.RuneError:
		d.add("no-hostname", "write it in its ASCII form, xn--... (RFC 5891)", "%q contains %q, which queries can have in its ASCII form only", d.Name, r)
	case i >= 0:
		d.add("no-hostname", "give the hostname alone, without scheme, port, path or spaces", "%q contains %q, which is not allowed in a hostname", d.Name, r)
	default:
		d.add("not-asked", "give a name of at most 253 characters, in labels of 1 to 63", "no query is sent: %s", d.e.Why)
	}
	return true
}

// queried are all queries with what came of them, with the names asked for.
func (d *diagnosis) queried() iter.Seq2[string, *Exchange] {
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

// silent tells whether a server did not answer.
func (d *diagnosis) silent() bool {
	for _, q := range d.queried() {
		if q.Result == timeout || q.Result == unreachable {
			d.add("server-silent", "check that it runs and can be reached from here: --live sends queries from where this command runs, --server to another address, and --tcp also through kubectl port-forward",
				"%s does not answer (%s)", q.Server, q.Result)
			return true
		}
	}
	return false
}

// failing tells whether a server fails, or refuses.
func (d *diagnosis) failing() bool {
	for name, q := range d.queried() {
		switch q.Result {
		case dnswire.ServFail.String():
			d.add("server-fails", "check the server's /readyz and its log", "%s fails to answer for %s (SERVFAIL%s)", q.Server, name, noteOf(q))
			return true
		case dnswire.Refused.String():
			d.add("server-refuses", "configure an upstream (dns.forward.routes), if the server should answer such names", "%s refuses to answer for %s (REFUSED%s)", q.Server, name, noteOf(q))
			return true
		}
	}
	return false
}

func noteOf(q *Exchange) string {
	if q.Note == "" {
		return ""
	}
	return ": " + q.Note
}

// differs tells whether a server that was asked says something else than the
// model does.
func (d *diagnosis) differs() bool {
	if d.Model == nil || len(d.Node.ClusterDNS) == 0 {
		return false
	}
	for name, q := range d.queried() {
		t, err := dnswire.ParseType(q.Type)
		if err != nil || q.Result == timeout || q.Result == unreachable {
			continue
		}
		model := d.Model(d.Node.ClusterDNS[0], stubresolver.Query{Name: name, Type: t, TCP: true, Size: dnswire.MaxMessage})
		if model.Message == nil {
			continue // nobody knows
		}
		records := q.Records
		if leadsOut(model, t) != "" { // whither the server follows it, and the model does not
			records = ownedAsIn(records, model.Message.Answer)
		}
		if said, known := said(q.Result, records), said(resultOf(model.Message, t), model.Message.Answer); said != known {
			d.add("server-differs", "check whether the server is up to date (/readyz, /debug/model), and whether it serves this cluster",
				"%s answers %s %s with %s; the cluster that was read has %s", q.Server, name, q.Type, said, known)
			return true
		}
	}
	return false
}

// ownedAsIn are the records whose owners have records in the model.
func ownedAsIn(records, model []dnswire.Record) (owned []dnswire.Record) {
	for _, r := range records {
		if slices.ContainsFunc(model, func(m dnswire.Record) bool { return strings.EqualFold(m.Name, r.Name) }) {
			owned = append(owned, r)
		}
	}
	return owned
}

// said is an answer in words that do not depend on the order of records.
func said(result string, records []dnswire.Record) string {
	if len(records) == 0 {
		return result
	}
	var words []string
	for _, r := range records {
		words = append(words, r.Data)
	}
	slices.Sort(words)
	return some(slices.Compact(words))
}

// nobodyThere are the rules of Services that nobody answers for.
var nobodyThere = []string{lint.ServiceNoReadyEndpoint, lint.ServiceSelectsNoPod, lint.ServiceNoEndpoints, lint.ServiceTargetPortMissing, lint.ServiceScaledToZero}

// behind tells when a name resolves, and nobody answers at the address.
func (d *diagnosis) behind() {
	if m, ok := d.meaning(); ok {
		if s := d.Linter.View.Service(m.service); s != nil && s.ExternalName == "" {
			d.take(d.Linter.CheckService(s), nobodyThere...)
		}
	}
}

// queries tells when it took more packets than needed.
func (d *diagnosis) queries() {
	least, tries := len(d.types()), d.e.Candidates
	if len(tries) == 0 || d.e.Packets <= 2*least {
		return
	}
	vain := 0
	for _, t := range tries[:len(tries)-1] {
		vain += len(t.Exchanges)
	}
	last := tries[len(tries)-1].Name
	if vain <= least {
		d.add("large-answer", "use a Service with a cluster IP, if clients need not choose an endpoint",
			"the response is large: %s for one name, because it did not fit the first time", packets(d.e.Packets))
		return
	}
	cure := fmt.Sprintf("ask for %q, with the trailing dot: %s", last, packets(d.e.Packets-vain))
	const usual = 2 // dots of most names that are not the cluster's
	if d.e.Ndots > usual && strings.Count(strings.TrimSuffix(d.Name, "."), ".") >= usual {
		cure += fmt.Sprintf("; or set the option ndots:%d in the Pod's dnsConfig, so that the name is tried as given first", usual)
	}
	if n := d.withAutopath(); n > 0 && n < d.e.Packets {
		cure += fmt.Sprintf("; or give the Pod the policy %s, with which the server applies the search list (docs/webhook.md): %s", dnsconfig.ClusterFirstWithAutopath, packets(n))
	}
	d.add("many-queries", cure, "%d of %s were for names of the search list that do not exist (ndots:%d)", vain, packets(d.e.Packets), d.e.Ndots)
}

// withAutopath is how many packets the lookup would take if the server searched; 0
// where it would not end well, or the Pod can't have that.
func (d *diagnosis) withAutopath() int {
	if d.e.Policy != dnsconfig.ClusterFirst {
		return 0
	}
	pod := d.Subject.Settings()
	pod.Policy = dnsconfig.ClusterFirstWithAutopath
	would := d.would(dnsconfig.Resolve(pod, d.Node).Config, d.Libc)
	if would.Outcome != stubresolver.Found {
		return 0
	}
	return would.Packets()
}

func packets(n int) string {
	if n == 1 {
		return "1 packet"
	}
	return fmt.Sprintf("%d packets", n)
}

// policy tells whether the Pod would find the name with the usual policy.
func (d *diagnosis) policy() bool {
	if len(d.Node.ClusterDNS) == 0 {
		return false
	}
	pod := d.Subject.Settings()
	pod.Policy, pod.DNSConfig = dnsconfig.ClusterFirstWithHostNet, nil
	usual := dnsconfig.Resolve(pod, d.Node).Config
	if d.would(usual, d.Libc).Outcome != stubresolver.Found {
		return false
	}
	cure := "set dnsPolicy: ClusterFirst"
	if pod.HostNetwork {
		cure = "set dnsPolicy: ClusterFirstWithHostNet, because the Pod has hostNetwork"
	}
	given, effect := policyName(d.Subject.Spec.DNSPolicy), ""
	if given != string(d.e.Policy) {
		effect = fmt.Sprintf(", in effect %s", d.e.Policy)
	}
	asksCluster := func(a netip.Addr) bool { return slices.Contains(d.Node.ClusterDNS, a) || a.IsLinkLocalUnicast() }
	switch {
	case d.hasSearched():
		d.add("autopath", "point the Pod to a server that does (docs/webhook.md), or use the fully qualified name",
			"the Pod's search domain, %s, stands for a search list that the server applies, and this server does not", strings.Join(d.conf.Searches, " "))
	case !slices.ContainsFunc(d.conf.Nameservers, asksCluster):
		d.add("not-cluster-dns", cure, "the Pod does not use the cluster DNS: its dnsPolicy is %s%s", given, effect)
	default:
		d.add("no-search", "add the search domains of ClusterFirst to dnsConfig, or use the fully qualified name",
			"the Pod lacks the search domains, or the ndots, with which the name resolves")
	}
	return true
}

// hasSearched tells whether the Pod has a search domain that stands for the search
// list: search.NAMESPACE.ZONE.SUFFIX, whatever the suffix.
func (d *diagnosis) hasSearched() bool {
	return slices.ContainsFunc(d.conf.Searches, func(domain string) bool {
		rest, is := strings.CutPrefix(strings.ToLower(domain), "search.")
		_, rest, _ = strings.Cut(rest, ".") // behind the Namespace
		return is && slices.ContainsFunc(d.Linter.Domains, func(zone string) bool { return strings.HasPrefix(rest, strings.ToLower(zone)+".") })
	})
}

func policyName(policy string) string {
	if policy == "" {
		return string(dnsconfig.ClusterFirst)
	}
	return policy
}

// resolver tells whether another resolver would find the name.
func (d *diagnosis) resolver() bool {
	if d.Libc == dnsconfig.Glibc {
		return false
	}
	would := d.would(d.conf, dnsconfig.Glibc)
	if would.Outcome != stubresolver.Found || len(would.Candidates) == 0 {
		return false
	}
	name := would.Candidates[len(would.Candidates)-1].Name
	d.add("resolver", fmt.Sprintf("use the fully qualified name, %q", name), "glibc's resolver would find %s; this one (%s) does not: %s", name, d.e.Resolver, d.e.Why)
	return true
}
