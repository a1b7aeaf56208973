package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/support/suggest"
)

// service diagnoses a Service that exists.
func (d *diagnoser) service(s *cluster.Service, m meaning) {
	if s.ExternalName != "" {
		d.alias(s)
		return
	}
	if (s.Headless || m.port != "") && d.notLoaded(cluster.KindEndpointSlice) {
		return
	}
	findings := d.Linter.CheckService(s)
	switch {
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

// alias diagnoses an ExternalName Service. If its target is a Service, that is diagnosed.
func (d *diagnoser) alias(s *cluster.Service) {
	if d.addFindings(d.Linter.CheckService(s), lint.ExternalNameAddress, lint.ExternalNameLoop,
		lint.ExternalNameMissingService, lint.ExternalNameUnqualified) {
		return
	}
	if m, ok := meaningOf(s.ExternalName, d.Linter.Domains); ok {
		if target := d.Linter.View.Service(m.service); target != nil {
			d.service(target, m)
			return
		}
	}
	if d.suppressed() {
		return
	}
	if !d.inDomain(s.ExternalName) && d.outsideFails() {
		d.add("no-upstream", upstreamCure,
			"the target of Service %s, %s, is outside the cluster, and the server does not resolve it", s.Key, s.ExternalName)
		return
	}
	d.add("external-name", "check that its target has one", "Service %s is an alias of %s, which has no %s record",
		s.Key, s.ExternalName, strings.Join(d.e.Types, " and no "))
}

// outsideFails reports whether a server did not look up the target of an alias, or failed
// to answer.
func (d *diagnoser) outsideFails() bool {
	for _, q := range d.exchanges() {
		if q.unfollowed || isFailure(q.Result) {
			return true
		}
	}
	return false
}

// isFailure reports whether a result is not an answer for the name.
func isFailure(result string) bool {
	return slices.Contains([]string{dnswire.ServFail.String(), dnswire.Refused.String(), timeout, unreachable}, result)
}

// lacksControlPlane reports whether a Service lacks the cluster IP or the EndpointSlices
// that the control plane of a cluster adds.
func (d *diagnoser) lacksControlPlane(s *cluster.Service) bool {
	switch {
	case !s.Headless && len(s.ClusterIPs) == 0:
		d.add("no-cluster-ip",
			d.elseRead("simulate the assignment (--simulate), or set clusterIP in the manifests", "create it again"),
			"Service %s has no cluster IP: the API server of a cluster assigns it", s.Key)
	case s.Headless && len(d.Linter.View.SlicesOf(s.Key)) == 0:
		cure := d.elseRead("add an EndpointSlice to the manifests", "check that kube-controller-manager runs")
		if len(s.Selector) > 0 {
			cure = d.elseRead("simulate the control plane (--simulate), or add an EndpointSlice to the manifests",
				"check that kube-controller-manager runs")
		}
		d.add("no-endpoint-slice", cure,
			"Service %s has no EndpointSlice: the control plane of a cluster creates them from its selector and the Pods", s.Key)
	default:
		return false
	}
	return true
}

// elseRead returns the cure for what the control plane should have created: in manifests,
// to read the cluster or do something else; in a cluster, something about the control plane.
func (d *diagnoser) elseRead(inManifests, inCluster string) string {
	if d.Linter.Observed {
		return inCluster
	}
	return "read the cluster itself (--kubeconfig FILE), " + inManifests
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
	wanted := m.port
	for _, p := range s.Ports {
		if p.Name == "" {
			continue
		}
		if p.Name == m.port {
			if !strings.EqualFold(string(p.Protocol), m.protocol) {
				m.protocol = strings.ToLower(string(p.Protocol))
				d.suggest("port-protocol", m, "", "port %s of Service %s has protocol %s", p.Name, s.Key, p.Protocol)
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
	const noPort = "Service %s has no port named %s; it has %s"
	if near := cmp.Or(suggest.Closest(m.port, names), only(names)); near != "" {
		m.port = near
		d.suggest("no-port", m, "", noPort, s.Key, wanted, strings.Join(names, ", "))
		return
	}
	d.add("no-port", "use one of these", noPort, s.Key, m.port, strings.Join(names, ", "))
}

// only returns the only element, or "".
func only(names []string) string {
	if len(names) != 1 {
		return ""
	}
	return names[0]
}

// host diagnoses why a Service has no endpoint with a hostname.
func (d *diagnoser) host(s *cluster.Service, m meaning) {
	if !s.Headless {
		d.add("host-of-cluster-ip", "look up the Service itself, or make it headless (clusterIP: None)",
			"Service %s is not headless, so its endpoints have no names such as %s", s.Key, m.host)
		return
	}
	if d.finishedHost(s, m) || d.ordinal(m) {
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

// finishedHost reports whether the Pod with the hostname has finished.
func (d *diagnoser) finishedHost(s *cluster.Service, m meaning) bool {
	for p := range d.Linter.View.Pods() {
		if p.Finished && p.Namespace == s.Namespace && p.Spec != nil && p.Spec.Subdomain == s.Name &&
			cmp.Or(p.Spec.Hostname, p.Name) == m.host {
			d.add("pod-finished", "look up a Pod that runs", "pod %s has finished, so it has no address and no name", p.Key)
			return true
		}
	}
	return false
}

// ordinal reports whether the hostname has the form of those of a StatefulSet's Pods, and
// the StatefulSet has no Pod with that ordinal.
func (d *diagnoser) ordinal(m meaning) bool {
	w := d.statefulSetOf(m)
	if w == nil || w.Service != m.service.Name {
		return false
	}
	n, err := strconv.Atoi(m.host[len(w.Name)+1:])
	first := w.LastOrdinal - w.Replicas + 1
	if err != nil || n >= first && n <= w.LastOrdinal {
		return false
	}
	pods := fmt.Sprintf("the Pods %s-%d to %s-%d", w.Name, first, w.Name, w.LastOrdinal)
	switch w.Replicas {
	case 0:
		pods = "0 replicas"
	case 1:
		pods = fmt.Sprintf("the Pod %s-%d only", w.Name, first)
	}
	d.add(
		"no-ordinal",
		"use one that exists, or scale the StatefulSet",
		"statefulset %s has %s, and no %s",
		w.Key,
		pods,
		m.host,
	)
	return true
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
