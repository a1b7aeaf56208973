package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
)

// service diagnoses a Service that exists.
func (d *diagnoser) service(s *cluster.Service, m meaning) {
	findings := d.Linter.CheckService(s)
	switch {
	case s.ExternalName != "":
		if !d.addFindings(findings, lint.ExternalNameAddress, lint.ExternalNameLoop, lint.ExternalNameMissingService,
			lint.ExternalNameUnqualified) {
			d.add("external-name", "check that its target has one", "Service %s is an alias of %s, which has no %s record",
				s.Key, s.ExternalName, strings.Join(d.e.Types, " and no "))
		}
	case m.port != "":
		d.port(s, m, findings)
	case m.host != "":
		d.host(s, m)
	case d.family(s) || d.addFindings(findings, endpointRules...) || d.lacksControlPlane(s):
	default:
		d.add("no-record", "look up A, AAAA or SRV", "Service %s has no %s record", s.Key,
			strings.Join(d.e.Types, " and no "))
	}
}

// lacksControlPlane reports whether a Service lacks the cluster IP or the EndpointSlices
// that the control plane of a cluster adds.
func (d *diagnoser) lacksControlPlane(s *cluster.Service) bool {
	switch {
	case !s.Headless && len(s.ClusterIPs) == 0:
		d.add("no-cluster-ip",
			"read the cluster itself (--kubeconfig FILE), simulate the assignment (--simulate), or set clusterIP in the "+
				"manifests",
			"Service %s has no cluster IP: the API server of a cluster assigns it", s.Key)
	case s.Headless && len(d.Linter.View.SlicesOf(s.Key)) == 0:
		cure := "read the cluster itself (--kubeconfig FILE), or add an EndpointSlice to the manifests"
		if len(s.Selector) > 0 {
			cure = "read the cluster itself (--kubeconfig FILE), simulate the control plane (--simulate), or add an " +
				"EndpointSlice to the manifests"
		}
		d.add("no-endpoint-slice", cure,
			"Service %s has no EndpointSlice: the control plane of a cluster creates them from its selector and the Pods", s.Key)
	default:
		return false
	}
	return true
}

// family reports whether a Service has only addresses of the other family.
func (d *diagnoser) family(s *cluster.Service) bool {
	want4 := d.Type == dnswire.TypeA
	if !want4 && d.Type != dnswire.TypeAAAA {
		return false
	}
	addrs := slices.Clone(s.ClusterIPs)
	for _, slice := range d.Linter.View.SlicesOf(s.Key) {
		if s.Headless {
			for _, e := range slice.Endpoints {
				addrs = append(addrs, e.Addr)
			}
		}
	}
	if len(addrs) == 0 || slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is4() == want4 }) {
		return false
	}
	has, wants := "IPv6", "IPv4"
	if !want4 {
		has, wants = wants, has
	}
	d.add("other-family", "look up the other type, or make the Service dual-stack (ipFamilyPolicy: PreferDualStack)",
		"Service %s has %s addresses and no %s addresses", s.Key, has, wants)
	return true
}

// port diagnoses why a Service has no SRV record for a port.
func (d *diagnoser) port(s *cluster.Service, m meaning, findings []lint.Finding) {
	var names []string
	for _, p := range s.Ports {
		if p.Name == "" {
			continue
		}
		if p.Name == m.port {
			if !strings.EqualFold(string(p.Protocol), m.protocol) {
				d.add("port-protocol", fmt.Sprintf("use _%s._%s", p.Name, strings.ToLower(string(p.Protocol))),
					"port %s of Service %s has protocol %s", p.Name, s.Key, p.Protocol)
				return
			}
			switch {
			case d.Type != dnswire.TypeSRV:
				d.add("not-srv", "look up SRV (--type SRV)", "port names have SRV records only")
			case !d.addFindings(findings, endpointRules...):
				d.lacksControlPlane(s)
			}
			return
		}
		names = append(names, p.Name)
	}
	if len(names) == 0 {
		if !d.addFindings(findings, lint.ServicePortUnnamed) {
			d.add("port-unnamed", "name its ports", "Service %s has no named port, and only named ports have SRV records", s.Key)
		}
		return
	}
	d.add("no-port", "use one of these", "Service %s has no port named %s; it has %s", s.Key, m.port,
		strings.Join(names, ", "))
}

// host diagnoses why a Service has no endpoint with a hostname.
func (d *diagnoser) host(s *cluster.Service, m meaning) {
	if !s.Headless {
		d.add("host-of-cluster-ip", "look up the Service itself, or make it headless (clusterIP: None)",
			"Service %s is not headless, so its endpoints have no names such as %s", s.Key, m.host)
		return
	}
	if len(d.Linter.View.SlicesOf(s.Key)) == 0 && len(s.Selector) > 0 {
		if !d.addFindings(d.Linter.CheckService(s), endpointRules...) {
			d.lacksControlPlane(s)
		}
		return
	}
	hosts, unready, ready := d.hostnames(s, m.host)
	switch {
	case len(ready) > 0:
		d.add("no-record", "look up the type of its address",
			"endpoint %s of Service %s has the address %s, and no %s record", m.host, s.Key, firstFew(ready),
			strings.Join(d.e.Types, " and no "))
		return
	case len(unready) > 0:
		d.add("host-not-ready", "find out why it is not ready, or set publishNotReadyAddresses on the Service",
			"endpoint %s of Service %s is not ready (%s)", m.host, s.Key, strings.Join(unready, ", "))
		return
	}
	if pod := d.Linter.View.Pod(cluster.Key{Namespace: s.Namespace, Name: m.host}); pod != nil &&
		d.addFindings(d.Linter.CheckSubject(new(dnsconfig.SubjectOfPod(pod))),
			lint.PodSubdomainNoHostname, lint.PodSubdomainNotSelected) {
		return
	}
	if len(hosts) == 0 {
		d.add("no-hostnames", "give the Pods a hostname and the subdomain "+s.Name,
			"no endpoint of Service %s has a hostname", s.Key)
		return
	}
	d.add("no-host", "use one of these", "no endpoint of Service %s has the hostname %s; there are %s", s.Key, m.host,
		firstFew(hosts))
}

// hostnames returns the addresses of a Service's endpoints with the hostname host, ready
// or not, and the other hostnames that have records, sorted.
func (d *diagnoser) hostnames(s *cluster.Service, host string) (others, unready, ready []string) {
	for _, slice := range d.Linter.View.SlicesOf(s.Key) {
		for _, e := range slice.Endpoints {
			switch {
			case e.Hostname == "":
			case !e.Ready && !s.PublishNotReady:
				if e.Hostname == host {
					unready = append(unready, e.Addr.String())
				}
			case e.Hostname == host:
				ready = append(ready, e.Addr.String())
			default:
				others = append(others, e.Hostname)
			}
		}
	}
	slices.Sort(others)
	return slices.Compact(others), unready, ready
}

// mostNamed is the maximum number of names that a diagnosis lists.
const mostNamed = 5

// firstFew lists the first names, and how many more there are.
func firstFew(names []string) string {
	if more := len(names) - mostNamed; more > 0 {
		return strings.Join(names[:mostNamed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}
