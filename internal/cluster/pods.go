package cluster

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
)

// Pod is a Pod.
type Pod struct {
	Key
	IPs    []netip.Addr
	Labels map[string]string
	// Finished is set when its phase is Succeeded or Failed: its addresses are
	// given back.
	Finished bool
	// Pending is set when its phase says that it does not run yet.
	Pending bool
	// Deleting is set when it is told to end.
	Deleting bool
	Node     string
	// Ready tells whether its condition Ready is True; false where a source is
	// read for addresses only.
	Ready bool
	UID   string
	// Simulated is set when no such Pod runs, as far as is known: its addresses
	// were made up.
	Simulated bool
	// Owner is the workload of whose template it was made up; nil of others.
	Owner *Owner
	// Spec is nil where a source is read for addresses only.
	Spec *PodSpec
	// Unmet are the conditions of its status that are not True.
	Unmet []Condition
}

// Owner names a workload of a Pod's own namespace.
type Owner struct {
	Kind Kind
	Name string
}

// Condition is a condition of a Pod's status, such as Ready.
type Condition struct{ Type, Status, Reason, Message string }

// PodSpec is what matters for names in the spec of a Pod, or of a Pod's
// template. Fields that are not given are empty, as in the API.
type PodSpec struct {
	OS                string
	HostNetwork       bool
	DNSPolicy         string
	DNSConfig         *DNSConfig // nil when there is none
	Hostname          string
	HostnameOverride  *string
	Subdomain         string
	SetHostnameAsFQDN bool
	// NoServiceLinks is set when enableServiceLinks is false.
	NoServiceLinks bool
	// Ports are those of all its containers, and behind them those of init
	// containers that go on running.
	Ports []Port
}

// DNSConfig is a Pod's dnsConfig, as it is spelt there.
type DNSConfig struct {
	Nameservers []string
	Searches    []string
	Options     []DNSOption
}

// DNSOption is an option of a dnsConfig; Value is empty when it has none.
type DNSOption struct{ Name, Value string }

// Workload is an object that makes Pods from a template: one of
// WorkloadKinds.
type Workload struct {
	Kind Kind
	Key
	// Replicas is how many Pods it makes at a time, as far as it says; 1 when
	// it does not.
	Replicas int
	// Selector chooses its Pods, where it has one.
	Selector *Selector
	// Service is the name of the Service that a StatefulSet's Pods have names
	// under, and LastOrdinal that of the last of them.
	Service     string
	LastOrdinal int
	// Indexed is set when a Job's Pods have indexes, and hostnames by them.
	Indexed bool
	// Labels and Spec are those of the template.
	Labels map[string]string
	Spec   PodSpec
}

// Ref returns kind and key.
func (p *Pod) Ref() Ref { return Ref{KindPod, p.Key} }

// Ref returns kind and key.
func (w *Workload) Ref() Ref { return Ref{w.Kind, w.Key} }

// Scheduled tells whether nothing says that the Pod has no Node yet.
func (p *Pod) Scheduled() bool {
	return !p.Pending && !slices.ContainsFunc(p.Unmet, func(c Condition) bool { return c.Type == "PodScheduled" })
}

// CountPath is where the number of its Pods stands in the object; empty where none
// does.
func (w *Workload) CountPath() string {
	switch w.Kind {
	case KindDeployment, KindStatefulSet:
		return "spec.replicas"
	case KindJob:
		return "spec.parallelism"
	case KindCronJob:
		return "spec.jobTemplate.spec.parallelism"
	}
	return ""
}

// SpecPath is where the template's spec stands in the object.
func (w *Workload) SpecPath() string {
	if w.Kind == KindCronJob {
		return "spec.jobTemplate.spec.template.spec"
	}
	return "spec.template.spec"
}

func (p *Pod) equal(o *Pod) bool {
	return p.Key == o.Key && p.Finished == o.Finished && p.Pending == o.Pending && p.Deleting == o.Deleting && p.Node == o.Node &&
		p.Ready == o.Ready && p.UID == o.UID && p.Simulated == o.Simulated && reflect.DeepEqual(p.Owner, o.Owner) &&
		slices.Equal(p.IPs, o.IPs) && maps.Equal(p.Labels, o.Labels) && slices.Equal(p.Unmet, o.Unmet) &&
		(p.Spec == o.Spec || reflect.DeepEqual(p.Spec, o.Spec))
}
