package lint

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// sharedAddresses checks that no other Service has the same cluster IP.
func (j *reporter) sharedAddresses(s *cluster.Service) {
	for i, addr := range s.ClusterIPs {
		for _, other := range j.indexed().clusterIPs[addr] {
			if other.Key != s.Key {
				j.add(ClusterIPShared, fmt.Sprintf("spec.clusterIPs[%d]", i),
					"leave clusterIP out, so that the cluster assigns one",
					"service %s has the cluster IP %s, too: the API server refuses it, and a reverse lookup returns both names",
					other.Key, addr)
				break
			}
		}
	}
}

// externalAddress is an external IP, or an address of a load balancer, and its field.
type externalAddress struct {
	netip.Addr
	field, kind string
}

// externalAddresses returns the external IPs of a Service, and the addresses of its load balancer
// for which nodes take connections.
func externalAddresses(s *cluster.Service) (all []externalAddress) {
	if s.Spec == nil {
		return nil
	}
	for i, addr := range s.Spec.ExternalIPs {
		all = append(all, externalAddress{addr, fmt.Sprintf("spec.externalIPs[%d]", i), "external IP"})
	}
	for i, ingress := range s.Spec.Ingress {
		if !ingress.Proxy {
			field := fmt.Sprintf("status.loadBalancer.ingress[%d]", i)
			all = append(all, externalAddress{ingress.Addr, field, "load balancer's address"})
		}
	}
	return all
}

// sharedPort returns a port that two Services have; ok is false if there is none.
func sharedPort(s, other *cluster.Service) (shared cluster.Port, ok bool) {
	for _, p := range s.Ports {
		same := func(o cluster.Port) bool { return o.Number == p.Number && o.Protocol == p.Protocol }
		if slices.ContainsFunc(other.Ports, same) {
			return p, true
		}
	}
	return shared, false
}

// sharedExternalIPs checks that no other Service has an external address with the same port, or
// as its cluster IP.
func (j *reporter) sharedExternalIPs(s *cluster.Service) {
	for _, a := range externalAddresses(s) {
		for _, other := range j.indexed().externalIPs[a.Addr] {
			p, shared := sharedPort(s, other)
			if other.Key == s.Key || !shared {
				continue
			}
			j.add(ExternalIPShared, a.field, "give one of the Services another address or port",
				"service %s has the %s %s and port %d/%s, too: connections go to one of them only",
				other.Key, a.kind, a.Addr, p.Number, p.Protocol)
			break
		}
		for _, other := range j.indexed().clusterIPs[a.Addr] {
			if other.Key == s.Key {
				continue
			}
			effect := "clients in the cluster that mean one Service may reach the other"
			if p, shared := sharedPort(s, other); shared {
				effect = fmt.Sprintf("connections at port %d/%s go to that Service", p.Number, p.Protocol)
			}
			j.add(ExternalIPIsClusterIP, a.field, "use an address that no other Service has",
				"the %s %s is the cluster IP of service %s: %s", a.kind, a.Addr, other.Key, effect)
		}
	}
}

// nodeAddresses checks that no external IP or cluster IP is an address of a node.
func (j *reporter) nodeAddresses(s *cluster.Service) {
	if s.Spec == nil {
		return
	}
	check := func(severity Severity, field string, addrs []netip.Addr) {
		for i, addr := range addrs {
			node, of := j.indexed().nodeAddresses[addr]
			if !of {
				continue
			}
			j.addAs(severity, ExternalIPOfNode, fmt.Sprintf(field, i), "use an address that no node has",
				"%s is an address of node %s: every node takes connections to %s there for the Service, and programs of "+
					"node %s that listen at these ports are not reached", addr, node, portList(s), node)
		}
	}
	check(Note, "spec.externalIPs[%d]", s.Spec.ExternalIPs)
	check(Error, "spec.clusterIPs[%d]", s.ClusterIPs)
}

// portList lists the ports of a Service, as in "ports 80/TCP and 443/TCP".
func portList(s *cluster.Service) string {
	var all []string
	for _, p := range s.Ports {
		all = append(all, fmt.Sprintf("%d/%s", p.Number, p.Protocol))
	}
	if len(all) == 1 {
		return "port " + all[0]
	}
	return "ports " + strings.Join(all, " and ")
}

// sourceRanges checks that loadBalancerSourceRanges has an effect.
func (j *reporter) sourceRanges(s *cluster.Service) {
	if s.Spec == nil || len(s.Spec.SourceRanges) == 0 || s.Spec.Type == cluster.LoadBalancer || len(s.Spec.Ingress) > 0 {
		return
	}
	j.add(
		ServiceSourceRangesUnused,
		"spec.loadBalancerSourceRanges",
		"set the type to LoadBalancer, or use a NetworkPolicy",
		"the type is %s, so there is no load balancer whose clients the ranges limit: the API server refuses it",
		s.Spec.Type,
	)
}

// mostNodes is the maximum number of nodes that a finding names.
const mostNodes = 5

// localPolicies checks that each node has an endpoint, if a traffic policy is Local. Nodes that
// leave or are not ready do not count, nor do control planes, which rarely run Pods.
func (j *reporter) localPolicies(s *cluster.Service) {
	if s.Spec == nil || s.Headless || !s.Spec.InternalLocal && !s.Spec.ExternalLocal || !j.loaded(cluster.KindNode) {
		return
	}
	served := make(map[string]bool)
	for _, slice := range j.View.SlicesOf(s.Key) {
		places := slice.Places()
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; e.Ready && places != nil && places[i].Node != "" {
				served[places[i].Node] = true
			}
		}
	}
	var lacking []string
	for _, name := range j.indexed().workers {
		if !served[name] {
			lacking = append(lacking, name)
		}
	}
	if len(served) == 0 || len(lacking) == 0 { // no endpoint at all: other rules
		return
	}
	nodes := "node " + lacking[0]
	if len(lacking) > 1 {
		nodes = "nodes " + strings.Join(lacking[:min(len(lacking), mostNodes)], ", ")
	}
	if more := len(lacking) - mostNodes; more > 0 {
		nodes += fmt.Sprintf(" and %d more", more)
	}
	if s.Spec.InternalLocal {
		j.add(ServiceLocalPolicyNodes, "spec.internalTrafficPolicy",
			"set it to Cluster, use trafficDistribution: PreferSameNode, or run a Pod of the Service on each node",
			"no ready endpoint is on %s: connections of Pods there to its cluster IP are dropped", nodes)
	}
	switch {
	case !s.Spec.ExternalLocal:
	case s.Spec.Type == cluster.LoadBalancer && s.Spec.HealthCheckNodePort != 0:
		j.addAs(Note, ServiceLocalPolicyNodes, "spec.externalTrafficPolicy",
			"nothing, if the load balancer checks nodes at healthCheckNodePort; else set it to Cluster",
			"no ready endpoint is on %s: connections from outside that arrive there are dropped", nodes)
	default:
		j.add(ServiceLocalPolicyNodes, "spec.externalTrafficPolicy",
			"set it to Cluster, or have clients connect to nodes with a Pod of the Service only",
			"no ready endpoint is on %s: connections from outside that arrive there are dropped", nodes)
	}
}
