package admission

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
)

// Rules lists the rules that objects are held to: those that need no more than
// the object, and the limits of a Pod's lists, to which the webhook's settings
// say enough. What nobody is asked about, EndpointSlices, has none here.
func Rules() (all []lint.Rule) {
	for _, r := range lint.Rules() {
		switch r.ID {
		case lint.EndpointSliceNoService, lint.EndpointSliceFQDN, lint.EndpointAddressForbidden:
			continue
		}
		if r.Admission || r.ID == lint.PodDNSLimit {
			all = append(all, r)
		}
	}
	return all
}

// kinds are what reviews are of, by resource.
var kinds = map[metav1.GroupVersionResource]func() runtime.Object{
	pods:                 func() runtime.Object { return new(corev1.Pod) },
	services:             func() runtime.Object { return new(corev1.Service) },
	core("namespaces"):   func() runtime.Object { return new(corev1.Namespace) },
	apps("deployments"):  func() runtime.Object { return new(appsv1.Deployment) },
	apps("replicasets"):  func() runtime.Object { return new(appsv1.ReplicaSet) },
	apps("statefulsets"): func() runtime.Object { return new(appsv1.StatefulSet) },
	apps("daemonsets"):   func() runtime.Object { return new(appsv1.DaemonSet) },
	batch("jobs"):        func() runtime.Object { return new(batchv1.Job) },
	batch("cronjobs"):    func() runtime.Object { return new(batchv1.CronJob) },
}

var pods, services = core("pods"), core("services")

func core(resource string) metav1.GroupVersionResource {
	return metav1.GroupVersionResource{Version: "v1", Resource: resource}
}

func apps(resource string) metav1.GroupVersionResource {
	return metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}
}

func batch(resource string) metav1.GroupVersionResource {
	return metav1.GroupVersionResource{Group: "batch", Version: "v1", Resource: resource}
}

// judge finds what is wrong with an object of the API in a namespace, which the
// object itself may not say.
type judge func(namespace string, o runtime.Object) []lint.Finding

// validator holds objects to the rules.
type validator struct {
	judge        judge
	deny, ignore []string // rules
}

// review warns of what it finds, and denies what is configured so: never what
// goes already, nor what a controller made, which would make it again and again.
// Of a change it denies what is worse than before.
func (v *validator) review(_ context.Context, r *admissionv1.AdmissionRequest) (verdict, error) {
	newObject, known := kinds[r.Resource]
	if !known || r.SubResource != "" || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return verdict{}, nil
	}
	o := newObject()
	if err := decode(r.Object.Raw, o); err != nil {
		return verdict{}, fmt.Errorf("the object can't be read: %w", err)
	}
	meta := o.(metav1.Object) // all kinds are
	if meta.GetDeletionTimestamp() != nil {
		return verdict{}, nil
	}
	findings := v.judge(r.Namespace, o)
	deny := func(lint.Finding) bool { return false }
	if !made(meta) && slices.ContainsFunc(findings, v.denies) {
		before, err := v.before(r, newObject())
		if err != nil {
			return verdict{}, err
		}
		now := countRules(findings)
		deny = func(f lint.Finding) bool { return v.denies(f) && now[f.Rule] > before[f.Rule] }
	}
	var warnings, denials []string
	for _, f := range findings {
		switch {
		case slices.Contains(v.ignore, f.Rule):
		case deny(f):
			denials = append(denials, textOf(&f))
		case v.denies(f) || f.Severity > lint.Note:
			warnings = append(warnings, textOf(&f))
		}
	}
	return verdict{warnings: warnings, denied: denials}, nil
}

// denies tells whether what a finding's rule finds is to be denied.
func (v *validator) denies(f lint.Finding) bool { return slices.Contains(v.deny, f.Rule) }

// before says how much each rule finds in what an update changes; none where
// the object is new.
func (v *validator) before(r *admissionv1.AdmissionRequest, old runtime.Object) (map[string]int, error) {
	if r.Operation != admissionv1.Update {
		return nil, nil
	}
	if err := decode(r.OldObject.Raw, old); err != nil {
		return nil, fmt.Errorf("the object before can't be read: %w", err)
	}
	return countRules(v.judge(r.Namespace, old)), nil
}

// countRules says how often each rule has found something.
func countRules(findings []lint.Finding) map[string]int {
	counts := make(map[string]int)
	for i := range findings {
		counts[findings[i].Rule]++
	}
	return counts
}

// made tells whether a controller made an object, or a kubelet.
func made(o metav1.Object) bool {
	_, mirror := o.GetAnnotations()[corev1.MirrorPodAnnotationKey]
	return mirror || metav1.GetControllerOfNoCopy(o) != nil
}

// textOf is a finding in one line.
func textOf(f *lint.Finding) string {
	text := f.Rule + ": "
	if f.Field != "" {
		text += f.Field + ": "
	}
	return text + f.Message
}

// maxJudged is how many entries of a list are looked at. What is longer is made
// up, and each entry may be a finding.
const maxJudged = 1000

// alone judges objects with nothing around them.
type alone struct {
	store *cluster.Store // empty
	node  dnsconfig.NodeSettings
	rules map[string]bool
}

func newAlone(cfg *Config) *alone {
	a := &alone{
		store: cluster.NewStore(),
		node:  dnsconfig.NodeSettings{ClusterDomain: cfg.ClusterDomain, ClusterDNS: cfg.ClusterDNS},
		rules: make(map[string]bool),
	}
	for _, r := range Rules() {
		a.rules[r.ID] = true
	}
	return a
}

func (a *alone) judge(namespace string, o runtime.Object) (found []lint.Finding) {
	a.store.View(func(v *cluster.View) {
		c := &lint.Linter{View: v, Domains: []string{a.node.ClusterDomain}, Node: func(*dnsconfig.Subject) dnsconfig.NodeSettings { return a.node }}
		switch o := o.(type) {
		case *corev1.Namespace:
			n, _ := object.Namespace(o) // what is refused is refused by the API server
			found = c.CheckNamespace(n)
		case *corev1.Service:
			o.Namespace = namespace
			o.Spec.Ports = o.Spec.Ports[:min(len(o.Spec.Ports), maxJudged)]
			s, _ := object.Service(o)
			found = c.CheckService(s)
		default:
			if s, ok := subjectOf(namespace, o); ok {
				shorten(s.Spec.DNSConfig)
				found = c.CheckSubject(&s)
			}
		}
	})
	return slices.DeleteFunc(found, func(f lint.Finding) bool { return !a.rules[f.Rule] })
}

// shorten leaves of a dnsConfig what is looked at; it may be nil.
func shorten(c *cluster.DNSConfig) {
	if c == nil {
		return
	}
	c.Nameservers = c.Nameservers[:min(len(c.Nameservers), maxJudged)]
	c.Searches = c.Searches[:min(len(c.Searches), maxJudged)]
	c.Options = c.Options[:min(len(c.Options), maxJudged)]
}

// subjectOf is a Pod, or what makes Pods. What the API server refuses of it, the
// API server says.
func subjectOf(namespace string, o runtime.Object) (s dnsconfig.Subject, ok bool) {
	var w *cluster.Workload
	switch o := o.(type) {
	case *corev1.Pod:
		s = podSubject(namespace, o)
		return s, true
	case *appsv1.Deployment:
		w, _ = object.Deployment(o)
	case *appsv1.StatefulSet:
		w, _ = object.StatefulSet(o)
	case *appsv1.DaemonSet:
		w, _ = object.DaemonSet(o)
	case *appsv1.ReplicaSet:
		if metav1.GetControllerOf(o) != nil {
			return s, false // its Deployment was looked at
		}
		// It names its Pods as a DaemonSet does.
		w, _ = object.DaemonSet(&appsv1.DaemonSet{ObjectMeta: o.ObjectMeta, Spec: appsv1.DaemonSetSpec{Template: o.Spec.Template}})
	case *batchv1.Job:
		w, _ = object.Job(o)
		indexed(w, o.Name, &o.Spec)
	case *batchv1.CronJob:
		const minutes = "-00000000" // since 1970, behind the names of its Jobs
		w, _ = object.CronJob(o)
		indexed(w, o.Name+minutes, &o.Spec.JobTemplate.Spec)
	default:
		return s, false
	}
	w.Key.Namespace = namespace
	return dnsconfig.SubjectOfWorkload(w), true
}

// indexed gives the Pods of an indexed Job of a name the hostname that the
// controller gives the last of them, unless the template has one.
func indexed(w *cluster.Workload, job string, s *batchv1.JobSpec) {
	if w.Spec.Hostname != "" || s.CompletionMode == nil || *s.CompletionMode != batchv1.IndexedCompletion {
		return
	}
	last := int32(0)
	if s.Completions != nil {
		last = max(0, *s.Completions-1)
	}
	w.Spec.Hostname = fmt.Sprintf("%s-%d", job, last)
}

// podSubject is a Pod, of which the settings matter alone: it may have no name
// yet, where the API server is to make one.
func podSubject(namespace string, p *corev1.Pod) dnsconfig.Subject {
	name := p.Name
	if name == "" {
		name = generated(p.GenerateName)
	}
	return dnsconfig.SubjectOfPod(&cluster.Pod{Key: cluster.Key{Namespace: namespace, Name: name}, Labels: p.Labels, Spec: object.PodSpec(&p.Spec)})
}

// generated is a name that the API server makes of generateName (apiserver,
// pkg/storage/names), with x for what is made by chance.
func generated(base string) string {
	const random, most = "xxxxx", 63
	return base[:min(len(base), most-len(random))] + random
}
