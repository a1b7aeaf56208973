package dnsconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/resolvconf"
)

// Subject is a Pod of the model, or the Pods that a workload makes.
type Subject struct {
	cluster.Key
	Kind   cluster.Kind
	Labels map[string]string
	Spec   *cluster.PodSpec
	// Pod is nil for a workload, and Workload for a Pod.
	Pod      *cluster.Pod
	Workload *cluster.Workload
}

// String is kind and key, such as "pod shop/web-0".
func (s *Subject) String() string { return strings.ToLower(s.Kind.String()) + " " + s.Key.String() }

// SubjectOfPod is a Pod as a Subject.
func SubjectOfPod(p *cluster.Pod) Subject {
	s := Subject{Key: p.Key, Kind: cluster.KindPod, Labels: p.Labels, Spec: p.Spec, Pod: p}
	if s.Spec == nil {
		s.Spec = new(cluster.PodSpec)
	}
	return s
}

// SubjectOfWorkload is the Pods that a workload makes.
func SubjectOfWorkload(w *cluster.Workload) Subject {
	return Subject{Key: w.Key, Kind: w.Kind, Labels: w.Labels, Spec: &w.Spec, Workload: w}
}

// Settings are what Resolve and its kin go by. Pods of a workload have a name as
// they will have it, with letters x for what is made by chance; of a StatefulSet
// it is the last one's, which is no shorter than others.
func (s *Subject) Settings() PodSettings {
	p := PodSettings{
		Namespace:         s.Namespace,
		Name:              s.Name,
		OS:                OS(s.Spec.OS),
		HostNetwork:       s.Spec.HostNetwork,
		Policy:            DNSPolicy(s.Spec.DNSPolicy),
		Hostname:          s.Spec.Hostname,
		HostnameOverride:  s.Spec.HostnameOverride,
		Subdomain:         s.Spec.Subdomain,
		SetHostnameAsFQDN: s.Spec.SetHostnameAsFQDN,
	}
	if s.Workload != nil {
		p.Path, p.Name = s.Workload.SpecPath(), s.Name+chance[s.Kind]
	}
	if s.Kind == cluster.KindStatefulSet { // whose controller sets these
		p.Name = fmt.Sprintf("%s-%d", s.Name, s.Workload.LastOrdinal)
		p.Hostname, p.Subdomain = p.Name, s.Workload.Service
	}
	if c := s.Spec.DNSConfig; c != nil {
		p.DNSConfig = &DNSConfig{Nameservers: c.Nameservers, Searches: c.Searches}
		for _, o := range c.Options {
			p.DNSConfig.Options = append(p.DNSConfig.Options, resolvconf.Option(o))
		}
	}
	return p
}

// chance is how the names of a workload's Pods go on behind its own: a
// Deployment's with the hash of its template, of up to ten characters, and five
// by chance; a CronJob's with the minutes since 1970.
var chance = map[cluster.Kind]string{
	cluster.KindDeployment: "-xxxxxxxxxx-xxxxx",
	cluster.KindDaemonSet:  "-xxxxx",
	cluster.KindJob:        "-xxxxx",
	cluster.KindCronJob:    "-00000000-xxxxx",
}

// Subjects are the Pods and workloads of the model, by kind and key; Pods that
// were made up of a workload stand for nothing more.
func Subjects(v *cluster.View) (all []Subject) {
	for p := range v.Pods() {
		if p.Owner == nil {
			all = append(all, SubjectOfPod(p))
		}
	}
	for _, k := range cluster.WorkloadKinds() {
		for w := range v.Workloads(k) {
			all = append(all, SubjectOfWorkload(w))
		}
	}
	slices.SortFunc(all, func(a, b Subject) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Key.Compare(b.Key)) })
	return all
}

// Reference names a Subject: NAMESPACE/POD, or NAMESPACE/KIND/NAME. A name that
// no Pod has may be a workload's, or how the names of its Pods begin. Without
// NAMESPACE it is default.
type Reference struct {
	Namespace string
	Kind      cluster.Kind // KindPod also where none is given
	named     bool         // the kind is given
	Name      string
}

// kindNames are those that a reference may have, as kubectl has them.
var kindNames = map[string]cluster.Kind{
	"pod": cluster.KindPod, "pods": cluster.KindPod, "po": cluster.KindPod,
	"deployment": cluster.KindDeployment, "deployments": cluster.KindDeployment, "deploy": cluster.KindDeployment,
	"statefulset": cluster.KindStatefulSet, "statefulsets": cluster.KindStatefulSet, "sts": cluster.KindStatefulSet,
	"daemonset": cluster.KindDaemonSet, "daemonsets": cluster.KindDaemonSet, "ds": cluster.KindDaemonSet,
	"job": cluster.KindJob, "jobs": cluster.KindJob,
	"cronjob": cluster.KindCronJob, "cronjobs": cluster.KindCronJob, "cj": cluster.KindCronJob,
}

// ParseReference reads NAMESPACE/NAME, NAME, NAMESPACE/KIND/NAME or KIND/NAME;
// a first word that is a kind's name is one.
func ParseReference(text string) (Reference, error) {
	r := Reference{Namespace: "default", Kind: cluster.KindPod}
	parts := strings.Split(text, "/")
	if len(parts) == 3 {
		r.Namespace, parts = parts[0], parts[1:]
		if _, ok := kindNames[strings.ToLower(parts[0])]; !ok {
			return r, fmt.Errorf("%q: kind %q has no Pods; use pod, deployment, statefulset, daemonset, job, cronjob", text, parts[0])
		}
	}
	if len(parts) == 2 {
		if k, ok := kindNames[strings.ToLower(parts[0])]; ok {
			r.Kind, r.named = k, true
		} else {
			r.Namespace = parts[0]
		}
		parts = parts[1:]
	}
	r.Name = parts[0]
	if len(parts) > 1 || r.Namespace == "" || r.Name == "" {
		return r, fmt.Errorf("%q is not NAMESPACE/POD, such as shop/web-0, or NAMESPACE/KIND/NAME, such as shop/deployment/web", text)
	}
	return r, nil
}

// String is the reference as it is written.
func (r Reference) String() string {
	if r.named {
		return r.Namespace + "/" + strings.ToLower(r.Kind.String()) + "/" + r.Name
	}
	return r.Namespace + "/" + r.Name
}

// Find looks a Subject up. The error of one that is not there says which there
// are.
func (r Reference) Find(v *cluster.View) (Subject, error) {
	key := cluster.Key{Namespace: r.Namespace, Name: r.Name}
	if p := v.Pod(key); p != nil && r.Kind == cluster.KindPod {
		return SubjectOfPod(p), nil
	}
	if r.named && r.Kind != cluster.KindPod {
		if w := v.Workload(r.Kind, key); w != nil {
			return SubjectOfWorkload(w), nil
		}
	}
	var same, near, others []Subject // others are of another kind
	for _, s := range Subjects(v) {
		switch {
		case s.Namespace != r.Namespace:
		case r.named && s.Kind != r.Kind:
			others = append(others, s)
		case s.Name == r.Name:
			same = append(same, s)
		default:
			near = append(near, s)
		}
	}
	if len(near) == 0 {
		near = others
	}
	switch {
	case len(same) == 1:
		return same[0], nil
	case len(same) > 1:
		return Subject{}, fmt.Errorf("%s: there are %s; name the kind, as in %s/%s/%s", r, JoinSubjects(same), r.Namespace, strings.ToLower(same[0].Kind.String()), r.Name)
	case len(near) == 0:
		return Subject{}, fmt.Errorf("no %s; %s", r, whatIsThere(v, r.Namespace))
	}
	return Subject{}, fmt.Errorf("no %s; there are %s", r, JoinSubjects(near))
}

// whatIsThere says where there are Pods, when there are none in a namespace.
func whatIsThere(v *cluster.View, namespace string) string {
	var others []string
	for _, s := range Subjects(v) {
		if !slices.Contains(others, s.Namespace) {
			others = append(others, s.Namespace)
		}
	}
	if len(others) == 0 {
		return "there are no Pods and no workloads"
	}
	slices.Sort(others)
	return fmt.Sprintf("there are no Pods in namespace %s; there are some in %s", namespace, strings.Join(others[:min(len(others), mostListed)], ", "))
}

// mostListed is how many an error lists.
const mostListed = 5

// List names some Subjects, as errors do.
func JoinSubjects(all []Subject) string {
	var names []string
	for i := range all[:min(len(all), mostListed)] {
		names = append(names, all[i].String())
	}
	text := strings.Join(names, ", ")
	if more := len(all) - mostListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
