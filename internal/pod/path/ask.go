package path

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/request"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// The rules of diagnoses of requests that are about TLS and about backends; the others are about routes.
var (
	byTLS      = []string{"protocol", "certificate", "listener-refuses", "no-server-name"}
	byBackends = []string{
		"no-backend", "backend-invalid", "no-endpoint", lint.ServiceTargetPortMissing, lint.ServiceSelectsNoPod,
		lint.ServiceNoReadyEndpoint, lint.ServiceNoEndpoints, lint.ServiceScaledToZero,
	}
)

// TargetOf returns what a client of a URL connects to.
func TargetOf(m *request.Message) connection.Target {
	return connection.Target{Host: m.Lookup(), Port: strconv.Itoa(int(m.Port)), Protocol: frontend.TCP}
}

// ask adds the layers of the request, if it comes to a gateway.
func (x *explainer) ask() {
	r := &request.Request{World: x.Gateway, Linter: x.Linter, Message: *x.Message, Now: x.Now}
	if x.DNS != nil && (x.DNS.Found() || x.DNS.NotKnown()) {
		r.DNS = x.DNS
	}
	if x.direct() {
		return
	}
	e := request.Explain(r)
	x.e.Request = e
	var tls, route, backend []explain.Diagnosis
	for _, d := range e.Diagnoses {
		switch {
		case slices.Contains(byTLS, d.Rule):
			tls = append(tls, d)
		case slices.Contains(byBackends, d.Rule):
			backend = append(backend, d)
		default:
			route = append(route, d)
		}
	}
	a := e.Answer()
	if a == nil {
		s := Step{Layer: Route, State: Broken, Says: e.Outcome, Diagnoses: e.Diagnoses}
		if e.NotKnown() {
			s.State = NotKnown
		}
		x.add(s)
		return
	}
	x.tls(a, tls)
	if a.Taken() != nil && (len(a.Backends) > 0 || len(backend) > 0) {
		x.takes(a, route)
		x.backend(a, backend)
		return
	}
	x.route(a, route)
}

// direct reports whether the request has nothing to do with a gateway: no route names its host, and the connection is
// to an address that no Gateway and no Ingress has. What answers is a program that the model does not know. Routes for
// any host take what has a name that is not known.
func (x *explainer) direct() bool {
	switch {
	case x.e.Connection == nil || x.Gateway.HasHost(x.Message):
		return false
	case x.DNS != nil && x.DNS.NotKnown() && x.Gateway.Takes(x.Message):
		return false
	case len(x.e.Connection.Attempts) == 0:
		return x.named() || x.DNS != nil && !x.DNS.NotKnown() && x.DNS.Meant != (cluster.Key{})
	}
	return !slices.ContainsFunc(x.e.Connection.Attempts, func(a connection.Attempt) bool {
		return x.Gateway.Has(a.Addr) || a.Service != "" && a.Service == x.Published.String()
	})
}

// tls adds the layer of TLS, if there is one. That no listener has the host is of the layer of the route.
func (x *explainer) tls(a *request.Answer, found []explain.Diagnosis) {
	t := a.TLS
	if t == nil || a.EndsHandshake() {
		return
	}
	s := Step{Layer: TLS, State: OK, Diagnoses: found}
	switch {
	case t.Refused != "":
		s.State, s.Says = Broken, t.Refused
	case t.Passed:
		s.Says = "the endpoint answers the handshake"
	case t.Until == nil:
		s.State, s.Says = NotKnown, "the certificate is not known"
	default:
		s.Says = fmt.Sprintf("%s has a certificate for %s", t.Listener, strings.Join(t.Names, ", "))
	}
	if t.Demand != "" {
		s.Says += "; the client needs " + t.Demand
	}
	x.add(s)
}

// takes adds the layer of the listener and the rule, which has the request sent to a backend.
func (x *explainer) takes(a *request.Answer, found []explain.Diagnosis) {
	x.add(Step{Layer: Route, State: OK, Diagnoses: found, Says: a.Taken().Name + " takes it" + demanded(a)})
}

// demanded says what a rule demands of the client, after what it does.
func demanded(a *request.Answer) string {
	if len(a.Demands) == 0 {
		return ""
	}
	return ", and demands " + strings.Join(a.Demands, ", ")
}

// route adds the layer of the listener and the rule, of requests that the gateway answers itself.
func (x *explainer) route(a *request.Answer, found []explain.Diagnosis) {
	s := Step{Layer: Route, State: Broken, Diagnoses: found, Says: a.Reason}
	if a.Location != "" {
		s.Says = fmt.Sprintf("%s redirects to %s%s", a.Taken().Name, a.Location, demanded(a))
		if len(found) == 0 {
			s.State = OK
		}
	}
	x.add(s)
}

// backend adds the layer of the Services that get the request.
func (x *explainer) backend(a *request.Answer, found []explain.Diagnosis) {
	s := Step{Layer: Backend, State: OK, Diagnoses: found}
	gateway := x.gatewayPod()
	var words []string
	for i := range a.Backends {
		b := &a.Backends[i]
		if b.Weight == 0 {
			continue
		}
		said := fmt.Sprintf("Service %s, port %d, has %s", b.Service, b.Port, counted(len(b.Endpoints), "endpoint"))
		if b.Status != 0 {
			s.State, said = Broken, b.Reason
		}
		words = append(words, said)
		s.Diagnoses = append(s.Diagnoses, x.reach(gateway, b)...)
	}
	if len(s.Diagnoses) > 0 || len(words) == 0 {
		s.State = Broken
	}
	s.Says = strings.Join(words, "; ")
	switch {
	case len(words) > 0:
	case len(a.Backends) > 0:
		s.Says = "no backend has a weight"
	default:
		s.Says = a.Reason
	}
	x.add(s)
}

// mostJudged is the maximum number of endpoints of a backend that policies are judged of.
const mostJudged = 100

// reach returns why policies deny a Pod of the gateway, nil if none is known, to connect to endpoints of a backend. If
// they deny it all of them, the gateway answers itself.
func (x *explainer) reach(gateway *cluster.Pod, b *request.Backend) (denied []explain.Diagnosis) {
	if gateway == nil {
		return nil
	}
	client := connection.Client{Subject: dnsconfig.SubjectOfPod(gateway), Node: gateway.Node}
	if len(gateway.IPs) > 0 {
		client.Addr = gateway.IPs[0]
	}
	all, byPort := true, make(map[uint16][]netip.Addr)
	for _, e := range b.Endpoints[:min(len(b.Endpoints), mostJudged)] {
		if at, err := netip.ParseAddrPort(e.Address); err == nil {
			byPort[at.Port()] = append(byPort[at.Port()], at.Addr())
		}
	}
	for _, port := range slices.Sorted(maps.Keys(byPort)) {
		c := connection.Explain(&connection.Request{
			World: x.World, Client: client, Addrs: byPort[port],
			Target: connection.Target{Host: b.Service, Port: strconv.Itoa(int(port)), Protocol: frontend.TCP},
		})
		x.e.Backends = append(x.e.Backends, c)
		denied = append(denied, c.Denials()...)
		all = all && c.Verdict == connection.Denied
	}
	if all && len(byPort) > 0 && len(b.Endpoints) <= mostJudged {
		x.e.Request.Unreached(b.Service, b.Port)
	}
	return denied
}

// gatewayPod returns a Pod of the gateway: an endpoint that the client's connection uses, or else one of the Service
// that the gateway's own settings name. It returns nil if none is known.
func (x *explainer) gatewayPod() *cluster.Pod {
	if c := x.e.Connection; c != nil {
		for i := range c.Attempts {
			for _, u := range c.Attempts[i].Endpoints {
				namespace, name, _ := strings.Cut(u.Pod, "/")
				if p := x.View.Pod(cluster.Key{Namespace: namespace, Name: name}); p != nil && u.Used {
					return p
				}
			}
		}
	}
	if s := x.View.Service(x.Published); s != nil {
		if pods := x.podsOf(s); len(pods) > 0 {
			return pods[0]
		}
	}
	return nil
}
