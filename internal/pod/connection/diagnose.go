package connection

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/policy/semantics"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/plan"
)

// try is a connection to one address, and what the kernel does with it.
type try struct {
	*explainer
	proxy   *proxy
	at      frontend.Address
	verdict *frontend.Verdict
	service *cluster.Service // nil if the address is no Service's
	port    int
	kind    plan.AddressKind
	attempt *Attempt
}

// diagnose returns what the client sees, and adds why if it is not connected.
func (t *try) diagnose() (outcome string) {
	if t.Client.Place == Outside && t.kind == plan.ClusterIP {
		t.add("cluster-ip-outside", t.wayInside(t.service),
			"%s is a cluster IP of Service %s, to which networks outside the cluster have no route", t.at.Addr, t.service.Key)
		return TimedOut
	}
	if t.service != nil && len(t.attempt.Endpoints) == 0 && !t.View.Loaded(cluster.KindEndpointSlice) {
		t.add("endpoints-unread", "allow the account to list endpointslices.discovery.k8s.io, or name a Pod instead",
			"the endpoints of Service %s are not known: its EndpointSlices could not be read", t.service.Key)
		return NotKnown
	}
	switch t.verdict.Reason {
	case frontend.NoService:
		return t.direct()
	case frontend.NoEndpoints:
		t.noEndpoints()
		return Refused
	case frontend.UndefinedPort:
		if !t.leftOut() {
			t.undefinedPort()
		}
		return Refused
	case frontend.NoLocalEndpoints:
		t.noLocalEndpoints()
		return TimedOut
	case frontend.OutsideSourceRanges:
		t.outsideRanges()
		return TimedOut
	case frontend.Unallocated:
		if t.unserved() {
			return TimedOut
		}
		t.add("unallocated", "use the name of a Service, or the address that kubectl get services prints",
			"%s is in a range of cluster IPs, and no Service has it", t.at.Addr)
		return TimedOut
	}
	return t.policies()
}

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

// noEndpoints adds why no endpoint can be used.
func (t *try) noEndpoints() {
	field := fmt.Sprintf("spec.ports[%d].targetPort", t.port)
	findings := t.Linter.CheckService(t.service)
	for _, f := range findings {
		if f.Rule == lint.ServiceTargetPortMissing && f.Field == field {
			t.add(f.Rule, f.Fix, "targetPort %s: %s", t.service.Targets[t.port], f.Message)
			return
		}
	}
	if n := len(t.attempt.Endpoints); n > 0 {
		t.unready()
		return
	}
	found := false
	for _, f := range findings {
		switch f.Rule {
		case lint.ServiceSelectsNoPod, lint.ServiceNoEndpoints, lint.ServiceScaledToZero, lint.ServiceNoReadyEndpoint:
			found = true
			t.add(f.Rule, f.Fix, "%s: %s", f.Object, f.Message)
		}
	}
	if found {
		return
	}
	t.slicesDiffer()
}

// unready adds why the endpoints, of which there are some, are not ready.
func (t *try) unready() {
	e := t.attempt.Endpoints[0]
	what, cure := e.Address, "find out why it is not ready"
	if e.Pod != "" {
		what = "Pod " + e.Pod
		_, name, _ := strings.Cut(e.Pod, "/")
		cure = "find out why: kubectl describe pod " + name + " --namespace " + t.service.Namespace
		if p := t.View.Pod(cluster.Key{Namespace: t.service.Namespace, Name: name}); p != nil {
			what += t.Linter.Unready(p)
		}
	}
	if !strings.Contains(what, ",") {
		what += " is " + e.WhyNot
	}
	t.add("no-ready-endpoint", cure, "no endpoint is ready: %s", what)
}

// slicesDiffer adds why EndpointSlices have nothing for the port or the family.
func (t *try) slicesDiffer() {
	of := t.View.SlicesOf(t.service.Key)
	var names []string
	family := cluster.FamilyOf(t.at.Addr)
	for _, s := range of {
		if s.AddressType != family {
			continue
		}
		for _, p := range s.Ports {
			if name := cmp.Or(p.Name, "one without a name"); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	switch {
	case len(names) > 0:
		t.add("slice-port", "give the port the same name and protocol in the Service and in its EndpointSlices",
			"no EndpointSlice of Service %s has its port %s; they have %s", t.service.Key, portName(t.service.Ports[t.port]),
			strings.Join(names, ", "))
	case slices.ContainsFunc(of, func(s *cluster.EndpointSlice) bool {
		return len(s.Endpoints) > 0 && s.AddressType != family
	}):
		t.add("no-family", "give the Pods addresses of both families, or the Service one family in spec.ipFamilies",
			"Service %s has no endpoint with an %s address", t.service.Key, family)
	case t.Linter.Observed:
		t.add(
			"no-endpoint-slice",
			"check that kube-controller-manager runs",
			"Service %s has no EndpointSlice with endpoints",
			t.service.Key,
		)
	default:
		t.add("no-endpoint-slice", "simulate the control plane (--simulate), or add an EndpointSlice to the manifests",
			"Service %s has no EndpointSlice with endpoints", t.service.Key)
	}
}

// undefinedPort adds which ports the Services with the address have.
func (t *try) undefinedPort() {
	for _, s := range t.proxy.services() {
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

// noLocalEndpoints adds which nodes have endpoints.
func (t *try) noLocalEndpoints() {
	field := "externalTrafficPolicy"
	if t.kind == plan.ClusterIP {
		field = "internalTrafficPolicy"
	}
	cure := "set " + field + " to Cluster, or run a Pod of the Service on each node"
	var nodes []string
	port, family := t.service.Ports[t.port], cluster.FamilyOf(t.at.Addr)
	for _, e := range plan.Endpoints(t.View, &t.proxy.node, t.service.Key, port, family) {
		if e.Cluster == "" && e.Node != "" && !slices.Contains(nodes, e.Node) {
			nodes = append(nodes, e.Node)
		}
	}
	slices.Sort(nodes)
	if len(nodes) > 0 {
		cure += "; nodes with endpoints: " + strings.Join(nodes, ", ")
	}
	for _, e := range t.attempt.Endpoints {
		if e.Node == t.proxy.node.Name && e.Node != "" {
			t.add("no-local-endpoint", cure, "%s is Local and no endpoint on node %s is ready: %s is %s", field, e.Node,
				cmp.Or(e.Pod, e.Address), e.WhyNot)
			return
		}
	}
	if t.proxy.node.Name == "" {
		t.add("no-node", "name the node: --node NAME", "%s is Local, and the node of the connection is not known", field)
		return
	}
	t.add("no-local-endpoint", cure, "%s is Local and no endpoint is on node %s", field, t.proxy.node.Name)
}

// outsideRanges adds the ranges of clients that may connect.
func (t *try) outsideRanges() {
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
		return
	}
	t.add(
		"source-ranges",
		"add "+netip.PrefixFrom(t.Client.Addr, t.Client.Addr.BitLen()).String()+" to loadBalancerSourceRanges",
		"the source %s is not in loadBalancerSourceRanges of Service %s (%s)",
		t.Client.Addr,
		t.service.Key,
		strings.Join(ranges, ", "),
	)
}

// direct returns what a client sees of an address that no service proxy handles.
func (t *try) direct() (outcome string) {
	if t.unserved() {
		return NotKnown
	}
	if t.isResolver() {
		return t.toResolver()
	}
	for n := range t.View.Nodes() {
		if slices.Contains(n.Addresses, t.at.Addr) {
			if outcome := t.untranslated(); outcome != NotKnown {
				return outcome
			}
			t.atNode(n)
			return NotKnown
		}
	}
	for s := range t.View.EndpointSlices() {
		for i := range s.Endpoints {
			if s.Endpoints[i].Addr == t.at.Addr && s.Service != "" {
				return t.endpoint(s, &s.Endpoints[i])
			}
		}
	}
	for p := range t.View.Pods() {
		if slices.Contains(p.IPs, t.at.Addr) {
			return t.toPod(p)
		}
	}
	if outcome := t.untranslated(); outcome != NotKnown {
		return outcome
	}
	t.add("no-service", "check the address", "no Service, Pod or node of the cluster has the address %s", t.at.Addr)
	return NotKnown
}

// unserved adds why a Service that has the address is not served, and reports whether there is
// one.
func (t *try) unserved() bool {
	if t.leftOut() {
		return true
	}
	for _, s := range t.proxy.services() {
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
		default:
			t.add(
				"no-port",
				t.portCure(s),
				"port %d is not a port of Service %s (it has %s)",
				t.at.Port,
				s.Key,
				portsOf(s.Ports),
			)
		}
		return true
	}
	return false
}

// leftOut adds that a limit leaves out the address, or the Service that has it, and reports whether that
// is so.
func (t *try) leftOut() bool {
	for _, s := range t.proxy.services() {
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

// atNode adds what is at a node's own address.
func (t *try) atNode(n *cluster.Node) {
	for _, s := range t.proxy.services() {
		for i, number := range nodePorts(s) {
			switch {
			case number == 0:
			case number == t.at.Port && plan.ProtocolOf(s.Ports[i].Protocol) == t.at.Protocol:
				t.add("node-port-address", "connect to an InternalIP of the node, or set proxy.nodePortAddresses",
					"node port %d of Service %s is not served at %s, which is none of the addresses for node ports of node %s",
					number, s.Key, t.at.Addr, n.Name)
				return
			case s.Ports[i].Number == t.at.Port && t.named == nil:
				t.add("no-node-port", fmt.Sprintf("connect to port %d, if Service %s is meant", number, s.Key),
					"%d is no node port; the node port of Service %s for its port %d is %d", t.at.Port, s.Key, t.at.Port, number)
				return
			}
		}
	}
	t.add(
		"no-node-port",
		"check the port: kubectl get services -A",
		"no Service has node port %d/%s: a program on node %s answers, if any",
		t.at.Port,
		t.at.Protocol,
		n.Name,
	)
}

// endpoint returns what a client sees that connects to an endpoint itself.
func (t *try) endpoint(s *cluster.EndpointSlice, e *cluster.Endpoint) (outcome string) {
	has := func(p cluster.Port) bool {
		return p.Number == t.at.Port && plan.ProtocolOf(p.Protocol) == t.at.Protocol
	}
	if t.named != nil && len(s.Ports) > 0 && !slices.ContainsFunc(s.Ports, has) {
		p := s.Ports[0]
		t.add(
			"headless-port",
			fmt.Sprintf("connect to port %d", p.Number),
			"Service %s is headless, so no proxy translates port %d: its endpoints have port %d",
			t.named.Key,
			t.at.Port,
			p.Number,
		)
		return Refused
	}
	if p := t.View.Pod(cluster.Key{Namespace: s.Namespace, Name: e.Pod}); p != nil {
		return t.toPod(p)
	}
	return Connected
}

// toPod returns what a client sees that connects to a Pod itself.
func (t *try) toPod(p *cluster.Pod) (outcome string) {
	if p.Finished {
		t.add("pod-finished", "connect to a Pod that runs", "Pod %s has finished", p.Key)
		return TimedOut
	}
	to := netip.AddrPortFrom(t.at.Addr, t.at.Port)
	t.attempt.Endpoints = []Use{{Address: to.String(), Pod: p.Key.String(), Node: p.Node, Used: true, Weight: plan.DefaultWeight}}
	t.verdict.Endpoints = []netip.AddrPort{to}
	return t.policies()
}

// policies returns whether policies let the client connect to one of the endpoints, and adds why not.
func (t *try) policies() (outcome string) {
	from := t.client(t.at.Addr)
	if from == nil || !t.View.Loaded(cluster.KindNetworkPolicy) {
		return Connected
	}
	var denied *Use
	unknown := false
	for _, e := range t.verdict.Endpoints {
		i := slices.IndexFunc(t.attempt.Endpoints, func(u Use) bool { return u.Address == e.String() })
		if i < 0 || t.verdict.Chosen.IsValid() && e != t.verdict.Chosen {
			continue
		}
		u := &t.attempt.Endpoints[i]
		to := narrowed(semantics.EndAt(t.View, e.Addr()), e.Addr())
		to.Names = t.names()
		f := &flow{from: from, to: to, source: t.source(from, to, e), port: portOf(t.at.Protocol, e.Port())}
		if e.Addr() != t.at.Addr {
			f.virtual = []netip.Addr{t.at.Addr}
		}
		u.Egress, u.Ingress = t.judge(f)
		switch {
		case t.dependsOnAddress(u):
			unknown = true
		case u.verdict() != Denied:
			outcome = Connected
		case denied == nil:
			denied = u
		}
	}
	switch {
	case unknown:
		for i := range t.attempt.Endpoints {
			t.attempt.Endpoints[i].Egress, t.attempt.Endpoints[i].Ingress = nil, nil
		}
		return NotKnown
	case denied == nil || outcome == Connected:
		return Connected
	}
	t.denied(denied)
	return TimedOut
}

// portOf returns a port as policies have it.
func portOf(p frontend.Protocol, number uint16) cluster.Port {
	return cluster.Port{Protocol: cluster.Protocol(strings.ToUpper(p.String())), Number: number}
}

// source returns the client as an endpoint sees it: an endpoint on another node than the one that
// handles the connection sees that node, if it masquerades the client.
func (t *try) source(from, to *semantics.End, e netip.AddrPort) *semantics.End {
	node := &t.proxy.node
	if t.verdict.MasqueradeTo(e) == frontend.NotMasqueraded || node.Name == "" || to.Node == node.Name {
		return from
	}
	seen := &semantics.End{Node: node.Name}
	for _, a := range node.Addresses {
		if cluster.FamilyOf(a) == cluster.FamilyOf(e.Addr()) && !a.IsLoopback() {
			seen.Addrs = append(seen.Addrs, a)
		}
	}
	return seen
}

// denied adds why policies deny the client to connect to an endpoint.
func (x *explainer) denied(u *Use) {
	by := u.Ingress
	if u.Egress != nil && !u.Egress.Allowed {
		by = u.Egress
	}
	if by.node != "" {
		x.add("no-pod", by.Cure, "%s: the node drops packets to and from it", by.Why)
		return
	}
	if strings.HasPrefix(by.Policy, "Cluster") {
		x.add(
			"cluster-network-policy",
			by.Cure,
			"%s of %s denies %s to connect to %s",
			by.Rule,
			by.Policy,
			&x.Client,
			u.Address,
		)
		return
	}
	x.add("network-policy", by.Cure, "%s does not allow %s to connect to %s", by.Policy, &x.Client, u.Address)
}

// untranslated returns the outcome at an address that no service proxy translates and that is no Pod's:
// policies may deny it, otherwise it is not known.
func (t *try) untranslated() (outcome string) {
	to := netip.AddrPortFrom(t.at.Addr, t.at.Port)
	t.attempt.Endpoints = []Use{{Address: to.String(), Used: true, Weight: plan.DefaultWeight}}
	t.verdict.Endpoints = []netip.AddrPort{to}
	if t.policies() == TimedOut {
		return TimedOut
	}
	return NotKnown
}

// wayInside returns how clients outside the cluster reach a Service.
func (x *explainer) wayInside(s *cluster.Service) string {
	if addrs := externalAddresses(s); len(addrs) > 0 && len(s.Ports) > 0 {
		return "connect to " + netip.AddrPortFrom(addrs[0], s.Ports[0].Number).String()
	}
	for i, number := range nodePorts(s) {
		if of := x.proxy(x.Client.Node).node.NodePorts; number != 0 && len(of) > 0 {
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
		text := strconv.Itoa(int(p.Number))
		if p.Protocol != cluster.TCP {
			text += "/" + strings.ToLower(string(p.Protocol))
		}
		all = append(all, text)
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

func portName(p cluster.Port) string { return cmp.Or(p.Name, strconv.Itoa(int(p.Number))) }

func nodePorts(s *cluster.Service) []uint16 {
	if s.Spec == nil {
		return nil
	}
	return s.Spec.NodePorts
}

// serviceKey returns the Service that SERVICE, which is in the given namespace, or SERVICE.NAMESPACE names.
func serviceKey(host, namespace string) cluster.Key {
	name, in, _ := strings.Cut(strings.TrimSuffix(host, "."), ".")
	in, _, _ = strings.Cut(in, ".")
	return cluster.Key{Namespace: cmp.Or(in, namespace), Name: name}
}
