// Package lint finds problems with names in a cluster: names that do not resolve,
// or not to what their authors expect, and why; and requests that Ingresses and
// routes do not serve.
//
// Its rules (see Rules) follow Kubernetes DNS-Based Service Discovery 1.1.0, the
// pages DNS for Services and Pods, Service, EndpointSlices, Network Policies, Ingress
// and IPv4/IPv6 dual-stack of the Kubernetes documentation, Gateway API v1, and the
// KEP Configurable Pod DNS. Each rule names its source. Findings about a Pod's DNS settings are the
// warnings of package dnsconfig.
//
// Everything here is a pure function of the model. A rule does not apply while a
// kind of object that it needs is not loaded.
package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/pod/dnsconfig"
)

// Severity orders findings by their consequences.
type Severity int

// The severities, in ascending order.
const (
	// Note: it works, but may surprise.
	Note Severity = iota
	// Warning: it may not work, or not for all clients.
	Warning
	// Error: a name does not resolve, or what it resolves to does not answer.
	Error
)

// String returns "note", "warning" or "error".
func (s Severity) String() string { return [...]string{"note", "warning", "error"}[s] }

// MarshalText returns the text of String.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ParseSeverity parses the text that String returns.
func ParseSeverity(text string) (Severity, error) {
	for s := Note; s <= Error; s++ {
		if text == s.String() {
			return s, nil
		}
	}
	return 0, fmt.Errorf("severity %q is not error, warning or note", text)
}

// Object identifies the object of a finding.
type Object struct {
	Kind cluster.Kind
	cluster.Key
}

// String returns kind and key, such as "service shop/web".
func (o Object) String() string { return strings.ToLower(o.Kind.String()) + " " + o.Key.String() }

// Compare orders objects by kind, then key.
func (o Object) Compare(p Object) int {
	return cmp.Or(cmp.Compare(o.Kind, p.Kind), o.Key.Compare(p.Key))
}

// Finding is a problem that a rule found.
type Finding struct {
	Rule     string // the rule's ID
	Severity Severity
	Object   Object
	// Field is the path of the field that causes it, such as
	// "spec.ports[0].targetPort", or "" if it is the object as a whole.
	Field string
	// Message is what is wrong and why, in lower case and without a full stop.
	Message string
	// Fix is the cure: an imperative clause.
	Fix string
	// blocked is set in findings that CheckAll reports for the NetworkPolicy
	// instead of the Pod.
	blocked *blockedDNS
}

// compare orders findings by object, then rule.
func (f *Finding) compare(g *Finding) int {
	return cmp.Or(f.Object.Compare(g.Object), cmp.Compare(f.Rule, g.Rule), cmp.Compare(f.Field, g.Field),
		cmp.Compare(f.Message, g.Message))
}

// Linter checks the objects of a view of the model. It is valid as long as its
// View, and not safe for concurrent use.
type Linter struct {
	View *cluster.View
	// Domains are the cluster domains in lower case, without a trailing dot. The
	// first is the one in the Pods' search lists.
	Domains []string
	// Served are the other domains that the server answers for or has a route for, in the
	// same form.
	Served []string
	// DNSService is the Service of the cluster DNS.
	DNSService cluster.Key
	// Observed reports whether the model is that of a running cluster: an object that is
	// not in it does not exist. Manifests lack what the control plane creates.
	Observed bool
	// Unread reports whether objects of a kind in a namespace are not in the model because the account may not
	// list them; nil if there are none.
	Unread func(k cluster.Kind, namespace string) bool
	// Node returns the settings of the node on which a Pod runs, or may run.
	Node func(*dnsconfig.Subject) dnsconfig.NodeSettings

	// Gateway is whose Ingresses and Gateways our gateway serves, and where.
	Gateway compile.Config
	// Now is the time at which certificates must be valid; zero does not judge that.
	Now time.Time

	once  sync.Once
	index *index
	compiledRouting
}

// CheckAll checks every object, and returns the findings ordered by object, then
// rule. A finding about a workload's template is not repeated for its Pods, and
// findings about Pods that NetworkPolicies cause are reported for the policies.
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
	for f := range cluster.Ingresses.All(c.View) {
		all = append(all, c.CheckIngress(f)...)
	}
	for f := range cluster.Gateways.All(c.View) {
		all = append(all, c.CheckGateway(f)...)
	}
	for s := range cluster.ListenerSets.All(c.View) {
		all = append(all, c.CheckListenerSet(s)...)
	}
	for r := range cluster.Routes(c.View) {
		all = append(all, c.CheckRoute(r)...)
	}
	for p := range cluster.RoutePolicies.All(c.View) {
		all = append(all, c.CheckRoutePolicy(p)...)
	}
	for n := range c.View.NetworkPolicies() {
		all = append(all, c.CheckNetworkPolicy(n)...)
	}
	for i := range x.all {
		all = append(all, c.CheckSubject(&x.all[i])...)
	}
	all = append(all, c.CheckDNSService()...)
	all = c.groupByPolicy(x.dropTemplateDuplicates(all))
	slices.SortFunc(all, func(a, b Finding) int { return a.compare(&b) })
	return all
}

// CheckDNSService checks that the Service of the cluster DNS exists.
func (c *Linter) CheckDNSService() []Finding {
	j := c.reporterFor(cluster.KindService, c.DNSService)
	j.dnsServiceMissing()
	return j.found()
}

// reporter collects the findings about one object.
type reporter struct {
	*Linter
	object   Object
	findings []Finding
}

func (c *Linter) reporterFor(k cluster.Kind, key cluster.Key) *reporter {
	return &reporter{Linter: c, object: Object{k, key}}
}

// add adds a finding with the severity of the rule.
func (j *reporter) add(rule, field, fix, format string, args ...any) {
	j.addAs(severities[rule], rule, field, fix, format, args...)
}

// addAs adds a finding with the given severity.
func (j *reporter) addAs(s Severity, rule, field, fix, format string, args ...any) {
	j.findings = append(j.findings,
		Finding{Rule: rule, Severity: s, Object: j.object, Field: field, Fix: fix, Message: fmt.Sprintf(format, args...)})
}

// found returns the findings in order.
func (j *reporter) found() []Finding {
	slices.SortFunc(j.findings, func(a, b Finding) int { return a.compare(&b) })
	return j.findings
}

// loaded reports whether all of the kinds are loaded.
func (j *reporter) loaded(ks ...cluster.Kind) bool { return j.View.Loaded(ks...) }

// unread reports whether an object of a kind, which is not in the model, may exist: its namespace was not read.
func (c *Linter) unread(k cluster.Kind, namespace string) bool {
	return c.Unread != nil && c.Unread(k, namespace)
}

// podsLoaded reports whether the Pods and all kinds of workloads are loaded.
func (c *Linter) podsLoaded() bool {
	return c.View.Loaded(cluster.KindPod) && c.View.Loaded(cluster.WorkloadKinds()...)
}
