package lint

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// useAnnotation is the port of a backend that is an action in an annotation, and no Service
// (AWS Load Balancer Controller, “Ingress annotations”).
const useAnnotation = "use-annotation"

// CheckIngress checks that the backends of an Ingress exist.
func (c *Linter) CheckIngress(f *cluster.Frontend) []Finding {
	j := c.reporterFor(f.Kind, f.Key)
	if !j.loaded(cluster.KindService) {
		return nil
	}
	for i := range f.Backends {
		b := &f.Backends[i]
		if b.Port == useAnnotation {
			continue
		}
		key := cluster.Key{Namespace: f.Namespace, Name: b.Service}
		if s := j.View.Service(key); s != nil {
			j.backendPort(s, b)
		} else {
			j.backendService(key, b)
		}
	}
	return j.found()
}

// backendService reports a Service that does not exist, unless it may be in manifests that
// were not read.
func (j *reporter) backendService(key cluster.Key, b *cluster.Backend) {
	if !j.Observed && len(j.indexed().services[key.Namespace]) == 0 {
		return
	}
	severity, fix := Error, "create the Service, or correct the name"
	near := j.indexed().similarService(key.Namespace, key.Name)
	switch {
	case near != "":
		fix = "write " + near + ", or create the Service"
	case !j.Observed:
		severity = Warning
	}
	j.addAs(severity, IngressBackendMissing, b.Field+".name", fix,
		"Service %s does not exist%s: requests for it fail", key, didYouMean(near))
}

// backendPort checks that the Service has the port of a backend.
func (j *reporter) backendPort(s *cluster.Service, b *cluster.Backend) {
	if s.ExternalName != "" || slices.ContainsFunc(s.Ports, b.Matches) {
		return
	}
	field, text := b.Field+".port.name", b.Port
	if b.Port == "" {
		field, text = b.Field+".port.number", strconv.Itoa(int(b.Number))
	}
	var ports []string
	for _, p := range s.Ports {
		ports = append(ports, strings.TrimSpace(p.Name+" "+strconv.Itoa(int(p.Number))))
	}
	j.add(IngressBackendMissing, field, "write a port of the Service, or add this one to it",
		"Service %s has no port %s: requests for it fail; its ports are %s", s.Key, text,
		cmp.Or(strings.Join(ports, ", "), "none"))
}
