package frontend

import (
	"net/netip"
	"slices"
	"strings"
)

// Node is what the way of a packet through a node depends on besides the State.
type Node struct {
	// Addresses are the node's own. Loopback addresses always are.
	Addresses []netip.Addr
	// MasqueradeAll masquerades all connections to cluster IPs.
	MasqueradeAll bool
	// Pods recognizes connections from Pods on the node. Those to cluster IPs from other
	// sources are masqueraded.
	Pods Pods
}

// Pods recognizes connections from Pods on the node: by their source addresses, or by the
// interface that their packets arrive at. At most one field is set. The zero Pods recognizes
// none, and nothing is masqueraded for its source.
type Pods struct {
	CIDRs           []netip.Prefix
	Interface       string // such as cni0
	InterfacePrefix string // such as cali
}

// recognition is whether a connection is from a Pod on the node.
type recognition uint8

const (
	undetected recognition = iota // for lack of a Pods for its family
	fromPod
	fromOther
)

// recognize reports whether c is from a Pod.
func (p *Pods) recognize(c *Connection) recognition {
	of := func(yes bool) recognition {
		if yes {
			return fromPod
		}
		return fromOther
	}
	switch {
	case p.Interface != "":
		return of(c.Interface == p.Interface)
	case p.InterfacePrefix != "":
		return of(strings.HasPrefix(c.Interface, p.InterfacePrefix))
	}
	found := undetected
	for _, cidr := range p.CIDRs {
		if cidr.Addr().Is4() != c.Source.Is4() {
			continue
		}
		if cidr.Contains(c.Source) {
			return fromPod
		}
		found = fromOther
	}
	return found
}

// Connection is a connection by its first packet.
type Connection struct {
	Source netip.Addr
	// SourcePort is 0 if it is not known.
	SourcePort uint16
	To         Address
	// Interface is where the packet arrives; empty for connections from the node itself.
	Interface string
}

// Action is what a node does with a connection.
type Action uint8

// The actions.
const (
	Pass    Action = iota // it is not for a Service
	DNAT                  // its destination becomes one of the endpoints
	Refuse                // a TCP reset or ICMP port unreachable
	Discard               // nothing
)

// String returns the action in a word.
func (a Action) String() string {
	return [...]string{"pass", "forward", "reject", "drop"}[a]
}

// Reason is why an Action is taken.
type Reason string

// The reasons.
const (
	// NoService: the destination is no Service's, for Pass.
	NoService Reason = "no-service"

	// AllClients: the endpoints are for all clients, for DNAT.
	AllClients Reason = "all-clients"
	// OutsideClient: the endpoints on the node are for clients outside.
	OutsideClient Reason = "outside-client"
	// PodClient: a Pod on the node may use endpoints on all nodes, in spite of
	// externalTrafficPolicy Local.
	PodClient Reason = "pod-client"
	// NodeClient: so may the node itself.
	NodeClient Reason = "node-client"

	// NoEndpoints: no endpoint can be used, for Refuse.
	NoEndpoints Reason = "no-endpoints"
	// UndefinedPort: the Services with this cluster IP have no such port and protocol.
	UndefinedPort Reason = "undefined-port"

	// NoLocalEndpoints: no endpoint on the node can be used, and the traffic policy is
	// Local, for Discard.
	NoLocalEndpoints Reason = "no-local-endpoints"
	// OutsideSourceRanges: loadBalancerSourceRanges exclude the client.
	OutsideSourceRanges Reason = "outside-source-ranges"
	// Unallocated: the destination is in a range of cluster IPs, but no Service has it.
	Unallocated Reason = "unallocated"
)

// Masquerade is why the source of a connection becomes an address of the node.
type Masquerade string

// The reasons to masquerade.
const (
	// NotMasqueraded keeps the source.
	NotMasqueraded Masquerade = ""
	// MasqueradedAll: Node.MasqueradeAll is set.
	MasqueradedAll Masquerade = "masquerade-all"
	// SourceNotPod: the client of a cluster IP is not a Pod on the node.
	SourceNotPod Masquerade = "source-not-a-pod"
	// ExternalTraffic: replies must return through the node (externalTrafficPolicy Cluster).
	ExternalTraffic Masquerade = "external-traffic"
	// NodeItself: a client on the node may have the destination as its source.
	NodeItself Masquerade = "node-client"
	// Hairpin: an endpoint connects to itself.
	Hairpin Masquerade = "hairpin"
)

// Verdict is what a node does with a connection. The zero Verdict lets it pass.
type Verdict struct {
	Action Action
	Reason Reason
	// Frontend is the one at the destination, or nil.
	Frontend *Frontend
	// Endpoints are those of which one is chosen; shared with the Frontend.
	Endpoints []netip.AddrPort
	// Chosen is the one that is chosen by hash; not valid if the choice is random, or depends on
	// a port of the client that is not known.
	Chosen netip.AddrPort
	// Masquerade holds whichever endpoint is chosen.
	Masquerade Masquerade
	// Hairpins are those of Endpoints that are the client itself.
	Hairpins []netip.AddrPort
}

// MasqueradeTo returns why the connection is masqueraded if e is chosen.
func (v *Verdict) MasqueradeTo(e netip.AddrPort) Masquerade {
	if v.Masquerade == NotMasqueraded && slices.Contains(v.Hairpins, e) {
		return Hairpin
	}
	return v.Masquerade
}

// Evaluator evaluates connections as the kernel does that holds a State. Its methods are not
// for several goroutines, except Forward.
type Evaluator struct {
	node      Node
	addresses map[netip.Addr]struct{}
	frontends map[Address]*Frontend
	// clusterIPs is how many frontends of policy Plain an address has.
	clusterIPs map[netip.Addr]int
	hairpins   map[netip.Addr]struct{}
	cidrs      []netip.Prefix
}

// NewEvaluator returns an Evaluator of s on a node.
func NewEvaluator(node Node, s *State) *Evaluator {
	e := &Evaluator{
		node:       node,
		addresses:  make(map[netip.Addr]struct{}, len(node.Addresses)),
		frontends:  make(map[Address]*Frontend, len(s.Frontends)),
		clusterIPs: make(map[netip.Addr]int),
		hairpins:   make(map[netip.Addr]struct{}, len(s.Hairpins)),
		cidrs:      s.ServiceCIDRs,
	}
	for _, a := range node.Addresses {
		e.addresses[a] = struct{}{}
	}
	for _, f := range s.Frontends {
		e.put(f)
	}
	for _, a := range s.Hairpins {
		e.hairpins[a] = struct{}{}
	}
	return e
}

// Apply changes the State that is evaluated.
func (e *Evaluator) Apply(c *Changes) {
	for _, a := range c.Delete {
		e.delete(a)
	}
	for _, f := range c.Put {
		e.delete(f.Address)
		e.put(f)
	}
	for a, there := range c.Hairpins {
		if there {
			e.hairpins[a] = struct{}{}
		} else {
			delete(e.hairpins, a)
		}
	}
	if c.ServiceCIDRs != nil {
		e.cidrs = c.ServiceCIDRs
	}
}

func (e *Evaluator) put(f *Frontend) {
	e.frontends[f.Address] = f
	if f.Policy == Plain {
		e.clusterIPs[f.Addr]++
	}
}

func (e *Evaluator) delete(at Address) {
	f := e.frontends[at]
	if f == nil {
		return
	}
	delete(e.frontends, at)
	if f.Policy != Plain {
		return
	}
	if e.clusterIPs[f.Addr]--; e.clusterIPs[f.Addr] == 0 {
		delete(e.clusterIPs, f.Addr)
	}
}

// State returns the State that is evaluated, sorted.
func (e *Evaluator) State() *State {
	s := &State{ServiceCIDRs: e.cidrs}
	for _, f := range e.frontends {
		s.Frontends = append(s.Frontends, f)
	}
	slices.SortFunc(s.Frontends, func(a, b *Frontend) int { return a.Compare(b.Address) })
	for a := range e.hairpins {
		s.Hairpins = append(s.Hairpins, a)
	}
	slices.SortFunc(s.Hairpins, netip.Addr.Compare)
	return s
}

// Forward returns what the node does with a connection.
func (e *Evaluator) Forward(c Connection) Verdict {
	f := e.frontends[c.To]
	switch {
	case f != nil:
	case e.clusterIPs[c.To.Addr] > 0:
		return Verdict{Action: Refuse, Reason: UndefinedPort}
	case e.unallocated(c.To.Addr):
		return Verdict{Action: Discard, Reason: Unallocated}
	default:
		return Verdict{Action: Pass, Reason: NoService}
	}
	if f.Sources != nil && !slices.ContainsFunc(f.Sources, func(p netip.Prefix) bool { return p.Contains(c.Source) }) {
		return Verdict{Action: Discard, Reason: OutsideSourceRanges, Frontend: f}
	}
	if len(f.Endpoints) == 0 {
		if f.Empty == Drop {
			return Verdict{Action: Discard, Reason: NoLocalEndpoints, Frontend: f}
		}
		return Verdict{Action: Refuse, Reason: NoEndpoints, Frontend: f}
	}
	v := e.pick(f, &c)
	if v.Action != DNAT {
		return v
	}
	if m := e.masqueradeClusterIP(&c); m != NotMasqueraded {
		v.Masquerade = m
	}
	v.Hairpins = e.hairpinsOf(&c, v.Endpoints)
	if v.Reason == OutsideClient {
		v.Chosen = f.chosen(&c, f.LocalSlots())
	} else {
		v.Chosen = f.chosen(&c, f.Slots())
	}
	return v
}

// pick returns the endpoints for a client, by the policy of f.
func (e *Evaluator) pick(f *Frontend, c *Connection) Verdict {
	v := Verdict{Action: DNAT, Reason: AllClients, Frontend: f, Endpoints: f.Endpoints}
	switch {
	case f.Policy == Plain:
	case f.Policy == External:
		v.Masquerade = ExternalTraffic
	case e.node.Pods.recognize(c) == fromPod:
		v.Reason = PodClient
	case e.local(c.Source):
		v.Reason, v.Masquerade = NodeClient, NodeItself
	case len(f.Local) == 0:
		return Verdict{Action: Discard, Reason: NoLocalEndpoints, Frontend: f}
	default:
		v.Reason, v.Endpoints = OutsideClient, f.Local
	}
	return v
}

// masqueradeClusterIP returns why a connection to a cluster IP is masqueraded. It depends on
// the destination's address alone: an address that is also another Service's external one is
// a cluster IP for all its ports.
func (e *Evaluator) masqueradeClusterIP(c *Connection) Masquerade {
	switch {
	case e.clusterIPs[c.To.Addr] == 0:
		return NotMasqueraded
	case e.node.MasqueradeAll:
		return MasqueradedAll
	case e.node.Pods.recognize(c) == fromOther:
		return SourceNotPod
	}
	return NotMasqueraded
}

// hairpinsOf returns the endpoints, which are sorted, that are the client itself.
func (e *Evaluator) hairpinsOf(c *Connection, endpoints []netip.AddrPort) []netip.AddrPort {
	if _, ok := e.hairpins[c.Source]; !ok {
		return nil
	}
	first, _ := slices.BinarySearchFunc(endpoints, c.Source, func(p netip.AddrPort, a netip.Addr) int {
		return p.Addr().Compare(a)
	})
	end := first
	for end < len(endpoints) && endpoints[end].Addr() == c.Source {
		end++
	}
	return endpoints[first:end:end]
}

// unallocated reports whether an address is in a range of cluster IPs, and not on the node.
func (e *Evaluator) unallocated(a netip.Addr) bool {
	return slices.ContainsFunc(e.cidrs, func(p netip.Prefix) bool { return p.Contains(a) }) && !e.local(a)
}

func (e *Evaluator) local(a netip.Addr) bool {
	_, ok := e.addresses[a]
	return ok || a.IsLoopback()
}
