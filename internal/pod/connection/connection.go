package connection

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/policy/semantics"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/plan"
)

// Place is where a client is.
type Place uint8

// The places.
const (
	InPod Place = iota
	OnNode
	Outside
	// AtPodAddress is a Pod of which only the address is known, such as where Pods may not be listed.
	AtPodAddress
)

// Client is what opens a connection.
type Client struct {
	Place   Place
	Subject dnsconfig.Subject // of place InPod
	// Addr is its address; not valid if it is not known.
	Addr netip.Addr
	// Node is the node that the client is on, or at which its packets arrive.
	Node string
}

// String returns the client as in "pod shop/web-0" or "node n1".
func (c *Client) String() string {
	switch {
	case c.Place == InPod:
		return c.Subject.String()
	case c.Place == OnNode && c.Node == "": // no Node is known
		return "a node"
	case c.Place == OnNode:
		return "node " + c.Node
	case c.Place == AtPodAddress:
		return "a pod at " + c.Addr.String()
	case c.Addr.IsValid():
		return c.Addr.String() + ", outside the cluster"
	}
	return "a client outside the cluster"
}

// Target is what a client connects to.
type Target struct {
	Host     string // a name or an address
	Port     string // a number, or the name of a Service's port; for Served.Addresses, empty is all
	Protocol frontend.Protocol
}

// String returns the target as in "web:80/tcp".
func (t Target) String() string {
	if t.Port == "" {
		return t.Host
	}
	return net.JoinHostPort(t.Host, t.Port) + "/" + t.Protocol.String()
}

// World is a cluster in which connections are explained. It is valid as long as the view.
type World struct {
	View     *cluster.View
	Linter   *lint.Linter
	Settings *Settings
	proxies  map[handled]*proxy
	claims   *claims // nil before it is used
	// policies are those of the cluster; nil before they are used.
	policies *semantics.Set
	ends     *semantics.Ends // nil before it is used
}

// NewWorld returns the World of a model.
func NewWorld(v *cluster.View, l *lint.Linter, s *Settings) *World {
	return &World{View: v, Linter: l, Settings: s, proxies: make(map[handled]*proxy)}
}

// mostProxies is how many proxies a World keeps at most, to be used again.
const mostProxies = 1000

// handled is what a node's service proxy handles: an address; not valid for all addresses.
type handled struct {
	node string
	at   netip.Addr
}

// proxy returns the service proxy of a node. Only the Services that may have an address are compiled for it, unless the
// proxy may have no room for all Services of the cluster: then it depends on all which are served.
func (w *World) proxy(node string, at netip.Addr) *proxy {
	if w.claims == nil {
		w.claims = newClaims(w.View)
	}
	if !w.claims.fit {
		at = netip.Addr{}
	}
	of := handled{node, at}
	if len(w.proxies) > mostProxies {
		clear(w.proxies)
	}
	switch {
	case w.proxies[of] != nil:
	case w.claims.fit:
		w.proxies[of] = newProxyAt(w.View, w.Settings, node, w.claims.of(at))
	default:
		w.proxies[of] = newProxy(w.View, w.Settings, node)
	}
	return w.proxies[of]
}

// Request is the input of Explain.
type Request struct {
	*World
	Client Client
	Target Target
	// Addrs are the addresses that the client tries, instead of those of the target's host; none are the host's.
	Addrs []netip.Addr
	// Namespace is that of a Service that the target names without one, for clients that are no Pods.
	Namespace string
	// DNS is how the host resolves in the Pod; nil for addresses, and for clients that are no Pods.
	DNS *explain.Explanation
	// To is the Pod or workload that is connected to, instead of the target's host.
	To *dnsconfig.Subject
	// Kernel reads what the kernel has; nil does not.
	Kernel *KernelReader
	// Judge asks the kernel what it lets pass; nil does not.
	Judge *KernelJudge
}

// The outcomes of connections, as clients see them.
const (
	Connected = "connected"
	Refused   = "refused"
	TimedOut  = "timeout"
	NotKnown  = "not known"
	// NoNumber is that of a name that no port of the Service has: the client sends nothing.
	NoNumber = "no connection: the port's name has no number"
)

// Explanation says what a client sees of a connection, and why.
type Explanation struct {
	Target   string               `json:"target"`
	From     string               `json:"from"`
	DNS      *explain.Explanation `json:"dns,omitempty"`
	Attempts []Attempt            `json:"attempts"`
	// Verdict is what policies decide on the endpoints that the client may get: Allowed, Denied or Some;
	// empty if there is nothing to decide on.
	Verdict string `json:"verdict,omitempty"`
	// Note is what the verdict assumes; empty if nothing.
	Note string `json:"note,omitempty"`
	// Outcome is that of the first attempt that connects, else of the first.
	Outcome string `json:"outcome"`
	// Diagnoses are those of the layers, of which the JSON has them.
	Diagnoses []explain.Diagnosis `json:"-"`
	flawed    bool                // see Sound
}

// Attempt is a connection to one address.
type Attempt struct {
	Address string `json:"address"`
	// Addr is the IP address; not valid if it is not known.
	Addr netip.Addr `json:"-"`
	// Node is the node whose service proxy handles it.
	Node    string `json:"node,omitempty"`
	Service string `json:"service,omitempty"`
	Port    string `json:"port,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Policy  string `json:"policy,omitempty"`
	Outcome string `json:"outcome"`
	// Choice is how one of the endpoints is chosen, if not at random, and Chosen the one that the
	// client gets; empty if that depends on its port or address, which is not known.
	Choice string `json:"choice,omitempty"`
	Chosen string `json:"chosen,omitempty"`
	// Masqueraded is why endpoints see an address of the node, not the client's.
	Masqueraded string `json:"masqueraded,omitempty"`
	Endpoints   []Use  `json:"endpoints"`
	// Kernel is what the kernel has; nil if it was not to be read.
	Kernel *Kernel `json:"kernel,omitempty"`
}

// Use is an endpoint of an Attempt.
type Use struct {
	Address string `json:"address"`
	Pod     string `json:"pod,omitempty"` // NAMESPACE/NAME
	Node    string `json:"node,omitempty"`
	Used    bool   `json:"used"`
	WhyNot  string `json:"whyNot,omitempty"`
	// Weight is how many connections it gets, against the others; plan.DefaultWeight is usual.
	Weight int `json:"weight"`
	// Egress and Ingress are what policies of the client and of the endpoint decide; nil for an end that
	// is no Pod, and for endpoints that the client does not get.
	Egress  *Ruling `json:"egress,omitempty"`
	Ingress *Ruling `json:"ingress,omitempty"`
}

// Connects reports whether the client is connected.
func (e *Explanation) Connects() bool { return e.Outcome == Connected }

// Leaves reports whether all addresses are outside the cluster and no policy denies the connection: what answers there
// is not known.
func (e *Explanation) Leaves() bool {
	return e.Outcome == NotKnown && len(e.Attempts) > 0 && (e.Verdict == "" || e.Verdict == Allowed) &&
		!slices.ContainsFunc(e.Diagnoses, func(d explain.Diagnosis) bool { return d.Rule != "no-service" })
}

// Sound reports whether the client is connected and nothing is wrong with the addresses: no two
// Services have one, and the kernel does not differ from the model.
func (e *Explanation) Sound() bool { return e.Connects() && !e.flawed }

// Explain evaluates a connection to each address of the target, as clients try them, and says
// why it fails.
func Explain(r *Request) *Explanation {
	x := &explainer{
		Request: r,
		e: &Explanation{
			Target:    r.Target.String(),
			From:      r.Client.String(),
			DNS:       r.DNS,
			Attempts:  []Attempt{},
			Diagnoses: []explain.Diagnosis{},
		},
	}
	if r.DNS != nil && !r.DNS.Found() {
		x.e.Outcome, x.e.Diagnoses = r.DNS.Outcome, slices.Clone(r.DNS.Diagnoses)
		x.unresolved()
		return x.e
	}
	if r.To != nil {
		x.toSubject()
	} else {
		addrs := x.addresses()
		port, ok := x.port()
		if len(x.e.Diagnoses) > 0 || !ok {
			x.unresolved()
			return x.e
		}
		for _, addr := range addrs {
			x.attempt(frontend.Address{Addr: addr, Protocol: r.Target.Protocol, Port: port})
		}
	}
	x.e.Verdict = x.e.verdict()
	for _, a := range x.e.Attempts {
		if x.e.Outcome == "" || a.Outcome == Connected {
			x.e.Outcome = a.Outcome
		}
	}
	if len(x.e.Attempts) == 0 && x.e.Outcome == "" {
		x.e.Outcome = NotKnown
	}
	return x.e
}

// explainer has the state of Explain.
type explainer struct {
	*Request
	e     *Explanation
	named *cluster.Service // that the host's name stands for; nil if none
}

func (x *explainer) add(rule, cure, format string, args ...any) {
	d := explain.Diagnosis{Rule: rule, Why: fmt.Sprintf(format, args...), Cure: cure}
	if !slices.Contains(x.e.Diagnoses, d) {
		x.e.Diagnoses = append(x.e.Diagnoses, d)
	}
}

// addresses returns the addresses of the host, and finds the Service that its name stands for.
func (x *explainer) addresses() (addrs []netip.Addr) {
	if len(x.Addrs) > 0 {
		return x.Addrs
	}
	if addr, err := netip.ParseAddr(x.Target.Host); err == nil {
		return []netip.Addr{addr.Unmap()}
	}
	if x.DNS == nil {
		return x.byModel()
	}
	addrs = append(addrs, x.DNS.Own...)
	for _, r := range x.DNS.Records {
		if addr, err := netip.ParseAddr(r.Data); err == nil && (r.Type == "A" || r.Type == "AAAA") {
			addrs = append(addrs, addr)
		}
	}
	if n := len(x.DNS.Candidates); n > 0 {
		if key, ok := explain.ServiceOf(x.DNS.Candidates[n-1].Name, x.Linter.Domains); ok {
			x.named = x.View.Service(key)
		}
	}
	if len(addrs) == 0 {
		x.e.Outcome = NotKnown
		x.add("no-address", "use --live to query the running server", "the addresses of %s are not known", x.Target.Host)
	}
	return addrs
}

// byModel returns the addresses of a Service for clients that are no Pods, whose resolvers do
// not ask the cluster DNS.
func (x *explainer) byModel() []netip.Addr {
	key, ok := x.serviceNamed(x.Target.Host, x.Namespace)
	if x.named = x.View.Service(key); !ok || x.named == nil {
		x.e.Outcome = NotKnown
		what := "Service " + key.String() + " does not exist"
		if !ok {
			what = x.Target.Host + " is no name of a Service"
		}
		x.add("no-service", "name a Service as SERVICE.NAMESPACE, or give an address", "%s", what)
		return nil
	}
	if x.Client.Place != Outside {
		if len(x.named.ClusterIPs) == 0 {
			x.e.Outcome = NotKnown
			x.add("no-cluster-ip", "connect to the address of an endpoint", "Service %s has no cluster IP", key)
		}
		return x.named.ClusterIPs
	}
	addrs := externalAddresses(x.named)
	if len(addrs) == 0 {
		x.e.Outcome = NotKnown
		x.add("not-external", x.wayInside(x.named), "Service %s has no address outside the cluster", key)
	}
	return addrs
}

// externalAddresses returns the addresses of load balancers and the external IPs of a Service.
func externalAddresses(s *cluster.Service) (addrs []netip.Addr) {
	if s.Spec == nil {
		return nil
	}
	for _, i := range s.Spec.Ingress {
		addrs = append(addrs, i.Addr)
	}
	return append(addrs, s.Spec.ExternalIPs...)
}

// port returns the port's number.
func (x *explainer) port() (number uint16, ok bool) {
	if n, err := strconv.ParseUint(x.Target.Port, 10, 16); err == nil && n > 0 {
		return uint16(n), true
	}
	if x.named == nil {
		if len(x.e.Diagnoses) == 0 {
			x.e.Outcome = NotKnown
			x.add("port-name", "give the port as a number", "%s is not a Service, whose ports have names", x.Target.Host)
		}
		return 0, false
	}
	for _, p := range x.named.Ports {
		if p.Name == x.Target.Port {
			x.Target.Protocol = plan.ProtocolOf(p.Protocol)
			return p.Number, true
		}
	}
	x.e.Outcome = NoNumber
	x.add("no-port", x.portCure(x.named), "%s is not a port of Service %s (it has %s)",
		x.Target.Port, x.named.Key, namedPortsOf(x.named.Ports))
	return 0, false
}

// handler returns the node whose service proxy handles connections to an address: the one that
// has it, or the client's.
func (x *explainer) handler(at netip.Addr) string {
	for n := range x.View.Nodes() {
		if slices.Contains(n.Addresses, at) {
			return n.Name
		}
	}
	return x.Client.Node
}

// attempt evaluates a connection to an address.
func (x *explainer) attempt(at frontend.Address) {
	p := x.proxy(x.handler(at.Addr), at.Addr)
	a := Attempt{Address: at.String(), Addr: at.Addr, Node: p.node.Name, Endpoints: []Use{}}
	verdict := p.kernel.Forward(frontend.Connection{Source: x.addrTowards(at.Addr), To: at})
	service, port, kind := p.owner(at)
	if service != nil {
		a.Service, a.Port = service.String(), service.Ports[port].Name
		a.Kind, a.Policy = string(kind), policyOf(service, kind)
		a.Endpoints = usesOf(p, service, port, &verdict)
	}
	t := &try{explainer: x, proxy: p, at: at, verdict: &verdict, service: service, port: port, kind: kind, attempt: &a}
	taken := t.taken()
	a.Outcome = t.diagnose()
	if taken || t.shared() {
		x.e.flawed = true
	}
	a.Kernel = t.kernelHas()
	if a.Outcome == Connected {
		a.Masqueraded = string(verdict.Masquerade)
		a.choose(&verdict)
	}
	x.e.Attempts = append(x.e.Attempts, a)
}

// choose says how one of several endpoints is chosen, if not at random.
func (a *Attempt) choose(v *frontend.Verdict) {
	if v.Frontend == nil || v.Frontend.Choice == frontend.Random || len(v.Endpoints) < 2 {
		return
	}
	a.Choice = v.Frontend.Choice.String()
	if v.Chosen.IsValid() {
		a.Chosen = v.Chosen.String()
	}
}

// usesOf returns the endpoints of a port, and why a connection does not use them.
func usesOf(p *proxy, s *cluster.Service, port int, v *frontend.Verdict) []Use {
	uses := []Use{}
	local := v.Reason == frontend.OutsideClient || v.Reason == frontend.NoLocalEndpoints ||
		v.Frontend.Policy == frontend.Plain && s.Spec != nil && s.Spec.InternalLocal
	for _, e := range plan.Endpoints(p.view, &p.node, s.Key, s.Ports[port], cluster.FamilyOf(v.Frontend.Addr)) {
		u := Use{
			Address: e.Addr.String(), Node: e.Node, Weight: e.Weight, Used: slices.Contains(v.Endpoints, e.Addr),
		}
		if e.Pod != "" {
			u.Pod = s.Namespace + "/" + e.Pod
		}
		switch {
		case u.Used:
		case local:
			u.WhyNot = string(e.Local)
		default:
			u.WhyNot = string(e.Cluster)
		}
		uses = append(uses, u)
	}
	return uses
}
