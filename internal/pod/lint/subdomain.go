package lint

import (
	"fmt"

	"portolan.dev/portolan/internal/cluster"
)

// subdomain checks that a headless Service with the name of the subdomain selects the
// Pod, which gives the Pod a name.
func (p *podChecker) subdomain() {
	name := p.subject.Spec.Subdomain
	if name == "" || p.subject.Spec.HostNetwork || p.subject.Kind == cluster.KindStatefulSet ||
		p.isRefused(p.field("subdomain")) || !p.loaded(cluster.KindService) {
		return
	}
	field := p.field("subdomain")
	key := cluster.Key{Namespace: p.subject.Namespace, Name: name}
	s := p.View.Service(key)
	fqdn := p.fqdn(name)
	switch {
	case s == nil || s.ExternalName != "":
		what := "does not exist" + didYouMean(p.indexed().similarService(p.subject.Namespace, name))
		if s != nil {
			what = "is of type ExternalName and has no endpoints"
		}
		p.add(PodSubdomainNoService, field, "create a headless Service of that name that selects the Pod",
			"service %s %s: the Pod's FQDN %s does not resolve", key, what, fqdn)
	case !s.SelectsLabels(p.subject.Namespace, p.subject.Labels) && len(s.Selector) > 0:
		p.add(PodSubdomainNotSelected, field, "give the Pod the labels of the Service's selector",
			"service %s does not select the Pod, which lacks %s: %s does not resolve",
			key, unmatchedLabels(s, p.subject.Labels), fqdn)
	case !s.Headless:
		p.add(PodSubdomainNotHeadless, field, "set clusterIP: None in the Service",
			"service %s is not headless: %s may not resolve", key, fqdn)
	case p.subject.Spec.Hostname == "":
		p.add(PodSubdomainNoHostname, p.field("hostname"), "set hostname",
			"the Pod has no hostname, so it has no record of its own under service %s", key)
	}
}

// fqdn returns the FQDN of the Pod.
func (p *podChecker) fqdn(subdomain string) string {
	host := p.subject.Spec.Hostname
	if host == "" {
		host = p.settings.Name
	}
	return fmt.Sprintf("%s.%s.%s.svc.%s", host, subdomain, p.subject.Namespace, p.domain())
}

// unmatchedLabels lists the labels of a Service's selector that do not match labels.
func unmatchedLabels(s *cluster.Service, labels map[string]string) string {
	var texts []string
	for _, label := range missing(s.Selector, labels) {
		texts = append(texts, label+"="+s.Selector[label])
	}
	return firstFew(texts)
}

// statefulSet checks that the Service of a StatefulSet gives its Pods names.
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
		p.add(StatefulSetNoService, field, "create a headless Service, and set serviceName to its name",
			"it has no serviceName: its Pods have no names such as %s-0.SERVICE.%s.svc.%s",
			p.subject.Name, p.subject.Namespace, p.domain())
	case s == nil || s.ExternalName != "":
		what, fix := p.serviceMissing(key, s)
		p.add(StatefulSetServiceMissing, field, fix, "%s: names such as %s-0.%s do not resolve", what, p.subject.Name, name)
	case !s.SelectsLabels(p.subject.Namespace, p.subject.Labels) && len(s.Selector) > 0:
		p.add(StatefulSetServiceNotSelecting, field, "set the Service's selector to labels of the template",
			"service %s does not select its Pods, which lack %s: names such as %s-0.%s do not resolve",
			key, unmatchedLabels(s, p.subject.Labels), p.subject.Name, name)
	case !s.Headless:
		p.add(StatefulSetServiceNotHeadless, field, "set clusterIP: None in the Service",
			"service %s is not headless: names of its Pods, such as %s-0.%s, may not resolve", key, p.subject.Name, name)
	}
}

// serviceMissing returns what is wrong with the Service of a StatefulSet, and the cure.
// s is an ExternalName Service of that name, or nil.
func (p *podChecker) serviceMissing(key cluster.Key, s *cluster.Service) (what, fix string) {
	fix = "create a headless Service of that name that selects the Pods"
	if s != nil {
		return fmt.Sprintf("service %s is of type ExternalName and has no endpoints", key), fix
	}
	var selecting []string
	for _, s := range p.indexed().services[p.subject.Namespace] {
		if s.Headless && len(s.Selector) > 0 && s.SelectsLabels(p.subject.Namespace, p.subject.Labels) {
			selecting = append(selecting, s.Name)
		}
	}
	if len(selecting) == 1 {
		why := fmt.Sprintf("service %s does not exist, and %s selects the Pods", key, selecting[0])
		return why, "set serviceName to " + selecting[0] + ", or " + fix
	}
	near := p.indexed().similarService(p.subject.Namespace, key.Name)
	return fmt.Sprintf("service %s does not exist%s", key, didYouMean(near)), fix
}

// sharedHostname checks that no other Pod has the same hostname and subdomain.
func (p *podChecker) sharedHostname() {
	if p.subject.Spec.Hostname == "" || p.subject.Spec.Subdomain == "" || p.subject.Spec.HostNetwork ||
		p.subject.Kind == cluster.KindStatefulSet {
		return
	}
	const fix = "remove hostname, or use a StatefulSet, which gives each Pod its own"
	field, fqdn := p.field("hostname"), p.fqdn(p.subject.Spec.Subdomain)
	if p.subject.Workload != nil {
		if p.subject.Workload.Replicas > 1 || p.subject.Kind == cluster.KindDaemonSet {
			p.add(PodHostnameShared, field, fix,
				"all Pods of the template have the same hostname %s: %s resolves to all of them", p.subject.Spec.Hostname, fqdn)
		}
		return
	}
	host := hostKey{p.subject.Namespace, p.subject.Spec.Subdomain, p.subject.Spec.Hostname}
	for _, other := range p.indexed().hosts[host] {
		if other.Pod != nil && other.Key != p.subject.Key {
			p.add(PodHostnameShared, field, fix, "%s has the same hostname %s: %s resolves to both", other,
				p.subject.Spec.Hostname, fqdn)
			return
		}
	}
}
