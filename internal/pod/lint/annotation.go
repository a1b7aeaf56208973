package lint

import (
	"portolan.dev/portolan/internal/cluster"
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
