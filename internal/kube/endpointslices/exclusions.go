package endpointslices

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"portolan.dev/portolan/internal/cluster"
)

// The API server refuses a Pod whose hostname is no DNS label, and addresses with a
// zone or of the form ::ffff:0:0/96 (core/v1, PodSpec and PodIP). Pods simulated
// from declared templates may have them, and one such endpoint would make a whole
// slice invalid. Such hostnames and addresses are omitted instead.

// exclusions are the hostnames and addresses omitted from a Service's endpoints, by
// Pod name.
type exclusions map[string]string

// representable returns the Pod without a hostname and addresses that its endpoint
// cannot have, and logs a warning when these are new.
func (w *worker) representable(j *job, p *cluster.Pod) *cluster.Pod {
	if !hasEndpoints(p) {
		return p
	}
	hostname := endpointHostname(j.key, p)
	validHostname := hostname == "" || len(validation.IsDNS1123Label(hostname)) == 0
	if validHostname && !slices.ContainsFunc(p.IPs, invalidAddress) {
		return p
	}
	reduced := *p
	var omitted []string
	if !validHostname {
		spec := *p.Spec
		spec.Hostname, reduced.Spec = "", &spec
		omitted = append(omitted, "hostname "+hostname)
	}
	reduced.IPs = nil
	for _, ip := range p.IPs {
		if invalidAddress(ip) {
			omitted = append(omitted, "address "+ip.String())
			continue
		}
		reduced.IPs = append(reduced.IPs, ip)
	}
	if what := strings.Join(omitted, ", "); j.exclude(p.Name, what) {
		w.compiler.cfg.Log.Warn("pod has values that an endpoint cannot have", "service", j.key, "pod", p.Name,
			"omitted", what)
	}
	return &reduced
}

// hasEndpoints reports whether a Pod has endpoints: it has addresses and has not
// terminated (EndpointSlices, "Conditions").
func hasEndpoints(p *cluster.Pod) bool { return !p.Finished && len(p.IPs) > 0 }

// endpointHostname returns the hostname of the Pod's endpoint in a Service, empty if
// it has none.
func endpointHostname(service cluster.Key, p *cluster.Pod) string {
	if p.Spec == nil || p.Spec.Subdomain != service.Name {
		return ""
	}
	return p.Spec.Hostname
}

// invalidAddress reports whether no endpoint may have the address.
func invalidAddress(a netip.Addr) bool { return !a.IsValid() || a.Zone() != "" || a.Is4In6() }

// exclude records what is omitted for a Pod and reports whether that is new.
func (j *job) exclude(pod, what string) bool {
	known := j.previous != nil && j.previous.exclusions[pod] == what
	if j.exclusions == nil {
		j.exclusions = make(exclusions)
	}
	j.exclusions[pod] = what
	return !known
}
