package lint

import (
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/policy/semantics"
	"portolan.dev/portolan/internal/support/suggest"
)

// mostHints bounds how many objects are looked at, or listed, to find one that
// is like another.
const mostHints = 256

// index is what rules look objects up by, so that they cost what is there once.
type index struct {
	all []dnsconfig.Subject // by kind and key
	// byLabel has the Subjects of a namespace with a label of that value, all
	// of them; and with the namespace "", some of those of any.
	byLabel map[labelKey][]*dnsconfig.Subject
	// byValue has some of those of a namespace with any label of that value.
	byValue map[valueKey][]*dnsconfig.Subject
	// values are some of those that a label has in a namespace, sorted.
	values map[valueKey][]string
	// occupied are the namespaces with a Subject.
	occupied map[string]bool
	services map[string][]*cluster.Service // by namespace, sorted
	// clusterIPs are the Services that have an address, sorted.
	clusterIPs map[netip.Addr][]*cluster.Service
	// hosts are the Subjects with that hostname and subdomain.
	hosts     map[hostKey][]*dnsconfig.Subject
	workloads map[cluster.Key][]*dnsconfig.Subject
	policies  *semantics.Set
	// dns is by the addresses that Pods ask at.
	dns map[string]*semantics.DNS
}

type labelKey struct{ namespace, label, value string }

// valueKey has a label's value, or its name.
type valueKey struct{ namespace, text string }

type hostKey struct{ namespace, subdomain, hostname string }

func (c *Linter) indexed() *index {
	c.once.Do(func() { c.index = newIndex(c.View) })
	return c.index
}

func newIndex(v *cluster.View) *index {
	x := &index{
		all:        dnsconfig.Subjects(v),
		byLabel:    make(map[labelKey][]*dnsconfig.Subject),
		byValue:    make(map[valueKey][]*dnsconfig.Subject),
		values:     make(map[valueKey][]string),
		occupied:   make(map[string]bool),
		services:   make(map[string][]*cluster.Service),
		clusterIPs: make(map[netip.Addr][]*cluster.Service),
		hosts:      make(map[hostKey][]*dnsconfig.Subject),
		workloads:  make(map[cluster.Key][]*dnsconfig.Subject),
		policies:   semantics.NewSet(v),
		dns:        make(map[string]*semantics.DNS),
	}
	for i := range x.all {
		if s := &x.all[i]; !gone(s) {
			x.addSubject(s)
		}
	}
	for s := range v.Services() {
		x.services[s.Namespace] = append(x.services[s.Namespace], s)
		for _, addr := range s.ClusterIPs {
			x.clusterIPs[addr] = append(x.clusterIPs[addr], s)
		}
	}
	byKey := func(a, b *cluster.Service) int { return a.Key.Compare(b.Key) }
	for _, of := range x.services {
		slices.SortFunc(of, byKey)
	}
	for _, of := range x.clusterIPs {
		slices.SortFunc(of, byKey)
	}
	for _, of := range x.values {
		slices.Sort(of)
	}
	return x
}

// gone tells whether a Pod is one no more.
func gone(s *dnsconfig.Subject) bool { return s.Pod != nil && s.Pod.Finished }

func (x *index) addSubject(s *dnsconfig.Subject) {
	x.occupied[s.Namespace] = true
	if s.Workload != nil {
		x.workloads[s.Key] = append(x.workloads[s.Key], s)
	}
	if s.Spec.Hostname != "" && s.Spec.Subdomain != "" {
		k := hostKey{s.Namespace, s.Spec.Subdomain, s.Spec.Hostname}
		x.hosts[k] = append(x.hosts[k], s)
	}
	for label, value := range s.Labels {
		own, any := labelKey{s.Namespace, label, value}, labelKey{"", label, value}
		if len(x.byLabel[own]) == 0 {
			names := valueKey{s.Namespace, label}
			x.values[names] = appendSome(x.values[names], value)
		}
		x.byLabel[own] = append(x.byLabel[own], s)
		x.byLabel[any] = appendSome(x.byLabel[any], s)
		k := valueKey{s.Namespace, value}
		x.byValue[k] = appendSome(x.byValue[k], s)
	}
}

// appendSome appends while there is room.
func appendSome[T any](list []T, e T) []T {
	if len(list) >= mostHints {
		return list
	}
	return append(list, e)
}

// selected are the Pods and templates that a Service selects, by kind and key.
func (x *index) selected(s *cluster.Service) (all []*dnsconfig.Subject) {
	var fewest []*dnsconfig.Subject
	first := true
	for label, value := range s.Selector {
		if with := x.byLabel[labelKey{s.Namespace, label, value}]; first || len(with) < len(fewest) {
			fewest, first = with, false
		}
	}
	for _, p := range fewest {
		if s.SelectsLabels(p.Namespace, p.Labels) {
			all = append(all, p)
		}
	}
	if len(all) > 0 {
		return all
	}
	return x.willBeSelected(s)
}

// Labels that controllers give Pods beside those of the template (Kubernetes,
// "Well-Known Labels, Annotations and Taints").
var ofControllers = []string{"pod-template-hash", "controller-revision-hash", "pod-template-generation", "controller-uid", "job-name"}

func ofController(label string) bool {
	for _, prefix := range []string{"statefulset.kubernetes.io/", "apps.kubernetes.io/", "batch.kubernetes.io/"} {
		if strings.HasPrefix(label, prefix) {
			return true
		}
	}
	return slices.Contains(ofControllers, label)
}

// willBeSelected are the workloads whose Pods a Service will select by labels
// that controllers set: those that have all other labels, and the name that is
// in the value where the label holds one.
func (x *index) willBeSelected(s *cluster.Service) (all []*dnsconfig.Subject) {
	others := cluster.Selector{Labels: make(map[string]string)}
	var owner string
	for label, value := range s.Selector {
		switch {
		case label == "job-name", label == "batch.kubernetes.io/job-name":
			owner = value
		case label == "statefulset.kubernetes.io/pod-name":
			owner = cutLast(value)
		case !ofController(label):
			others.Labels[label] = value
		}
	}
	if len(others.Labels) == len(s.Selector) {
		return nil
	}
	for i := range x.all {
		p := &x.all[i]
		if p.Workload != nil && p.Namespace == s.Namespace && (owner == "" || owner == p.Name) && others.Selects(p.Labels) {
			all = append(all, p)
		}
	}
	return all
}

// maker is the workload whose template a Pod, or a Job of a CronJob, is made
// of; nil if none is known.
func (x *index) maker(s *dnsconfig.Subject) *dnsconfig.Subject {
	for name := cutLast(s.Name); name != ""; name = cutLast(name) {
		for _, w := range x.workloads[cluster.Key{Namespace: s.Namespace, Name: name}] {
			switch {
			case s.Kind == cluster.KindPod && w.Workload.Selector != nil && w.Workload.Selector.Selects(s.Labels),
				s.Kind == cluster.KindPod && w.Kind == cluster.KindJob && w.Workload.Selector == nil,
				s.Kind == cluster.KindJob && w.Kind == cluster.KindCronJob:
				return w
			}
		}
	}
	return nil
}

// cutLast is a name without its last part behind a dash.
func cutLast(name string) string { return name[:max(0, strings.LastIndexByte(name, '-'))] }

// ofStatefulSet are the rules that say of a StatefulSet what others say of its
// Pods, whose subdomain is its Service.
var ofStatefulSet = map[string]string{
	PodSubdomainNoService:   StatefulSetServiceMissing,
	PodSubdomainNotSelected: StatefulSetServiceNotSelecting,
	PodSubdomainNotHeadless: StatefulSetServiceNotHeadless,
}

// withoutEchoes leaves out what is found of a Pod and of the template that it
// is made of, too.
func (x *index) withoutEchoes(all []Finding) []Finding {
	type ruleAt struct {
		rule string
		at   Object
	}
	found := make(map[ruleAt]bool)
	for i := range all {
		found[ruleAt{all[i].Rule, all[i].Object}] = true
	}
	makers := make(map[Object]*dnsconfig.Subject)
	for i := range x.all {
		if s := &x.all[i]; s.Pod != nil || s.Kind == cluster.KindJob {
			if m := x.maker(s); m != nil {
				makers[Object{s.Kind, s.Key}] = m
			}
		}
	}
	return slices.DeleteFunc(all, func(f Finding) bool {
		for m := makers[f.Object]; m != nil; {
			at := Object{m.Kind, m.Key}
			if found[ruleAt{f.Rule, at}] || found[ruleAt{ofStatefulSet[f.Rule], at}] {
				return true
			}
			m = makers[at]
		}
		return false
	})
}

// nearestService is the Service of the namespace whose name is most like one;
// "" if there is none.
func (x *index) nearestService(namespace, name string) string {
	of := x.services[namespace]
	var names []string
	for _, s := range of[:min(len(of), mostHints)] {
		names = append(names, s.Name)
	}
	return suggest.Closest(name, names)
}
