package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"portolan.dev/portolan/internal/cluster"
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

// The rules of notes.
const (
	manyQueries = "many-queries"
	largeAnswer = "large-answer"
)

// IsNote reports whether it says what is wasteful about a lookup, and no cause of its outcome.
func (d Diagnosis) IsNote() bool { return d.Rule == manyQueries || d.Rule == largeAnswer }

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
	blocks := ""
	if len(d.e.Own) == 0 { // else the Pod asks no server
		blocks = d.blocked()
	}
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

// inDomain reports whether a name is in a cluster domain.
func (d *diagnoser) inDomain(name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return slices.ContainsFunc(d.Linter.Domains, func(domain string) bool {
		return name == domain || strings.HasSuffix(name, "."+domain)
	})
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
