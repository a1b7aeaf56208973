// Package lint finds what users of a cluster's DNS will meet: names that do not
// resolve, or not as they were meant, and why.
//
// Its rules (see Rules) go by Kubernetes DNS-Based Service Discovery 1.1.0, by
// Kubernetes' pages DNS for Services and Pods, Service, EndpointSlices, Network
// Policies and IPv4/IPv6 dual-stack, and by the KEP Configurable Pod DNS; each
// names its source. What a Pod's own settings come to is told in the words of
// package podresolv.
//
// Everything here is a pure function of the model. What needs kinds of objects
// that are not loaded is not judged.
package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
)

// Severity is how bad a finding is.
type Severity int

// The severities, from the least.
const (
	// Note: it works, and may surprise.
	Note Severity = iota
	// Warning: it may not work, or not for all.
	Warning
	// Error: a name does not resolve, or what it resolves to does not answer.
	Error
)

// String is the severity in a word.
func (s Severity) String() string { return [...]string{"note", "warning", "error"}[s] }

// MarshalText is String.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ParseSeverity reads what String gives.
func ParseSeverity(text string) (Severity, error) {
	for s := Note; s <= Error; s++ {
		if text == s.String() {
			return s, nil
		}
	}
	return 0, fmt.Errorf("severity %q is not error, warning or note", text)
}

// Object is what a finding is about.
type Object struct {
	Kind cluster.Kind
	cluster.Key
}

// String is kind and key, such as "service shop/web".
func (o Object) String() string { return strings.ToLower(o.Kind.String()) + " " + o.Key.String() }

// Compare orders objects by kind, then key.
func (o Object) Compare(p Object) int {
	return cmp.Or(cmp.Compare(o.Kind, p.Kind), o.Key.Compare(p.Key))
}

// Finding is something that a rule found.
type Finding struct {
	Rule     string // its ID
	Severity Severity
	Object   Object
	// Field is the path of the field that is to blame, such as
	// "spec.ports[0].targetPort"; "" when it is the object as a whole.
	Field string
	// Message is what is wrong and why: a sentence that begins with a small
	// letter and has no full stop.
	Message string
	// Fix is the cure: an imperative clause.
	Fix string
	// blocked is of findings that All tells of NetworkPolicies, else nil.
	blocked *blocked
}

// compare orders findings by object, then rule.
func (f *Finding) compare(g *Finding) int {
	return cmp.Or(f.Object.Compare(g.Object), cmp.Compare(f.Rule, g.Rule), cmp.Compare(f.Field, g.Field), cmp.Compare(f.Message, g.Message))
}

// Cluster is what is judged. It is good as long as its View, and for use by one
// goroutine at a time.
type Linter struct {
	View *cluster.View
	// Domains are the cluster's, without closing dot, in small letters; the
	// first is the one that Pods search.
	Domains []string
	// DNSService is the Service of the cluster's DNS.
	DNSService cluster.Key
	// Node gives the settings of the node that a Pod is on, or may be on.
	Node func(*dnsconfig.Subject) dnsconfig.NodeSettings

	once  sync.Once
	index *index
}

// All judges everything. Findings are in order of object, then rule. What a
// workload's template is blamed for is not told again of its Pods, and what
// NetworkPolicies do to Pods is told of the policies.
func (c *Linter) CheckAll() []Finding {
	x := c.indexed()
	var all []Finding
	for n := range c.View.Namespaces() {
		all = append(all, c.CheckNamespace(n)...)
	}
	for s := range c.View.Services() {
		all = append(all, c.CheckService(s)...)
	}
	for s := range c.View.EndpointSlices() {
		all = append(all, c.CheckEndpointSlice(s)...)
	}
	for i := range x.all {
		all = append(all, c.CheckSubject(&x.all[i])...)
	}
	all = append(all, c.CheckDNSService()...)
	all = c.byPolicy(x.withoutEchoes(all))
	slices.SortFunc(all, func(a, b Finding) int { return a.compare(&b) })
	return all
}

// Whole judges the cluster as a whole: whether there is a Service of its DNS.
func (c *Linter) CheckDNSService() []Finding {
	j := c.reporterFor(cluster.KindService, c.DNSService)
	j.dnsServiceMissing()
	return j.found()
}

// judge collects the findings about one object.
type reporter struct {
	*Linter
	object   Object
	findings []Finding
}

func (c *Linter) reporterFor(k cluster.Kind, key cluster.Key) *reporter {
	return &reporter{Linter: c, object: Object{k, key}}
}

// add notes a finding with the rule's own severity.
func (j *reporter) add(rule, field, fix, format string, args ...any) {
	j.addAs(severities[rule], rule, field, fix, format, args...)
}

// addAs notes a finding with another severity.
func (j *reporter) addAs(s Severity, rule, field, fix, format string, args ...any) {
	j.findings = append(j.findings, Finding{Rule: rule, Severity: s, Object: j.object, Field: field, Fix: fix, Message: fmt.Sprintf(format, args...)})
}

// found are the findings, in order.
func (j *reporter) found() []Finding {
	slices.SortFunc(j.findings, func(a, b Finding) int { return a.compare(&b) })
	return j.findings
}

// loaded tells whether all of the kinds are.
func (j *reporter) loaded(ks ...cluster.Kind) bool { return j.View.Loaded(ks...) }

// podsLoaded tells whether it is known which Pods there are, and will be.
func (c *Linter) podsLoaded() bool {
	return c.View.Loaded(cluster.KindPod) && c.View.Loaded(cluster.WorkloadKinds()...)
}
