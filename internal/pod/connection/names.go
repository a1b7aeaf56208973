package connection

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/plan"
)

// Served are the addresses that the service proxy of a node serves, and their names.
type Served struct {
	// Services are the Services by address, as in "Service shop/web".
	Services map[frontend.Address]string
	// Pods are the Pods of endpoints by address, as in "Pod shop/web-0".
	Pods map[netip.Addr]string
	// ports are the addresses of all Services.
	ports map[cluster.Key][]servedPort
}

// servedPort is an address of a port.
type servedPort struct {
	frontend.Address
	port cluster.Port
	kind plan.AddressKind
}

// NewServed returns what a node serves.
func NewServed(v *cluster.View, s *Settings, node string) *Served {
	served := &Served{
		Services: make(map[frontend.Address]string), Pods: make(map[netip.Addr]string),
		ports: make(map[cluster.Key][]servedPort),
	}
	p := newProxy(v, s, node)
	for _, service := range p.services {
		of := p.compiler.Service(service.Key)
		served.ports[service.Key] = nil
		for _, f := range of.Frontends {
			port, kind, ok := plan.Describe(service, f.Address)
			if !ok || isTaken(of.Verdicts, f.Address) {
				continue
			}
			served.Services[f.Address] = "Service " + service.String()
			served.ports[service.Key] = append(served.ports[service.Key], servedPort{f.Address, service.Ports[port], kind})
		}
	}
	for slice := range v.EndpointSlices() {
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; e.Pod != "" {
				served.Pods[e.Addr] = "Pod " + slice.Namespace + "/" + e.Pod
			}
		}
	}
	return served
}

// Addresses returns the addresses of a target: the one that it is, or those of the port of a
// Service; without a port, of all ports, and those that a cluster IP does not have. Its host is
// SERVICE, which is in the given namespace, or SERVICE.NAMESPACE, or the latter with svc and a domain.
func (s *Served) Addresses(t Target, namespace string) (all []frontend.Address, err error) {
	number, bad := strconv.ParseUint(t.Port, 10, 16)
	if addr, err := netip.ParseAddr(t.Host); err == nil {
		if t.Port == "" {
			return []frontend.Address{{Addr: addr.Unmap()}}, nil
		}
		if bad != nil {
			return nil, fmt.Errorf("%q is not the number of a port; only ports of Services have names", t.Port)
		}
		return []frontend.Address{{Addr: addr.Unmap(), Protocol: t.Protocol, Port: uint16(number)}}, nil
	}
	const cure = "name one as SERVICE.NAMESPACE or NAMESPACE/SERVICE, or give an address"
	key := serviceKey(t.Host, namespace)
	ports, known := s.ports[key]
	short, _, _ := strings.Cut(t.Host+".", ".svc.")
	switch {
	case strings.Count(strings.TrimRight(short, "."), ".") > 1:
		return nil, fmt.Errorf("%s is no name of a Service; %s", t.Host, cure)
	case !known:
		return nil, fmt.Errorf("there is no Service %s; %s", key, cure)
	case len(ports) == 0:
		return nil, fmt.Errorf("the service proxy serves no address of Service %s; give the address of an endpoint", key)
	}
	var there []cluster.Port
	for _, p := range ports {
		if !slices.Contains(there, p.port) {
			there = append(there, p.port)
		}
		at := p.Address
		if t.Port == "" && p.kind == plan.ClusterIP {
			at = frontend.Address{Addr: p.Addr}
		}
		if slices.Contains(all, at) {
			continue
		}
		if t.Port == "" || p.port.Name == t.Port ||
			bad == nil && uint64(p.port.Number) == number && p.Protocol == t.Protocol {
			all = append(all, at)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no port of Service %s is %s/%s (it has %s)", key, t.Port, t.Protocol, portsOf(there))
	}
	return all, nil
}
