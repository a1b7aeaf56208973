package view

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/policy/semantics"
)

// Pod is the view of a Pod.
type Pod struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Addresses []netip.Addr `json:"addresses"`
	Node      string       `json:"node,omitempty"`
	Ready     bool         `json:"ready"`
	// Unknown: whether it is ready is not read.
	Unknown bool `json:"unknown,omitempty"`
	// Finished: it has run to its end; readiness does not apply to it.
	Finished bool `json:"finished,omitempty"`
	// Why is why it is not ready; empty if it is, or if that is not known.
	Why        string      `json:"why,omitempty"`
	ResolvConf *ResolvConf `json:"resolvConf,omitempty"`
	PolicyIn   []Policy    `json:"policiesIn"`
	PolicyOut  []Policy    `json:"policiesOut"`
	// Services are those that select it.
	Services []ServiceRef `json:"services"`
	Failures []any        `json:"failures"`
	Findings []Finding    `json:"findings"`
	NotRead  []NotRead    `json:"notRead,omitempty"`
	More     More         `json:"more,omitempty"`
	// Involved are those of whose failures the view has the last ones, which the model does not know.
	Involved Involved `json:"-"`
}

// ResolvConf is a Pod's resolv.conf.
type ResolvConf struct {
	Policy string `json:"policy"`
	Text   string `json:"text"`
	// Warnings are what is wrong with it, in a sentence each.
	Warnings []string `json:"warnings"`
}

// ServiceRef names a Service.
type ServiceRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Href      string `json:"href"`
}

// Pod returns the view of a Pod; nil if it does not exist.
func (m *Model) Pod(key cluster.Key) *Pod {
	p := m.View.Pod(key)
	if p == nil {
		return nil
	}
	made := &Pod{
		Namespace: p.Namespace,
		Name:      p.Name,
		Node:      p.Node,
		Ready:     p.Ready && !p.Finished,
		Unknown:   m.unknown(p.Ready) && !p.Finished,
		Finished:  p.Finished,
		Addresses: append([]netip.Addr{}, p.IPs...),
		PolicyIn:  []Policy{},
		PolicyOut: []Policy{},
	}
	made.NotRead = append(m.lacks(
		cluster.KindService, cluster.KindNetworkPolicy, cluster.KindClusterNetworkPolicy, cluster.KindNamespace,
	), m.partly("labels, the DNS settings and the state", cluster.KindPod)...)
	var found []Finding
	if m.reads(cluster.KindPod) {
		made.Why = clauseOfIt(m.Linter.Unready(p))
		s := dnsconfig.SubjectOfPod(p)
		made.ResolvConf = m.resolvConf(&s)
		made.PolicyIn, made.PolicyOut = m.bothWays([]*semantics.End{semantics.EndOf(p)}, &made.More)
		found = findings(m.Linter.CheckSubject(&s))
	}
	if p.Finished {
		made.Why = "it has finished"
	}
	made.Findings = cut(&made.More, "findings", found, mostFindings)
	made.Services = cut(&made.More, "services", m.selecting(p), mostServices)
	made.Involved.Pods = []string{p.String()}
	for _, a := range p.IPs {
		made.Involved.Addresses = append(made.Involved.Addresses, a.String())
	}
	return made
}

// clauseOfIt turns a clause that follows the name of a Pod, such as ", which is terminating", into one about "it".
func clauseOfIt(after string) string {
	if rest, ok := strings.CutPrefix(after, ", whose "); ok {
		return "its " + rest
	}
	if rest, ok := strings.CutPrefix(after, ", which "); ok {
		return "it " + rest
	}
	return after
}

func (m *Model) resolvConf(s *dnsconfig.Subject) *ResolvConf {
	r := m.ResolvConf(s)
	made := &ResolvConf{Policy: string(r.Policy), Text: r.Config.String(), Warnings: []string{}}
	for _, w := range r.Warnings {
		made.Warnings = append(made.Warnings, w.Message)
	}
	return made
}

// selecting returns the Services that select a Pod, by name.
func (m *Model) selecting(p *cluster.Pod) (all []ServiceRef) {
	for s := range m.View.Services() {
		if s.Selects(p) {
			i := Item{Kind: cluster.KindService.String(), Namespace: s.Namespace, Name: s.Name}
			all = append(all, ServiceRef{Namespace: s.Namespace, Name: s.Name, Href: href(&i)})
		}
	}
	slices.SortFunc(all, func(a, b ServiceRef) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
