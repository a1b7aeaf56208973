// Package request explains what a gateway does with an HTTP request: which listener and which host serve it,
// each rule that is tried and why it does not match, the backends and their endpoints; or whose 404, 421,
// 500 or 503 it would be, and the cure. It judges from the model and from the table that a gateway compiles
// from it (Kubernetes, "Ingress"; Gateway API v1), and sends nothing.
//
//	URL ─► address.go:  which Gateways have the address that the host resolves to
//	   ─► listener.go:  the listener of the port and the host
//	   ─► tls.go:       the certificate, and connections that are passed on
//	   ─► rules.go:     the rules, in the order in which they are tried
//	   ─► demand.go:    what the rule demands of clients
//	   ─► backend.go:   backends by weight, and their endpoints
//	   ─► missing.go:   routes that would serve the request, and why they do not
//	   ─► Explanation
//
// list.go has what the commands list of routes, Gateways and Ingresses.
package request

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/lint"
)

// Request is the input of Explain.
type Request struct {
	*World
	Linter  *lint.Linter
	Message Message
	// Now is when the request is sent; certificates do not expire if it is zero.
	Now time.Time
	// DNS is how the host resolves in the client's Pod; nil if there is none, or for an address.
	DNS *explain.Explanation
}

// Explanation says what becomes of a request, and why.
type Explanation struct {
	Method string               `json:"method"`
	URL    string               `json:"url"`
	Fields []string             `json:"headers,omitempty"`
	DNS    *explain.Explanation `json:"dns,omitempty"`
	// Note is what is assumed of the address; empty if nothing.
	Note string `json:"note,omitempty"`
	// Answers are one for each place with another listener that the request may come to; none if it comes
	// to no gateway.
	Answers []Answer `json:"answers"`
	// Outcome says in words what the client gets.
	Outcome string `json:"outcome"`
	// Diagnoses are those of the layers, of which the JSON has them.
	Diagnoses []explain.Diagnosis `json:"-"`
	unread    bool                // see NotKnown
}

// Answer is what becomes of a request that comes to a place.
type Answer struct {
	// Address is the gateway's; empty if it is one that Gateways share.
	Address string `json:"address,omitempty"`
	Port    uint16 `json:"port"`
	// Listener is "gateway NAMESPACE/NAME LISTENER" or "Ingress"; empty if none has the host. Hostname is the
	// listener's, and Host that of the rules; "" is any.
	Listener string `json:"listener,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	Host     string `json:"host,omitempty"`
	// TLS is what the client meets first; nil without TLS. If it refuses the client, the rest is judged as if it did not.
	TLS *TLS `json:"tls,omitempty"`
	// Rules are those of the host, in the order in which they are tried.
	Rules []Rule `json:"rules"`
	// Demands are what the rule demands of the client. They are not judged: a client that does not meet them gets 401,
	// 403, 413 or 429.
	Demands []string `json:"demands,omitempty"`
	// Stream: the gateway passes the connection on, whatever is asked on it.
	Stream bool `json:"stream,omitempty"`
	// Changes are what the rule does to the request before a backend gets it.
	Changes  []string  `json:"changes,omitempty"`
	Backends []Backend `json:"backends,omitempty"`
	// Status is that of the gateway's own answer; 0 if a backend answers, or some by weight.
	Status int `json:"status,omitempty"`
	// Reason is why the gateway answers, and Location where a redirect leads.
	Reason   string `json:"reason,omitempty"`
	Location string `json:"location,omitempty"`
}

// Rule is a rule that was tried.
type Rule struct {
	// Name is whose rule it is, such as "httproute shop/web rule 0", and Match what requests must be like.
	Name  string `json:"rule"`
	Match string `json:"match"`
	// WhyNot is why it does not serve the request; empty for the one that does.
	WhyNot string `json:"whyNot,omitempty"`
	// nearness orders misses, the nearest first.
	nearness int
	route    *table.Route
}

// Backend is a share of a rule's requests.
type Backend struct {
	// Service is NAMESPACE/NAME; empty if the backend is invalid.
	Service string `json:"service,omitempty"`
	Port    uint16 `json:"port,omitempty"`
	Weight  uint32 `json:"weight"`
	// Share is how much of all requests it gets, in percent.
	Share     float64    `json:"share"`
	Endpoints []Endpoint `json:"endpoints"`
	// Status is that of the gateway's answer if no endpoint gets the request, and Reason why; 0 if one does.
	Status int    `json:"status,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Endpoint is an endpoint that may get the request.
type Endpoint struct {
	Address string `json:"address"`
	Pod     string `json:"pod,omitempty"` // NAMESPACE/NAME
}

// Served reports whether a backend gets the request, wherever it comes to and whatever backend is chosen.
func (e *Explanation) Served() bool {
	for i := range e.Answers {
		if !e.Answers[i].Served() {
			return false
		}
	}
	return len(e.Answers) > 0
}

// Answered reports whether a client gets what it asks for: it is served, or redirected.
func (e *Explanation) Answered() bool {
	a := e.Answer()
	return e.Served() || a != nil && a.Redirect() != ""
}

// NotKnown reports whether it could not be judged what becomes of the request.
func (e *Explanation) NotKnown() bool { return e.unread }

// Answer returns the first answer that fails, or else the first one; nil if the request comes to no gateway.
func (e *Explanation) Answer() *Answer {
	for i := range e.Answers {
		if !e.Answers[i].Served() {
			return &e.Answers[i]
		}
	}
	if len(e.Answers) == 0 {
		return nil
	}
	return &e.Answers[0]
}

// Answers returns the status of the gateway's own answer; 0 if it gives none, or only to some requests by weight.
func (a *Answer) Answers() int {
	if a.refused() {
		return a.TLS.Status
	}
	if a.Status != 0 {
		return a.Status
	}
	status := 0
	for i := range a.Backends {
		switch b := &a.Backends[i]; {
		case b.Weight == 0: // it gets no request
		case b.Status == 0 || status != 0 && status != b.Status:
			return 0
		default:
			status = b.Status
		}
	}
	return status
}

// Redirect returns where the client is redirected to; empty if it is not, or if TLS keeps it from asking.
func (a *Answer) Redirect() string {
	if a.refused() {
		return ""
	}
	return a.Location
}

// Taken returns the rule that takes the request; nil if none does.
func (a *Answer) Taken() *Rule {
	i := slices.IndexFunc(a.Rules, func(r Rule) bool { return r.WhyNot == "" })
	if i < 0 {
		return nil
	}
	return &a.Rules[i]
}

// Served reports whether a backend gets the request, whichever is chosen.
func (a *Answer) Served() bool {
	fails := func(b Backend) bool { return b.Weight > 0 && b.Status != 0 }
	return !a.refused() && a.Status == 0 && len(a.Backends) > 0 && !slices.ContainsFunc(a.Backends, fails)
}

// refused reports whether TLS keeps the client from asking.
func (a *Answer) refused() bool { return a.TLS != nil && a.TLS.Refused != "" }

// explainer has the state of Explain.
type explainer struct {
	*Request
	e *Explanation
}

// Explain says what becomes of a request.
func Explain(r *Request) *Explanation {
	x := &explainer{
		Request: r,
		e: &Explanation{
			Method: r.Message.Method, URL: r.Message.URL(), Fields: r.Message.fields(), DNS: r.DNS,
			Answers: []Answer{}, Diagnoses: []explain.Diagnosis{},
		},
	}
	if x.unread() {
		return x.e
	}
	addrs, ok := x.addresses()
	if !ok {
		return x.e
	}
	for _, p := range x.places(addrs) {
		x.answer(p)
	}
	if a := x.e.Answer(); a != nil {
		x.e.Outcome = a.outcome()
	}
	return x.e
}

// unread reports whether kinds that decide on the request could not be read.
func (x *explainer) unread() bool {
	for _, k := range []cluster.Kind{
		cluster.KindNamespace, cluster.KindService, cluster.KindIngress, cluster.KindIngressClass, cluster.KindGatewayClass,
		cluster.KindGateway, cluster.KindListenerSet, cluster.KindHTTPRoute, cluster.KindReferenceGrant,
	} {
		if !x.view.Loaded(k) {
			x.e.Outcome, x.e.unread = "not known: this command may not read "+k.Plural(), true
			x.add("not-read", fmt.Sprintf("grant the account of this command the right to list %s, or use another account",
				strings.ToLower(k.Plural())), "%s decide on it", k.Plural())
		}
	}
	return x.e.unread
}

func (x *explainer) add(rule, cure, format string, args ...any) {
	d := explain.Diagnosis{Rule: rule, Why: fmt.Sprintf(format, args...), Cure: cure}
	if !slices.Contains(x.e.Diagnoses, d) {
		x.e.Diagnoses = append(x.e.Diagnoses, d)
	}
}

// World is what a gateway makes of a model.
type World struct {
	view      *cluster.View
	cfg       compile.Config
	table     *table.Table
	endpoints map[table.Upstream][]netip.AddrPort
	ready     map[compile.ServicePort]bool // ports that have endpoints
	verdicts  *compile.Verdicts
	listeners map[string]*listener // by name
	// known are the addresses of our Gateways and Ingresses, by "Gateway NAMESPACE/NAME" or "Ingress ...".
	known map[string][]netip.Addr
	// noSecrets: not all Secrets could be read, so that one that is missing may exist.
	noSecrets bool
	// uses returns what the table has of routes and Ingresses, by their names in it.
	uses func() map[string]use
}

// NewWorld compiles a model, of which some kinds could be read in some namespaces only. It is valid as long as the
// view.
func NewWorld(v *cluster.View, cfg compile.Config, partial ...cluster.Kind) *World {
	c := compile.NewCompiler(cfg)
	out := c.Apply(v, &cluster.Changes{Everything: true})
	w := &World{
		view:      v,
		cfg:       cfg,
		table:     out.Table,
		endpoints: out.Endpoints,
		verdicts:  c.Verdicts(),
		ready:     make(map[compile.ServicePort]bool),
		noSecrets: !v.Loaded(cluster.KindSecret) || slices.Contains(partial, cluster.KindSecret),
	}
	for up, addrs := range out.Endpoints {
		if len(addrs) > 0 {
			w.ready[compile.ServicePort{Namespace: up.Namespace, Service: up.Service, Port: up.Port}] = true
		}
	}
	w.listeners, w.known = w.allListeners(), w.knownAddresses()
	w.uses = sync.OnceValue(func() map[string]use { return usesOf(w.table) })
	return w
}
