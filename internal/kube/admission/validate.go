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

// Rules returns the rules that objects are checked against: those that need only the
// object, and the limits of a Pod's lists, for which the webhook's configuration is
// sufficient. It excludes rules about EndpointSlices, which are not reviewed.
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

// kinds are the kinds that are reviewed, by resource.
var kinds = map[metav1.GroupVersionResource]func() object.API{
	pods:                 func() object.API { return new(corev1.Pod) },
	services:             func() object.API { return new(corev1.Service) },
	core("namespaces"):   func() object.API { return new(corev1.Namespace) },
	apps("deployments"):  func() object.API { return new(appsv1.Deployment) },
	apps("replicasets"):  func() object.API { return new(appsv1.ReplicaSet) },
	apps("statefulsets"): func() object.API { return new(appsv1.StatefulSet) },
	apps("daemonsets"):   func() object.API { return new(appsv1.DaemonSet) },
	batch("jobs"):        func() object.API { return new(batchv1.Job) },
	batch("cronjobs"):    func() object.API { return new(batchv1.CronJob) },
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

// judge returns the findings about an object in a namespace. The object itself may lack
// the namespace.
type judge func(namespace string, o runtime.Object) []lint.Finding

// validator checks objects against the rules.
type validator struct {
	judge        judge
	deny, ignore []string // rules
}

// review turns findings into warnings, and those of configured rules into denials. It
// does not deny objects that are being deleted, or objects of a controller, which would
// create them again and again. It denies an update only if a rule has more findings than
// before.
func (v *validator) review(_ context.Context, r *admissionv1.AdmissionRequest) (verdict, error) {
	newObject, known := kinds[r.Resource]
	if !known || r.SubResource != "" || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return verdict{}, nil
	}
	o := newObject()
	if err := decode(r.Object.Raw, o); err != nil {
		return verdict{}, fmt.Errorf("cannot decode the object: %w", err)
	}
	if o.GetDeletionTimestamp() != nil {
		return verdict{}, nil
	}
	findings := v.judge(r.Namespace, o)
	deny := func(lint.Finding) bool { return false }
	if !made(o) && slices.ContainsFunc(findings, v.denies) {
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

// denies reports whether findings of the rule are denials.
func (v *validator) denies(f lint.Finding) bool { return slices.Contains(v.deny, f.Rule) }

// before returns the number of findings of each rule in the object before an update;
// none if the object is new.
func (v *validator) before(r *admissionv1.AdmissionRequest, old runtime.Object) (map[string]int, error) {
	if r.Operation != admissionv1.Update {
		return nil, nil
	}
	if err := decode(r.OldObject.Raw, old); err != nil {
		return nil, fmt.Errorf("cannot decode the old object: %w", err)
	}
	return countRules(v.judge(r.Namespace, old)), nil
}

// countRules returns the number of findings of each rule.
func countRules(findings []lint.Finding) map[string]int {
	counts := make(map[string]int)
	for i := range findings {
		counts[findings[i].Rule]++
	}
	return counts
}

// made reports whether a controller or a kubelet created an object.
func made(o metav1.Object) bool {
	_, mirror := o.GetAnnotations()[corev1.MirrorPodAnnotationKey]
	return mirror || metav1.GetControllerOfNoCopy(o) != nil
}

// textOf returns a finding as one line.
func textOf(f *lint.Finding) string {
	text := f.Rule + ": "
	if f.Field != "" {
		text += f.Field + ": "
	}
	return text + f.Message
}

// maxJudged is the number of entries of a list that are checked. Longer lists are not
// genuine, and each entry may yield a finding.
const maxJudged = 1000

// alone judges an object without the rest of the cluster.
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
		c := &lint.Linter{
			View:    v,
			Domains: []string{a.node.ClusterDomain},
			Node:    func(*dnsconfig.Subject) dnsconfig.NodeSettings { return a.node },
		}
		switch o := o.(type) {
		case *corev1.Namespace:
			n, _ := object.Namespace(o) // the API server reports what the decoder refuses
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

// shorten truncates the lists of a dnsConfig, which may be nil, to what is checked.
func shorten(c *cluster.DNSConfig) {
	if c == nil {
		return
	}
	c.Nameservers = c.Nameservers[:min(len(c.Nameservers), maxJudged)]
	c.Searches = c.Searches[:min(len(c.Searches), maxJudged)]
	c.Options = c.Options[:min(len(c.Options), maxJudged)]
}

// subjectOf returns the subject of a Pod or of a workload. The API server reports what
// the decoder refuses.
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
			return s, false // its Deployment was checked
		}
		// It names its Pods as a DaemonSet does.
		w, _ = object.DaemonSet(
			&appsv1.DaemonSet{ObjectMeta: o.ObjectMeta, Spec: appsv1.DaemonSetSpec{Template: o.Spec.Template}})
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
	w.Namespace = namespace
	return dnsconfig.SubjectOfWorkload(w), true
}

// indexed sets the hostname of the Pods of an indexed Job to the one that the controller
// sets on the last of them, unless the template has one.
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

// podSubject returns the subject of a Pod, which may have no name yet, only
// generateName.
func podSubject(namespace string, p *corev1.Pod) dnsconfig.Subject {
	name := p.Name
	if name == "" {
		name = generated(p.GenerateName)
	}
	return dnsconfig.SubjectOfPod(
		&cluster.Pod{
			Key:    cluster.Key{Namespace: namespace, Name: name},
			Labels: p.Labels,
			Spec:   object.PodSpec(&p.ObjectMeta, &p.Spec),
		},
	)
}

// generated returns a name of the form that the API server generates from generateName
// (apiserver, pkg/storage/names), with x for the random letters.
func generated(base string) string {
	const random, most = "xxxxx", 63
	return base[:min(len(base), most-len(random))] + random
}
