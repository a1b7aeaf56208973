package connection

import (
	"fmt"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
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
		return t.noLocalEndpoints()
	case frontend.OutsideSourceRanges:
		return t.outsideRanges()
	case frontend.Unallocated:
		if t.unserved() != "" {
			return TimedOut
		}
		t.add("unallocated", "use the name of a Service, or the address that kubectl get services prints",
			"%s is in a range of cluster IPs, and no Service has it", t.at.Addr)
		return TimedOut
	}
	return t.policies()
}

// direct returns what a client sees of an address that no service proxy handles.
func (t *try) direct() (outcome string) {
	if outcome := t.unserved(); outcome != "" {
		return outcome
	}
	if t.Client.Place == InPod && t.at.Addr.IsLoopback() {
		u := Use{Node: t.Client.Node}
		if own := t.Client.Subject.Pod; own != nil {
			u.Pod = own.String()
		}
		t.only(u)
		return Connected // the packets do not leave the Pod
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
	if outcome, ok := t.endpoint(); ok {
		return outcome
	}
	if outcome := t.untranslated(); outcome != NotKnown {
		return outcome
	}
	t.add("no-service", "check the address", "no Service, Pod or node of the cluster has the address %s", t.at.Addr)
	return NotKnown
}

// atNode adds what is at a node's own address.
func (t *try) atNode(n *cluster.Node) {
	for _, s := range t.proxy.services {
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

// endpoint returns what a client sees that connects to a Pod, or to another endpoint, itself; ok is false if the
// address is neither's.
func (t *try) endpoint() (outcome string, ok bool) {
	pod := t.podAt()
	if t.named != nil { // it is headless
		if p, lacks := t.lacksPort(); lacks && !t.declares(pod) {
			t.add("headless-port", fmt.Sprintf("connect to port %d", p.Number),
				"Service %s is headless, so no proxy translates port %d: its endpoints have port %d", t.named.Key, t.at.Port,
				p.Number)
			return t.atNoProgram(pod), true
		}
	}
	if pod != nil {
		return t.toPod(pod), true
	}
	for s := range t.View.EndpointSlices() {
		if s.Service == "" {
			continue
		}
		if i := slices.IndexFunc(s.Endpoints, func(e cluster.Endpoint) bool { return e.Addr == t.at.Addr }); i >= 0 {
			if pod := t.View.Pod(cluster.Key{Namespace: s.Namespace, Name: s.Endpoints[i].Pod}); pod != nil {
				return t.toPod(pod), true
			}
			return Connected, true
		}
	}
	return "", false
}

// podAt returns the Pod that has the address; of several the first one by name that has not finished. It is nil if
// there is none.
func (t *try) podAt() (found *cluster.Pod) {
	for p := range t.View.Pods() {
		better := found == nil || found.Finished && !p.Finished || found.Finished == p.Finished && p.Compare(found.Key) < 0
		if better && slices.Contains(p.IPs, t.at.Addr) {
			found = p
		}
	}
	return found
}

// lacksPort reports whether no Service has an endpoint with the target's address and port, and returns a port that the
// endpoint has of the Service which is named.
func (t *try) lacksPort() (own cluster.Port, lacks bool) {
	has := func(p cluster.Port) bool {
		return p.Number == t.at.Port && plan.ProtocolOf(p.Protocol) == t.at.Protocol
	}
	isAt := func(e cluster.Endpoint) bool { return e.Addr == t.at.Addr }
	for _, s := range t.View.SlicesOf(t.named.Key) {
		switch {
		case !slices.ContainsFunc(s.Endpoints, isAt):
		case len(s.Ports) == 0 || slices.ContainsFunc(s.Ports, has):
			return own, false
		default:
			own, lacks = s.Ports[0], true
		}
	}
	if !lacks {
		return own, false
	}
	for s := range t.View.EndpointSlices() {
		if s.Namespace == t.named.Namespace && slices.ContainsFunc(s.Ports, has) && slices.ContainsFunc(s.Endpoints, isAt) {
			return own, false
		}
	}
	return own, lacks
}

// declares reports whether a container of a Pod has the port.
func (t *try) declares(p *cluster.Pod) bool {
	return p != nil && p.Spec != nil && slices.ContainsFunc(p.Spec.Ports, func(port cluster.Port) bool {
		return port.Number == t.at.Port && plan.ProtocolOf(port.Protocol) == t.at.Protocol
	})
}

// atNoProgram returns what a client sees at a port at which no program of a Pod listens: it is refused, unless policies
// drop the packets before. Those are not judged: the client should ask for another port. The Pod may be nil.
func (t *try) atNoProgram(p *cluster.Pod) (outcome string) {
	found := len(t.e.Diagnoses)
	var u Use
	if p != nil {
		u.Pod, u.Node = p.String(), p.Node
	}
	outcome = t.judgeOnly(u)
	t.e.Diagnoses = t.e.Diagnoses[:found]
	t.attempt.Endpoints, t.verdict.Endpoints = []Use{}, nil
	if outcome == Connected {
		return Refused
	}
	return outcome
}

// toPod returns what a client sees that connects to a Pod itself.
func (t *try) toPod(p *cluster.Pod) (outcome string) {
	if p.Finished {
		t.add("pod-finished", "connect to a Pod that runs", "Pod %s has finished", p.Key)
		return TimedOut
	}
	if own := t.Client.Subject.Pod; t.Client.Place == InPod && own != nil && own.Key == p.Key {
		t.only(Use{Pod: p.String(), Node: p.Node})
		return Connected // the packets do not leave the Pod
	}
	return t.judgeOnly(Use{Pod: p.String(), Node: p.Node})
}

// untranslated returns the outcome at an address that no service proxy translates and that is no Pod's:
// policies may deny it, otherwise it is not known.
func (t *try) untranslated() (outcome string) {
	if t.judgeOnly(Use{}) == TimedOut {
		return TimedOut
	}
	return NotKnown
}

// judgeOnly returns whether policies let the client connect to the address itself, which is the only endpoint.
func (t *try) judgeOnly(u Use) (outcome string) {
	t.only(u)
	return t.policies()
}

// only has the address itself be the only endpoint.
func (t *try) only(u Use) {
	to := netip.AddrPortFrom(t.at.Addr, t.at.Port)
	u.Address, u.Used, u.Weight = to.String(), true, plan.DefaultWeight
	t.attempt.Endpoints, t.verdict.Endpoints = []Use{u}, []netip.AddrPort{to}
}
