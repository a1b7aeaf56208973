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

// mostHints is the maximum number of objects that a search for a similar name or
// label considers.
const mostHints = 256

// index has the lookups that the rules share, so that each costs one pass over the
// objects.
type index struct {
	all []dnsconfig.Subject // by kind and key
	// finished has the Pods that have terminated, which are in no other map.
	finished []*dnsconfig.Subject
	// byLabel has all Subjects of a namespace by label and value, and for the
	// namespace "" up to mostHints Subjects of any namespace.
	byLabel map[labelKey][]*dnsconfig.Subject
	// byValue has up to mostHints Subjects of a namespace by the value of any label.
	byValue map[valueKey][]*dnsconfig.Subject
	// values has up to mostHints values of a label in a namespace, sorted.
	values map[valueKey][]string
	// occupied has the namespaces that have a Subject.
	occupied map[string]bool
	services map[string][]*cluster.Service // by namespace, sorted
	// clusterIPs has the Services by cluster IP, sorted.
	clusterIPs map[netip.Addr][]*cluster.Service
	// externalIPs has the Services by external IP and load balancer's address, sorted.
	externalIPs map[netip.Addr][]*cluster.Service
	// nodeAddresses has the nodes by address.
	nodeAddresses map[netip.Addr]string
	// workers has the nodes on which Pods of Services are expected, sorted.
	workers []string
	// hosts has the Subjects by hostname and subdomain.
	hosts     map[hostKey][]*dnsconfig.Subject
	workloads map[cluster.Key][]*dnsconfig.Subject
	policies  *semantics.Set
	// dns has the cluster DNS by the nameserver addresses of Pods.
	dns map[string]*semantics.DNS
}

type labelKey struct{ namespace, label, value string }

// valueKey is a namespace with the value or the name of a label.
type valueKey struct{ namespace, text string }

type hostKey struct{ namespace, subdomain, hostname string }

func (c *Linter) indexed() *index {
	c.once.Do(func() { c.index = newIndex(c.View) })
	return c.index
}

func newIndex(v *cluster.View) *index {
	x := &index{
		all:         dnsconfig.Subjects(v),
		byLabel:     make(map[labelKey][]*dnsconfig.Subject),
		byValue:     make(map[valueKey][]*dnsconfig.Subject),
		values:      make(map[valueKey][]string),
		occupied:    make(map[string]bool),
		services:    make(map[string][]*cluster.Service),
		clusterIPs:  make(map[netip.Addr][]*cluster.Service),
		externalIPs: make(map[netip.Addr][]*cluster.Service), nodeAddresses: make(map[netip.Addr]string),
		hosts:     make(map[hostKey][]*dnsconfig.Subject),
		workloads: make(map[cluster.Key][]*dnsconfig.Subject),
		policies:  semantics.NewSet(v),
		dns:       make(map[string]*semantics.DNS),
	}
	for i := range x.all {
		if s := &x.all[i]; s.Finished() {
			x.finished = append(x.finished, s)
		} else {
			x.addSubject(s)
		}
	}
	for s := range v.Services() {
		x.services[s.Namespace] = append(x.services[s.Namespace], s)
		for _, addr := range s.ClusterIPs {
			x.clusterIPs[addr] = append(x.clusterIPs[addr], s)
		}
		for _, a := range externalAddresses(s) {
			x.externalIPs[a.Addr] = append(x.externalIPs[a.Addr], s)
		}
	}
	byKey := func(a, b *cluster.Service) int { return a.Compare(b.Key) }
	for _, of := range x.services {
		slices.SortFunc(of, byKey)
	}
	for _, of := range x.clusterIPs {
		slices.SortFunc(of, byKey)
	}
	for _, of := range x.externalIPs {
		slices.SortFunc(of, byKey)
	}
	for _, of := range x.values {
		slices.Sort(of)
	}
	x.addNodes(v)
	return x
}

// addNodes adds the nodes. Where none is ready, as in manifests without their status, all count.
func (x *index) addNodes(v *cluster.View) {
	var ready, workers []string
	for n := range v.Nodes() {
		for _, addr := range n.Addresses {
			x.nodeAddresses[addr] = n.Name
		}
		if n.ControlPlane || n.Leaving {
			continue
		}
		workers = append(workers, n.Name)
		if n.Ready {
			ready = append(ready, n.Name)
		}
	}
	if x.workers = ready; len(ready) == 0 {
		x.workers = workers
	}
	slices.Sort(x.workers)
}

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
		own, all := labelKey{s.Namespace, label, value}, labelKey{"", label, value}
		if len(x.byLabel[own]) == 0 {
			names := valueKey{s.Namespace, label}
			x.values[names] = appendSome(x.values[names], value)
		}
		x.byLabel[own] = append(x.byLabel[own], s)
		x.byLabel[all] = appendSome(x.byLabel[all], s)
		k := valueKey{s.Namespace, value}
		x.byValue[k] = appendSome(x.byValue[k], s)
	}
}

// appendSome appends e unless the list already has mostHints elements.
func appendSome[T any](list []T, e T) []T {
	if len(list) >= mostHints {
		return list
	}
	return append(list, e)
}

// selected returns the Pods and templates that a Service selects, by kind and key.
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

// selectedFinished returns a Pod that a Service selects and that has finished, or nil.
func (x *index) selectedFinished(s *cluster.Service) *dnsconfig.Subject {
	i := slices.IndexFunc(x.finished, func(p *dnsconfig.Subject) bool { return s.SelectsLabels(p.Namespace, p.Labels) })
	if i < 0 {
		return nil
	}
	return x.finished[i]
}

// controllerLabels are labels that controllers add to the Pods of a template
// (Kubernetes, "Well-Known Labels, Annotations and Taints").
var controllerLabels = []string{"pod-template-hash", "controller-revision-hash", "pod-template-generation",
	"controller-uid", "job-name"}

func isControllerLabel(label string) bool {
	for _, prefix := range []string{"statefulset.kubernetes.io/", "apps.kubernetes.io/", "batch.kubernetes.io/"} {
		if strings.HasPrefix(label, prefix) {
			return true
		}
	}
	return slices.Contains(controllerLabels, label)
}

// willBeSelected returns the workloads whose Pods a Service will select by labels
// that controllers add: those whose template has all other labels of the selector,
// and whose name is the one in a label such as job-name.
func (x *index) willBeSelected(s *cluster.Service) (all []*dnsconfig.Subject) {
	own := cluster.Selector{Labels: make(map[string]string)}
	var owner string
	for label, value := range s.Selector {
		switch {
		case label == "job-name", label == "batch.kubernetes.io/job-name":
			owner = value
		case label == "statefulset.kubernetes.io/pod-name":
			owner = cutLast(value)
		case !isControllerLabel(label):
			own.Labels[label] = value
		}
	}
	if len(own.Labels) == len(s.Selector) {
		return nil
	}
	for i := range x.all {
		p := &x.all[i]
		if p.Workload != nil && p.Namespace == s.Namespace && (owner == "" || owner == p.Name) && own.Selects(p.Labels) {
			all = append(all, p)
		}
	}
	return all
}

// creator returns the workload whose template a Pod, or a Job of a CronJob, was
// created from, or nil if it is not known.
func (x *index) creator(s *dnsconfig.Subject) *dnsconfig.Subject {
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

// cutLast returns a name without its last dash and what follows it.
func cutLast(name string) string { return name[:max(0, strings.LastIndexByte(name, '-'))] }

// statefulSetRules has the rules for StatefulSets that correspond to a rule for
// Pods: the subdomain of a StatefulSet's Pods is its Service.
var statefulSetRules = map[string]string{
	PodSubdomainNoService:   StatefulSetServiceMissing,
	PodSubdomainNotSelected: StatefulSetServiceNotSelecting,
	PodSubdomainNotHeadless: StatefulSetServiceNotHeadless,
}

// dropTemplateDuplicates removes the findings about a Pod that are also found for
// the template from which it was created.
func (x *index) dropTemplateDuplicates(all []Finding) []Finding {
	type ruleAt struct {
		rule string
		at   Object
	}
	found := make(map[ruleAt]bool)
	for i := range all {
		found[ruleAt{all[i].Rule, all[i].Object}] = true
	}
	creators := make(map[Object]*dnsconfig.Subject)
	for i := range x.all {
		if s := &x.all[i]; s.Pod != nil || s.Kind == cluster.KindJob {
			if w := x.creator(s); w != nil {
				creators[Object{s.Kind, s.Key}] = w
			}
		}
	}
	return slices.DeleteFunc(all, func(f Finding) bool {
		for w := creators[f.Object]; w != nil; {
			at := Object{w.Kind, w.Key}
			if found[ruleAt{f.Rule, at}] || found[ruleAt{statefulSetRules[f.Rule], at}] {
				return true
			}
			w = creators[at]
		}
		return false
	})
}

// similarService returns the Service of the namespace with the name most similar to
// the given one, or "" if none is similar.
func (x *index) similarService(namespace, name string) string {
	of := x.services[namespace]
	var names []string
	for _, s := range of[:min(len(of), mostHints)] {
		names = append(names, s.Name)
	}
	return suggest.Closest(name, names)
}

// SimilarService returns the name most similar to that of a Service that does not exist, of the Services of
// its namespace; empty if none is similar.
func (c *Linter) SimilarService(key cluster.Key) string {
	return c.indexed().similarService(key.Namespace, key.Name)
}
