package lint

import (
	"fmt"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// serviceLabel says which Service an EndpointSlice belongs to.
const serviceLabel = "kubernetes.io/service-name"

// EndpointSlice judges an EndpointSlice.
func (c *Linter) CheckEndpointSlice(e *cluster.EndpointSlice) []Finding {
	j := c.reporterFor(cluster.KindEndpointSlice, e.Key)
	key := cluster.Key{Namespace: e.Namespace, Name: e.Service}
	s := c.View.Service(key)
	switch {
	case e.Service == "":
		j.add(EndpointSliceNoService, "metadata.labels", "give it the label "+serviceLabel,
			"it has no label %s, so that it belongs to no Service: no name leads to its endpoints", serviceLabel)
	case !j.loaded(cluster.KindService):
	case s == nil:
		near := c.indexed().nearestService(e.Namespace, e.Service)
		j.add(EndpointSliceOrphan, "metadata.labels", "name a Service of the namespace in the label "+serviceLabel+", or delete the slice",
			"it belongs to the Service %s, which is not there%s: no name leads to its endpoints", key, mean(near))
	case s.ExternalName == "":
		j.slicePorts(e, s)
	}
	if e.AddressType == cluster.FQDN {
		j.add(EndpointSliceFQDN, "addressType", "use a Service of type ExternalName, or addresses",
			"addresses of type FQDN have no records: no name leads to these endpoints")
	}
	j.sliceAddresses(e)
	return j.found()
}

// slicePorts: a slice's ports are the Service's, by name.
func (j *reporter) slicePorts(e *cluster.EndpointSlice, s *cluster.Service) {
	if len(s.Ports) == 0 || len(e.Endpoints) == 0 {
		return
	}
	for i, p := range e.Ports {
		same := func(q cluster.Port) bool { return q.Name == p.Name && q.Protocol == p.Protocol }
		if slices.ContainsFunc(s.Ports, same) {
			continue
		}
		severity, what := Error, "what comes for the Service's port finds no endpoint here"
		if s.Headless {
			severity, what = Warning, "SRV records have the slice's name, not the Service's"
		}
		j.addAs(severity, EndpointSlicePortMismatch, fmt.Sprintf("ports[%d].name", i), "give the port of the slice the name and protocol that it has in the Service",
			"%s is none of the ports of service %s, which has %s: %s", portText(p), s.Key, portTexts(s.Ports), what)
		return
	}
	for _, p := range s.Ports {
		if len(s.Selector) == 0 && !slices.ContainsFunc(e.Ports, func(q cluster.Port) bool { return q.Name == p.Name && q.Protocol == p.Protocol }) {
			j.add(EndpointSlicePortMismatch, "ports", "add the port to the slice",
				"the slice lacks %s of service %s: what comes for it finds no endpoint here", portText(p), s.Key)
			return
		}
	}
}

// portText names a port.
func portText(p cluster.Port) string {
	if p.Name == "" {
		return fmt.Sprintf("the port without name (%s)", p.Protocol)
	}
	return fmt.Sprintf("port %s (%s)", p.Name, p.Protocol)
}

// portTexts names a few.
func portTexts(ports []cluster.Port) string {
	var texts []string
	for _, p := range ports {
		texts = append(texts, portText(p))
	}
	return some(texts)
}

// sliceAddresses: what an endpoint must not be.
func (j *reporter) sliceAddresses(e *cluster.EndpointSlice) {
	var bad, virtual []string
	for i := range e.Endpoints {
		addr := e.Endpoints[i].Addr
		switch {
		case isOwn(addr):
			bad = append(bad, addr.String())
		case len(j.indexed().clusterIPs[addr]) > 0:
			virtual = append(virtual, fmt.Sprintf("%s of service %s", addr, j.indexed().clusterIPs[addr][0].Key))
		}
	}
	if len(bad) > 0 {
		j.add(EndpointAddressForbidden, "endpoints", "name addresses that every Pod can reach",
			"%s %s every client's own: the API server refuses it", some(bad), isAre(len(bad)))
	}
	if len(virtual) > 0 {
		j.add(EndpointIsClusterIP, "endpoints", "name the endpoints of that Service, or use type ExternalName",
			"an endpoint is the cluster IP %s: kube-proxy does not support that", some(virtual))
	}
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// isOwn tells whether an address means another host to each (Service,
// "Services without selectors").
func isOwn(a netip.Addr) bool {
	return a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast() || a.IsUnspecified()
}
