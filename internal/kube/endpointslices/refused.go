package endpointslices

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"portolan.dev/portolan/internal/cluster"
)

// The API server takes no Pod with a hostname that is no label, or with an
// address that is none of IPv4 or IPv6 (core/v1, PodSpec and PodIP). But Pods that
// are made of declared templates may have them, and then a slice would be refused
// with all its endpoints.

// refusals say what was left out of the endpoints of a Service, by its Pod.
type refusals map[string]string

// sound is a Pod without what its endpoint of the job's Service can't have. That
// is told when it was not so before.
func (w *worker) sound(j *job, p *cluster.Pod) *cluster.Pod {
	if !inSlices(p) {
		return p
	}
	hostname := endpointHostname(j.key, p)
	named := hostname == "" || len(validation.IsDNS1123Label(hostname)) == 0
	if named && !slices.ContainsFunc(p.IPs, noAddress) {
		return p
	}
	sound := *p
	var without []string
	if !named {
		spec := *p.Spec
		spec.Hostname, sound.Spec = "", &spec
		without = append(without, "hostname "+hostname)
	}
	sound.IPs = nil
	for _, ip := range p.IPs {
		if noAddress(ip) {
			without = append(without, "address "+ip.String())
			continue
		}
		sound.IPs = append(sound.IPs, ip)
	}
	if what := strings.Join(without, ", "); j.refuse(p.Name, what) {
		w.compiler.cfg.Log.Warn("a pod has what no endpoint may have", "service", j.key, "pod", p.Name, "without", what)
	}
	return &sound
}

// endpointHostname is what the Pod's endpoint of a Service is called, empty for
// nothing.
func endpointHostname(service cluster.Key, p *cluster.Pod) string {
	if p.Spec == nil || p.Spec.Subdomain != service.Name {
		return ""
	}
	return p.Spec.Hostname
}

// noAddress tells whether no endpoint may have an address.
func noAddress(a netip.Addr) bool { return !a.IsValid() || a.Zone() != "" || a.Is4In6() }

// refuse notes what was left out, and tells whether that is new.
func (j *job) refuse(pod, what string) bool {
	known := j.refused[pod] == what || j.old != nil && j.old.refused[pod] == what
	if j.refused == nil {
		j.refused = make(refusals)
	}
	j.refused[pod] = what
	return !known
}

// keepRefused notes what was left out of endpoints that did not change.
func (j *job) keepRefused() {
	for pod, what := range j.old.refused {
		if !j.changed(pod) {
			j.refuse(pod, what)
		}
	}
}
