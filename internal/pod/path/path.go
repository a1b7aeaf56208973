// Package path explains all layers between a client and what it asks for, in the order in which packets meet them:
//
//	file        layers            explained by
//	name.go     name              package explain: the lookup, as the client's resolver does it
//	connect.go  service, policy   package connection: the address, its endpoints, and the policies of both ends
//	ask.go      tls, route        package request: the listener of the gateway, its certificate and its rule
//	ask.go      backend           package request, and package connection from the gateway's Pod to the endpoints
//
// The first layer that is broken is the cause, see conclude in path.go. The layers behind it are judged as if it were
// mended, so that a second fault is reported, too.
package path

import (
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/request"
)

// Schema is the version of the JSON of an Explanation. Fields may be added to it; one that changes or goes makes the
// next version.
const Schema = "portolan.dev/explain/v1"

// Layer is a part of the way.
type Layer string

// The layers, in order.
const (
	// Name is the lookup of the host, as the client's resolver does it.
	Name Layer = "name"
	// Service is what has the address: a Service with its endpoints, a Pod or a node.
	Service Layer = "service"
	// Policy is what NetworkPolicies and ClusterNetworkPolicies of both ends decide.
	Policy Layer = "policy"
	// TLS is whether the client can ask the gateway at all.
	TLS Layer = "tls"
	// Route is the listener and the rule that take a request.
	Route Layer = "route"
	// Backend is the Service of the rule: its endpoints, and whether policies let the gateway reach them.
	Backend Layer = "backend"
)

// Layers returns all layers, in order.
func Layers() []Layer { return []Layer{Name, Service, Policy, TLS, Route, Backend} }

// State is how a layer is.
type State string

// The states.
const (
	OK       State = "ok"
	Broken   State = "broken"
	NotKnown State = "not known"
)

// Step is a layer of the way.
type Step struct {
	Layer Layer `json:"layer"`
	State State `json:"state"`
	// Says is the layer in a sentence.
	Says string `json:"says"`
	// Assumed: a layer before it is broken, and this one is judged as if that were mended.
	Assumed bool `json:"assumed,omitempty"`
	// Diagnoses are why it is broken, or not known, with the cures; of a lookup that succeeds, what is wasteful about it.
	Diagnoses []explain.Diagnosis `json:"diagnoses,omitempty"`
	// Live compares it with what packets saw; nil if nothing was to be sent.
	Live *Live `json:"live,omitempty"`
}

// Explanation says whether a client gets what it asks for, and why not.
type Explanation struct {
	Schema string `json:"schema"`
	Target string `json:"target"`
	// From is the client; empty if none is given, of a URL.
	From string `json:"from,omitempty"`
	// Outcome is what the client sees, in words.
	Outcome string `json:"outcome"`
	// State is Broken if a layer is, else NotKnown if one is.
	State State `json:"state"`
	// Cause is the first layer that is not OK and not assumed to be; empty if there is none.
	Cause Layer `json:"cause,omitempty"`
	// Steps are the layers on the way.
	Steps []Step `json:"layers"`
	// Name, Connection, Request and Backends are the layers in full; nil if they are not on the way. Backends are
	// connections from the gateway to the endpoints of the rule that takes the request.
	Name       *explain.Explanation      `json:"name,omitempty"`
	Connection *connection.Explanation   `json:"connection,omitempty"`
	Request    *request.Explanation      `json:"request,omitempty"`
	Backends   []*connection.Explanation `json:"backends,omitempty"`
	// Live is what was sent to compare the layers with; nil if nothing was to be sent.
	Live *Reality `json:"live,omitempty"`
}

// Request is the input of Explain.
type Request struct {
	// World has what connections are judged by.
	*connection.World
	// Gateway has what requests are judged by; nil if there is no Message.
	Gateway *request.World
	// Message is what is sent to a URL; nil for a target without one.
	Message *request.Message
	// Now is when it is sent; certificates do not expire if it is zero.
	Now time.Time
	// Client is nil if it is not known: then the way begins at the gateway, and there must be a Message.
	Client *connection.Client
	// Target is what the client connects to; of a Message, its host and port.
	Target connection.Target
	// Namespace is that of a Service that the target names without one, for clients that are no Pods.
	Namespace string
	// To is the Pod or workload that is connected to, instead of the target's host.
	To *dnsconfig.Subject
	// DNS is how the host resolves in the Pod; nil for addresses, and for clients that are no Pods.
	DNS *explain.Explanation
	// Kernel reads what the kernel has, and Judge asks it what it lets pass; nil do not.
	Kernel *connection.KernelReader
	Judge  *connection.KernelJudge
	// Published is the Service of the gateway, whose Pods ask backends; the zero key if it is not known.
	Published cluster.Key
}

// explainer has the state of Explain.
type explainer struct {
	*Request
	e *Explanation
}

// Explain explains the way from a client to a target.
func Explain(r *Request) *Explanation {
	x := &explainer{r, &Explanation{Schema: Schema, Target: r.Target.String(), Steps: []Step{}, Name: r.DNS}}
	if r.Message != nil {
		x.e.Target = r.Message.URL()
	}
	if r.Client != nil {
		x.e.From = r.Client.String()
		x.name()
		x.connect()
	}
	if r.Message != nil {
		x.ask()
	}
	x.conclude()
	return x.e
}

// OfName returns the way that is a lookup only.
func OfName(d *explain.Explanation) *Explanation {
	x := &explainer{&Request{DNS: d}, &Explanation{Schema: Schema, Target: d.Name, From: d.Pod, Steps: []Step{}, Name: d}}
	x.name()
	x.conclude()
	return x.e
}

// add adds a step.
func (x *explainer) add(s Step) {
	for i := range x.e.Steps {
		s.Assumed = s.Assumed || x.e.Steps[i].State == Broken
	}
	x.e.Steps = append(x.e.Steps, s)
}

// Step returns the step of a layer; nil if it is not on the way.
func (e *Explanation) Step(l Layer) *Step {
	for i := range e.Steps {
		if e.Steps[i].Layer == l {
			return &e.Steps[i]
		}
	}
	return nil
}

// Works reports whether the client gets what it asks for.
func (e *Explanation) Works() bool { return e.State == OK }

// conclude sets the outcome, which is that of the first layer that is broken, or else not known. What is not known of
// the way to a gateway that answers the request is assumed.
func (x *explainer) conclude() {
	x.e.State, x.e.Outcome = OK, x.seen()
	for _, state := range []State{Broken, NotKnown} {
		for i := range x.e.Steps {
			s := &x.e.Steps[i]
			assumed := state == NotKnown && x.e.Request != nil && x.e.Request.Answered() && s.Layer != Policy
			if s.State == state && !assumed {
				x.e.State, x.e.Cause, x.e.Outcome = state, s.Layer, x.failure(s)
				return
			}
		}
	}
}

// seen is what a client sees if all layers are OK.
func (x *explainer) seen() string {
	switch {
	case x.e.Request != nil:
		return x.e.Request.Outcome
	case x.e.Connection != nil:
		return x.e.Connection.Summary()
	}
	return x.e.Name.Outcome
}

// failure is what a client sees if a layer is broken, or not known.
func (x *explainer) failure(s *Step) string {
	if x.e.Connection == nil && (s.Layer == Policy || s.Layer == Service) { // no address is known
		return connection.NotKnown
	}
	switch s.Layer {
	case Name:
		return x.e.Name.Outcome
	case Policy:
		if x.e.Connection.Connects() { // to some endpoints, or at some addresses
			return connection.Some
		}
		return x.e.Connection.Outcome
	case Service:
		return x.e.Connection.Outcome
	case Backend:
		if x.e.Request.Served() {
			return "an answer that comes late, or 502 from the gateway: policies keep it from some of the endpoints"
		}
	}
	return x.e.Request.Outcome
}
