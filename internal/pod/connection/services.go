package connection

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/plan"
)

// taken adds that another Service has the address of the one that is meant, and reports whether
// that is so.
func (t *try) taken() bool {
	if t.named == nil || t.service == nil || t.named.Key == t.service.Key {
		return false
	}
	t.add("address-taken", addressCure,
		"Service %s, %s, has the address %s, too: connections go to it, not to Service %s",
		t.service.Key, right(t.at, t.service, t.named), t.at, t.named.Key)
	return true
}

// shared adds which Services have the address besides the one that has its connections, and
// reports whether there are such.
func (t *try) shared() bool {
	others := t.proxy.rivals(t.at)
	if t.service == nil || len(others) == 0 {
		return false
	}
	var names []string
	for _, s := range others {
		names = append(names, s.String())
	}
	t.add("address-shared", addressCure,
		"Services %s and %s have the address %s: connections go to Service %s, %s",
		t.service.Key, strings.Join(names, ", "), t.at, t.service.Key, right(t.at, t.service, others...))
	return true
}

// right says why a Service has an address that others want, see plan.Compiler.
func right(at frontend.Address, has *cluster.Service, others ...*cluster.Service) string {
	isClusterIP := func(s *cluster.Service) bool { return slices.Contains(s.ClusterIPs, at.Addr) }
	if isClusterIP(has) && !slices.ContainsFunc(others, isClusterIP) {
		return "whose cluster IP it is"
	}
	return "which is older"
}

const addressCure = "give one of the Services another address"

// undefinedPort adds which ports the Services with the address have.
func (t *try) undefinedPort() {
	for _, s := range t.proxy.services {
		if !slices.Contains(s.ClusterIPs, t.at.Addr) {
			continue
		}
		for _, p := range s.Ports {
			if p.Number == t.at.Port {
				t.add(
					"other-protocol",
					"connect to "+Target{t.Target.Host, t.Target.Port, plan.ProtocolOf(p.Protocol)}.String(),
					"port %d of Service %s has protocol %s, not %s",
					p.Number,
					s.Key,
					p.Protocol,
					strings.ToUpper(t.at.Protocol.String()),
				)
				return
			}
		}
		for i, number := range nodePorts(s) {
			if number == t.at.Port {
				t.add("node-port", fmt.Sprintf("connect to port %d", s.Ports[i].Number),
					"%d is the node port of Service %s; at its cluster IP the port is %d", number, s.Key, s.Ports[i].Number)
				return
			}
		}
		for i, target := range s.Targets {
			if target == strconv.Itoa(int(t.at.Port)) {
				t.add("target-port", fmt.Sprintf("connect to port %d", s.Ports[i].Number),
					"%s is the target port of Service %s, at which Pods listen; its port is %d", target, s.Key, s.Ports[i].Number)
				return
			}
		}
		t.add("no-port", t.portCure(s), "port %d is not a port of Service %s (it has %s)", t.at.Port, s.Key, portsOf(s.Ports))
		return
	}
}

// outsideRanges adds the ranges of clients that may connect, and returns what the client sees.
func (t *try) outsideRanges() (outcome string) {
	var ranges []string
	for _, p := range t.verdict.Frontend.Sources {
		ranges = append(ranges, p.String())
	}
	if !t.Client.Addr.IsValid() {
		t.add(
			"source-ranges",
			"name the client's address instead of outside, such as --from "+t.verdict.Frontend.Sources[0].Addr().String(),
			"loadBalancerSourceRanges of Service %s limit clients to %s, and the client's address is not known",
			t.service.Key,
			strings.Join(ranges, ", "),
		)
		return NotKnown
	}
	t.add(
		"source-ranges",
		"add "+netip.PrefixFrom(t.Client.Addr, t.Client.Addr.BitLen()).String()+" to loadBalancerSourceRanges",
		"the source %s is not in loadBalancerSourceRanges of Service %s (%s)",
		t.Client.Addr,
		t.service.Key,
		strings.Join(ranges, ", "),
	)
	return TimedOut
}

// unserved adds why a Service that has the address is not served at it, and returns what the client sees; empty if no
// Service has the address.
func (t *try) unserved() (outcome string) {
	if t.leftOut() {
		return NotKnown
	}
	for _, s := range t.proxy.services {
		if s.Spec == nil {
			continue
		}
		balancer := slices.ContainsFunc(s.Spec.Ingress, func(i cluster.IngressIP) bool { return i.Addr == t.at.Addr })
		switch {
		case !balancer && !slices.Contains(s.ClusterIPs, t.at.Addr) && !slices.Contains(s.Spec.ExternalIPs, t.at.Addr):
			continue
		case s.Spec.ForOtherProxy():
			t.add("other-proxy", "ask the proxy that the label names, or remove the label",
				"Service %s has the label %s: another proxy serves it", s.Key, cluster.LabelProxyName)
		case balancer && slices.Contains(s.Spec.Ingress, cluster.IngressIP{Addr: t.at.Addr, Proxy: true}):
			t.add(
				"ip-mode-proxy",
				"connect to "+t.at.String()+" to see what the load balancer does",
				"%s is a load balancer of Service %s with ipMode Proxy: packets go to it, and no node handles them",
				t.at.Addr,
				s.Key,
			)
		case len(s.ClusterIPs) == 0:
			t.add("no-cluster-ip", "simulate the control plane (--simulate), or set clusterIP in the manifests",
				"Service %s has no cluster IP, without which no node serves its other addresses", s.Key)
		default:
			t.add(
				"no-port",
				t.portCure(s),
				"port %d is not a port of Service %s (it has %s)",
				t.at.Port,
				s.Key,
				portsOf(s.Ports),
			)
			return TimedOut
		}
		return NotKnown
	}
	return ""
}

// leftOut adds that a limit leaves out the address, or the Service that has it, and reports whether that
// is so.
func (t *try) leftOut() bool {
	for _, s := range t.proxy.services {
		_, kind, ok := plan.Describe(s, t.at)
		if !ok || kind == plan.NodePort && !slices.Contains(t.proxy.node.NodePorts, t.at.Addr) {
			continue
		}
		verdicts := t.proxy.compiler.Service(s.Key).Verdicts
		switch {
		case has(verdicts, plan.NoRoom):
			t.add(
				"no-room",
				"remove large Services, or raise the proxy's memory limit",
				"Service %s is not served: older Services of the cluster, or of its namespace, have all that the proxy holds",
				s.Key,
			)
		case has(verdicts, plan.TooLarge):
			t.add("too-large", "divide the Service",
				"Service %s has too many ports, addresses and endpoints: %s is left out", s.Key, t.at)
		default:
			continue
		}
		return true
	}
	return false
}

// wayInside returns how clients outside the cluster reach a Service.
func (x *explainer) wayInside(s *cluster.Service) string {
	if addrs := externalAddresses(s); len(addrs) > 0 && len(s.Ports) > 0 {
		return "connect to " + netip.AddrPortFrom(addrs[0], s.Ports[0].Number).String()
	}
	for i, number := range nodePorts(s) {
		if of := x.Settings.nodeOf(x.View, x.Client.Node).NodePorts; number != 0 && len(of) > 0 {
			return fmt.Sprintf("connect to %s, the node port for port %d", netip.AddrPortFrom(of[0], number), s.Ports[i].Number)
		}
	}
	return "set its type to LoadBalancer or NodePort, or use kubectl port-forward --namespace " + s.Namespace +
		" service/" + s.Name
}

// portCure returns how a client reaches a port that a Service has.
func (x *explainer) portCure(s *cluster.Service) string {
	if len(s.Ports) == 0 {
		return "give the Service a port"
	}
	if len(s.Ports) == 1 {
		return fmt.Sprintf("connect to port %d, or add the port to the Service", s.Ports[0].Number)
	}
	return "connect to one of these, or add the port to the Service"
}

// portsOf lists the ports of a Service.
func portsOf(ports []cluster.Port) string {
	var all []string
	for _, p := range ports {
		all = append(all, numberOf(p))
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

// namedPortsOf lists the ports of a Service with their names: "80 http, 53/udp dns".
func namedPortsOf(ports []cluster.Port) string {
	var all []string
	for _, p := range ports {
		all = append(all, strings.TrimSpace(numberOf(p)+" "+p.Name))
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

// numberOf is the number of a port as in "80" or "53/udp".
func numberOf(p cluster.Port) string {
	text := strconv.Itoa(int(p.Number))
	if p.Protocol != cluster.TCP {
		text += "/" + strings.ToLower(string(p.Protocol))
	}
	return text
}

func portName(p cluster.Port) string { return cmp.Or(p.Name, strconv.Itoa(int(p.Number))) }

func nodePorts(s *cluster.Service) []uint16 {
	if s.Spec == nil {
		return nil
	}
	return s.Spec.NodePorts
}

// ServiceNamed returns the Service that the host of a URL or a target names for a client that is no Pod, whose resolver
// does not ask the cluster's DNS: SERVICE, which is in the given namespace, SERVICE.NAMESPACE, or the name that a Pod
// looks up. It returns nil if there is none.
func (w *World) ServiceNamed(host, namespace string) *cluster.Service {
	if key, ok := w.serviceNamed(host, namespace); ok {
		return w.View.Service(key)
	}
	return nil
}

// serviceNamed returns the key of the Service that a host names; it need not exist.
func (w *World) serviceNamed(host, namespace string) (key cluster.Key, ok bool) {
	if key, ok := explain.ServiceOf(host, w.Linter.Domains); ok {
		return key, true
	}
	short := strings.TrimSuffix(strings.TrimSuffix(host, "."), ".svc")
	return serviceKey(short, namespace), strings.Count(short, ".") < 2
}

// serviceKey returns the Service that SERVICE, which is in the given namespace, or SERVICE.NAMESPACE names.
func serviceKey(host, namespace string) cluster.Key {
	name, in, _ := strings.Cut(strings.TrimSuffix(host, "."), ".")
	in, _, _ = strings.Cut(in, ".")
	return cluster.Key{Namespace: cmp.Or(in, namespace), Name: name}
}
