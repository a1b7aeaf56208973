package lint

import (
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/pool"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/plan"
)

// serviceAnnotations checks the values of a Service's annotations for the service proxy.
func (j *reporter) serviceAnnotations(s *cluster.Service) {
	if s.Spec == nil {
		return
	}
	if choice := s.Spec.EndpointChoice; choice != "" {
		_, err := frontend.ParseChoice(choice)
		j.annotation(cluster.AnnotationEndpointChoice, err)
	}
	_, err := plan.ParseSlowStart(s.Spec.SlowStart, 0)
	j.annotation(cluster.AnnotationSlowStart, err)
	if asked := s.Spec.LoadBalancer; asked != nil && asked.Addresses != "" {
		if _, err := pool.ParseRequest(asked); err != nil {
			j.add(LoadBalancerIPsInvalid, "metadata.annotations", "set one address, or one of each family",
				"%s: %v: the Service gets no address", cluster.AnnotationLoadBalancerIPs, err)
		}
	}
}

// bandwidth checks the annotations that limit a Pod's bandwidth. Those of Pods in the node's network are not read.
func (p *podChecker) bandwidth() {
	if p.subject.Spec.HostNetwork {
		return
	}
	path := "metadata.annotations"
	if w := p.subject.Workload; w != nil {
		path = strings.TrimSuffix(w.SpecPath(), "spec") + path
	}
	for _, a := range p.subject.Spec.Refused {
		p.add(PodBandwidthInvalid, path, "set a bandwidth such as 10M, or remove the annotation",
			"%s: %s: the container runtime does not start the Pod", a.Name, a.Problem)
	}
}

// sliceAnnotations checks the values of an EndpointSlice's annotations for the service proxy.
func (j *reporter) sliceAnnotations(e *cluster.EndpointSlice) {
	_, err := plan.ParseWeight(e.EndpointWeight())
	j.annotation(cluster.AnnotationEndpointWeight, err)
}

// annotation reports an annotation whose value has an error.
func (j *reporter) annotation(name string, err error) {
	if err != nil {
		j.add(ProxyAnnotationInvalid, "metadata.annotations", "set a value that is allowed, or remove the annotation",
			"%s: %v: the service proxy ignores it", name, err)
	}
}
