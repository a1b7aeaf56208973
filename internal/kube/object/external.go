package object

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"portolan.dev/portolan/internal/cluster"
)

// hostnameAnnotation lists names of a Service, an Ingress or a Gateway, separated by
// commas (github.com/kubernetes-sigs/external-dns, annotations).
const hostnameAnnotation = "external-dns.alpha.kubernetes.io/hostname"

// serviceExternal returns how a Service is reached from outside; nil if it is not, and
// has no name there.
func serviceExternal(s *corev1.Service) *cluster.External {
	var e cluster.External
	for _, text := range s.Spec.ExternalIPs {
		addPlace(&e, text, "")
	}
	for i := range s.Status.LoadBalancer.Ingress {
		addPlace(&e, s.Status.LoadBalancer.Ingress[i].IP, s.Status.LoadBalancer.Ingress[i].Hostname)
	}
	addHosts(&e, annotatedHosts(s.Annotations)...)
	if len(e.Addresses)+len(e.Targets)+len(e.Hosts) == 0 {
		return nil
	}
	return &e
}

// addPlace adds an address or, if there is none, a name. Others than the user write
// these fields, so that invalid ones are no reason to refuse the object.
func addPlace(e *cluster.External, ip, name string) {
	addr, bad := address(ip)
	switch {
	case len(bad) == 0 && !slices.Contains(e.Addresses, addr):
		e.Addresses = append(e.Addresses, addr)
	case len(bad) > 0 && name != "" && !slices.Contains(e.Targets, name):
		e.Targets = append(e.Targets, name)
	}
}

// addHosts adds names, each once. An empty one stands for all names, and is left out.
func addHosts(e *cluster.External, hosts ...string) {
	for _, h := range hosts {
		h = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(h)), ".")
		if h != "" && !slices.Contains(e.Hosts, h) {
			e.Hosts = append(e.Hosts, h)
		}
	}
}

func annotatedHosts(annotations map[string]string) []string {
	return strings.Split(annotations[hostnameAnnotation], ",")
}
