package lint

import (
	"fmt"

	"portolan.dev/portolan/internal/cluster"
)

// subdomain: with a Service of its name, the Pod has a name there.
func (p *podChecker) subdomain() {
	name := p.subject.Spec.Subdomain
	if name == "" || p.subject.Spec.HostNetwork || p.subject.Kind == cluster.KindStatefulSet || p.isRefused(p.field("subdomain")) || !p.loaded(cluster.KindService) {
		return
	}
	field := p.field("subdomain")
	key := cluster.Key{Namespace: p.subject.Namespace, Name: name}
	s := p.View.Service(key)
	whole := p.wholeName(name)
	switch {
	case s == nil || s.ExternalName != "":
		what := "there is no Service"
		if s != nil {
			what = "an ExternalName Service has no endpoints, and so is"
		}
		p.add(PodSubdomainNoService, field, "make a headless Service of that name, which selects the Pod",
			"%s %s%s: the Pod takes its name for %s, which does not resolve", what, key, mean(p.indexed().nearestService(p.subject.Namespace, name)), whole)
	case !s.SelectsLabels(p.subject.Namespace, p.subject.Labels) && len(s.Selector) > 0:
		p.add(PodSubdomainNotSelected, field, "give the Pod the labels that the Service selects",
			"service %s does not select the Pod, which lacks %s: %s does not resolve", key, wants(s, p.subject.Labels), whole)
	case !s.Headless:
		p.add(PodSubdomainNotHeadless, field, "set clusterIP: None in the Service",
			"service %s is not headless: that %s resolves is not promised", key, whole)
	case p.subject.Spec.Hostname == "":
		p.add(PodSubdomainNoHostname, p.field("hostname"), "set hostname, too",
			"without hostname the Pod has no name of its own under service %s: only those with one get a record", key)
	}
}

// wholeName is the name that a Pod takes for its own.
func (p *podChecker) wholeName(subdomain string) string {
	host := p.subject.Spec.Hostname
	if host == "" {
		host = p.settings.Name
	}
	return fmt.Sprintf("%s.%s.%s.svc.%s", host, subdomain, p.subject.Namespace, p.domain())
}

// wants are the labels that a Service wants of what has these.
func wants(s *cluster.Service, labels map[string]string) string {
	var texts []string
	for _, label := range missing(s.Selector, labels) {
		texts = append(texts, label+"="+s.Selector[label])
	}
	return some(texts)
}

// statefulSet: its Pods have names under its Service.
func (p *podChecker) statefulSet() {
	if p.subject.Kind != cluster.KindStatefulSet || p.subject.Spec.HostNetwork || !p.loaded(cluster.KindService) {
		return
	}
	const field = "spec.serviceName"
	name := p.subject.Workload.Service
	key := cluster.Key{Namespace: p.subject.Namespace, Name: name}
	s := p.View.Service(key)
	switch {
	case name == "":
		p.add(StatefulSetNoService, field, "make a headless Service, and name it in serviceName",
			"it names no Service: its Pods have no names such as %s-0.SERVICE.%s.svc.%s", p.subject.Name, p.subject.Namespace, p.domain())
	case s == nil || s.ExternalName != "":
		what, fix := p.serviceMissing(key, s)
		p.add(StatefulSetServiceMissing, field, fix, "%s: names such as %s-0.%s do not resolve", what, p.subject.Name, name)
	case !s.SelectsLabels(p.subject.Namespace, p.subject.Labels) && len(s.Selector) > 0:
		p.add(StatefulSetServiceNotSelecting, field, "set the Service's selector to labels of the template",
			"service %s does not select its Pods, which lack %s: names such as %s-0.%s do not resolve", key, wants(s, p.subject.Labels), p.subject.Name, name)
	case !s.Headless:
		p.add(StatefulSetServiceNotHeadless, field, "set clusterIP: None in the Service",
			"service %s is not headless: that names of its Pods resolve, such as %s-0.%s, is not promised", key, p.subject.Name, name)
	}
}

// serviceMissing says what there is in the place of a StatefulSet's Service, and
// the cure. s is an ExternalName Service of that name, or nil.
func (p *podChecker) serviceMissing(key cluster.Key, s *cluster.Service) (what, fix string) {
	fix = "make a headless Service of that name, which selects the Pods"
	if s != nil {
		return fmt.Sprintf("service %s is of the type ExternalName, which has no Pods behind it", key), fix
	}
	var selecting []string
	for _, s := range p.indexed().services[p.subject.Namespace] {
		if s.Headless && len(s.Selector) > 0 && s.SelectsLabels(p.subject.Namespace, p.subject.Labels) {
			selecting = append(selecting, s.Name)
		}
	}
	if len(selecting) == 1 {
		return fmt.Sprintf("there is no service %s, and %s selects its Pods", key, selecting[0]), "set serviceName to " + selecting[0] + ", or " + fix
	}
	return fmt.Sprintf("there is no service %s%s", key, mean(p.indexed().nearestService(p.subject.Namespace, key.Name))), fix
}

// sharedHostname: a name of one Pod is to find one Pod.
func (p *podChecker) sharedHostname() {
	if p.subject.Spec.Hostname == "" || p.subject.Spec.Subdomain == "" || p.subject.Spec.HostNetwork || p.subject.Kind == cluster.KindStatefulSet {
		return
	}
	const fix = "leave out hostname, or make a StatefulSet, which gives each Pod one"
	field, whole := p.field("hostname"), p.wholeName(p.subject.Spec.Subdomain)
	if p.subject.Workload != nil {
		if p.subject.Workload.Replicas > 1 || p.subject.Kind == cluster.KindDaemonSet {
			p.add(PodHostnameShared, field, fix, "all Pods of the template have the same hostname %s: the name %s is all of them", p.subject.Spec.Hostname, whole)
		}
		return
	}
	for _, other := range p.indexed().hosts[hostKey{p.subject.Namespace, p.subject.Spec.Subdomain, p.subject.Spec.Hostname}] {
		if other.Pod != nil && other.Key != p.subject.Key {
			p.add(PodHostnameShared, field, fix, "%s has the same hostname %s: the name %s is both", other, p.subject.Spec.Hostname, whole)
			return
		}
	}
}
