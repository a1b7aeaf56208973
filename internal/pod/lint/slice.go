package lint

import (
	"fmt"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// serviceLabel is the label with the name of the Service of an EndpointSlice.
const serviceLabel = "kubernetes.io/service-name"

// CheckEndpointSlice checks an EndpointSlice.
func (c *Linter) CheckEndpointSlice(e *cluster.EndpointSlice) []Finding {
	j := c.reporterFor(cluster.KindEndpointSlice, e.Key)
	key := cluster.Key{Namespace: e.Namespace, Name: e.Service}
	s := c.View.Service(key)
	switch {
	case e.Service == "":
		j.add(EndpointSliceNoService, "metadata.labels", "add the label "+serviceLabel,
			"it has no label %s, so it belongs to no Service: no name resolves to its endpoints", serviceLabel)
	case !j.loaded(cluster.KindService):
	case s == nil:
		near := c.indexed().similarService(e.Namespace, e.Service)
		j.add(EndpointSliceOrphan, "metadata.labels", "correct the label "+serviceLabel+", or delete the EndpointSlice",
			"it belongs to Service %s, which does not exist%s: no name resolves to its endpoints", key, didYouMean(near))
	case s.ExternalName == "":
		j.slicePorts(e, s)
	}
	if e.AddressType == cluster.FQDN {
		j.add(EndpointSliceFQDN, "addressType", "use a Service of type ExternalName, or addresses",
			"addresses of type FQDN have no records: no name resolves to these endpoints")
	}
	j.sliceAddresses(e)
	j.sliceAnnotations(e)
	return j.found()
}

// slicePorts checks that the ports of an EndpointSlice match those of its Service by
// name and protocol.
func (j *reporter) slicePorts(e *cluster.EndpointSlice, s *cluster.Service) {
	if len(s.Ports) == 0 || len(e.Endpoints) == 0 {
		return
	}
	for i, p := range e.Ports {
		same := func(q cluster.Port) bool { return q.Name == p.Name && q.Protocol == p.Protocol }
		if slices.ContainsFunc(s.Ports, same) {
			continue
		}
		severity, what := Error, "connections to the Service's port find no endpoint in this EndpointSlice"
		if s.Headless {
			severity, what = Warning, "SRV records have the port name of the EndpointSlice, not of the Service"
		}
		j.addAs(severity, EndpointSlicePortMismatch, fmt.Sprintf("ports[%d].name", i),
			"give the port of the EndpointSlice the name and protocol that it has in the Service",
			"service %s has no %s; it has %s: %s", s.Key, portText(p), portTexts(s.Ports), what)
		return
	}
	for _, p := range s.Ports {
		if len(s.Selector) == 0 &&
			!slices.ContainsFunc(e.Ports, func(q cluster.Port) bool { return q.Name == p.Name && q.Protocol == p.Protocol }) {
			j.add(EndpointSlicePortMismatch, "ports", "add the port to the EndpointSlice",
				"the EndpointSlice lacks %s of service %s: connections to it find no endpoint in this EndpointSlice",
				portText(p), s.Key)
			return
		}
	}
}

// portText describes a port by name and protocol.
func portText(p cluster.Port) string {
	if p.Name == "" {
		return fmt.Sprintf("unnamed port (%s)", p.Protocol)
	}
	return fmt.Sprintf("port %s (%s)", p.Name, p.Protocol)
}

// portTexts describes the first few ports.
func portTexts(ports []cluster.Port) string {
	var texts []string
	for _, p := range ports {
		texts = append(texts, portText(p))
	}
	return firstFew(texts)
}

// sliceAddresses checks for addresses that an endpoint must not have.
func (j *reporter) sliceAddresses(e *cluster.EndpointSlice) {
	var bad, virtual []string
	for i := range e.Endpoints {
		addr := e.Endpoints[i].Addr
		switch {
		case isHostLocal(addr):
			bad = append(bad, addr.String())
		case len(j.indexed().clusterIPs[addr]) > 0:
			virtual = append(virtual, fmt.Sprintf("%s of service %s", addr, j.indexed().clusterIPs[addr][0].Key))
		}
	}
	if len(bad) > 0 {
		j.add(EndpointAddressForbidden, "endpoints", "use addresses that every Pod can reach",
			"%s %s a different host on each client: the API server refuses it", firstFew(bad), means(len(bad)))
	}
	if len(virtual) > 0 {
		j.add(EndpointIsClusterIP, "endpoints", "use the endpoints of that Service, or a Service of type ExternalName",
			"an endpoint is the cluster IP %s: kube-proxy does not support that", firstFew(virtual))
	}
}

// means returns the verb for n subjects.
func means(n int) string {
	if n == 1 {
		return "means"
	}
	return "mean"
}

// isHostLocal reports whether an address means a different host on each client
// (Service, "Services without selectors").
func isHostLocal(a netip.Addr) bool {
	return a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast() || a.IsUnspecified()
}
