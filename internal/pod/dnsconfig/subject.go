package dnsconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/resolvconf"
)

// Subject is a Pod of the model, or the Pod template of a workload.
type Subject struct {
	cluster.Key
	Kind   cluster.Kind
	Labels map[string]string
	Spec   *cluster.PodSpec
	// Pod is nil for a workload, and Workload is nil for a Pod.
	Pod      *cluster.Pod
	Workload *cluster.Workload
}

// String returns kind and key, such as "pod shop/web-0".
func (s *Subject) String() string { return strings.ToLower(s.Kind.String()) + " " + s.Key.String() }

// Finished reports whether s is a Pod whose containers have terminated for good.
func (s *Subject) Finished() bool { return s.Pod != nil && s.Pod.Finished }

// SubjectOfPod returns the Subject of a Pod.
func SubjectOfPod(p *cluster.Pod) Subject {
	s := Subject{Key: p.Key, Kind: cluster.KindPod, Labels: p.Labels, Spec: p.Spec, Pod: p}
	if s.Spec == nil {
		s.Spec = new(cluster.PodSpec)
	}
	return s
}

// SubjectOfWorkload returns the Subject of a workload.
func SubjectOfWorkload(w *cluster.Workload) Subject {
	return Subject{Key: w.Key, Kind: w.Kind, Labels: w.Labels, Spec: &w.Spec, Workload: w}
}

// Settings returns the input for Resolve, HostnameOf and Validate. The name of a
// workload's Pod has the length of the names that its Pods will have, with x for random
// characters. For a StatefulSet it is the name of the last Pod, which is the longest.
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
		p.Path, p.Name = s.Workload.SpecPath(), s.Name+nameSuffixes[s.Kind]
	}
	if s.Kind == cluster.KindStatefulSet { // its controller sets these
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

// nameSuffixes has what follows the name of a workload in the names of its Pods. For a
// Deployment these are the hash of its template, of up to ten characters, and five
// random characters; for a CronJob the minutes since 1970 and five random characters.
var nameSuffixes = map[cluster.Kind]string{
	cluster.KindDeployment: "-xxxxxxxxxx-xxxxx",
	cluster.KindDaemonSet:  "-xxxxx",
	cluster.KindJob:        "-xxxxx",
	cluster.KindCronJob:    "-00000000-xxxxx",
}

// Subjects returns the Pods and workloads of the model, ordered by kind and key, without
// the Pods that were simulated from a workload.
func Subjects(v *cluster.View) (all []Subject) {
	var pods []*cluster.Pod
	for p := range v.Pods() {
		if p.Owner == nil {
			pods = append(pods, p)
		}
	}
	// Pointers are moved faster than Subjects.
	slices.SortFunc(pods, func(a, b *cluster.Pod) int { return a.Compare(b.Key) })
	all = make([]Subject, 0, len(pods))
	for _, p := range pods {
		all = append(all, SubjectOfPod(p))
	}
	for _, k := range cluster.WorkloadKinds() {
		for w := range v.Workloads(k) {
			all = append(all, SubjectOfWorkload(w))
		}
	}
	slices.SortFunc(all[len(pods):], compareSubjects) // kinds of workloads come after Pod
	return all
}

func compareSubjects(a, b Subject) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Compare(b.Key)) }

// UnderSubdomain returns the first Subject of a namespace, by kind and key, whose Pods have a subdomain; nil if there
// is none.
func UnderSubdomain(v *cluster.View, namespace, subdomain string) (first *Subject) {
	consider := func(s Subject) {
		if s.Namespace == namespace && s.Spec.Subdomain == subdomain && (first == nil || compareSubjects(s, *first) < 0) {
			first = &s
		}
	}
	for p := range v.Pods() {
		if p.Namespace == namespace && p.Owner == nil {
			consider(SubjectOfPod(p))
		}
	}
	for _, k := range cluster.WorkloadKinds() {
		for w := range v.Workloads(k) {
			if w.Namespace == namespace {
				consider(SubjectOfWorkload(w))
			}
		}
	}
	return first
}

// Reference names a Subject: [NAMESPACE/]POD or [NAMESPACE/]KIND/NAME. The namespace is
// default if it is missing. Without a kind, a name that no Pod has may be that of a
// workload.
type Reference struct {
	Namespace string
	Kind      cluster.Kind // KindPod if none is given
	named     bool         // whether the kind is given
	implied   bool         // whether no namespace is given
	Name      string
}

// In returns the reference with a namespace, if it gives none.
func (r Reference) In(namespace string) Reference {
	if r.implied {
		r.Namespace = namespace
	}
	return r
}

// kindNames has the names of kinds in references, which are those of kubectl.
var kindNames = map[string]cluster.Kind{
	"pod": cluster.KindPod, "pods": cluster.KindPod, "po": cluster.KindPod,
	"deployment": cluster.KindDeployment, "deployments": cluster.KindDeployment, "deploy": cluster.KindDeployment,
	"statefulset": cluster.KindStatefulSet, "statefulsets": cluster.KindStatefulSet, "sts": cluster.KindStatefulSet,
	"daemonset": cluster.KindDaemonSet, "daemonsets": cluster.KindDaemonSet, "ds": cluster.KindDaemonSet,
	"job": cluster.KindJob, "jobs": cluster.KindJob,
	"cronjob": cluster.KindCronJob, "cronjobs": cluster.KindCronJob, "cj": cluster.KindCronJob,
}

// ParseReference parses NAMESPACE/NAME, NAME, NAMESPACE/KIND/NAME or KIND/NAME. If the
// first of two words is the name of a kind, it is a kind.
func ParseReference(text string) (Reference, error) {
	r := Reference{Namespace: "default", implied: true, Kind: cluster.KindPod}
	parts := strings.Split(text, "/")
	if len(parts) == 3 {
		r.Namespace, r.implied, parts = parts[0], false, parts[1:]
		if _, ok := kindNames[strings.ToLower(parts[0])]; !ok {
			return r, fmt.Errorf("%q: kind %q has no Pods; use pod, deployment, statefulset, daemonset, job, cronjob",
				text, parts[0])
		}
	}
	if len(parts) == 2 {
		if k, ok := kindNames[strings.ToLower(parts[0])]; ok {
			r.Kind, r.named = k, true
		} else {
			r.Namespace, r.implied = parts[0], false
		}
		parts = parts[1:]
	}
	r.Name = parts[0]
	if len(parts) > 1 || r.Namespace == "" || r.Name == "" {
		return r, fmt.Errorf(
			"%q is not NAMESPACE/POD, such as shop/web-0, or NAMESPACE/KIND/NAME, such as shop/deployment/web", text)
	}
	return r, nil
}

// String returns the reference with its namespace.
func (r Reference) String() string {
	if r.named {
		return r.Namespace + "/" + strings.ToLower(r.Kind.String()) + "/" + r.Name
	}
	return r.Namespace + "/" + r.Name
}

// Find returns the Subject that the reference names. If there is none, its error lists
// those that exist.
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
		return Subject{}, fmt.Errorf("%s: there are %s; name the kind, as in %s/%s/%s", r, JoinSubjects(same),
			r.Namespace, strings.ToLower(same[0].Kind.String()), r.Name)
	case r.named && v.Freshness(r.Kind) == cluster.Loading:
		return Subject{}, fmt.Errorf("no %s is known: the %s of the cluster could not be read", r, r.Kind.Plural())
	case len(near) == 0:
		return Subject{}, fmt.Errorf("no %s; %s", r, otherNamespaces(v, r.Namespace))
	}
	return Subject{}, fmt.Errorf("no %s; there are %s", r, JoinSubjects(near))
}

// otherNamespaces describes which namespaces have Pods, if the given one has none.
func otherNamespaces(v *cluster.View, namespace string) string {
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
	return fmt.Sprintf("there are no Pods in namespace %s; there are some in %s", namespace,
		strings.Join(others[:min(len(others), mostListed)], ", "))
}

// mostListed is the maximum number of items that an error lists.
const mostListed = 5

// JoinSubjects lists the first few Subjects, for error messages.
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
