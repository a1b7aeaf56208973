package path

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/proxy/plan"
)

// byPolicies are the rules of diagnoses of connections that policies deny, or might.
var byPolicies = []string{
	"network-policy",
	"cluster-network-policy",
	"no-pod",
	"client-address",
	"target-address",
	"policies-unread",
	"policy-kernel-differs",
}

// connect adds the layers of the connection: who has the address, and what policies decide.
func (x *explainer) connect() {
	r := connection.Request{
		World:     x.World,
		Client:    *x.Client,
		Target:    x.Target,
		Namespace: x.Namespace,
		To:        x.To,
		Kernel:    x.Kernel,
		Judge:     x.Judge,
		DNS:       x.DNS,
	}
	var why string
	outside := x.Message != nil && x.DNS == nil && !x.Message.HasAddress() // a client that does not ask the cluster's DNS
	if outside || !x.resolved() {
		switch r.Addrs, why = x.assumed(); {
		case len(r.Addrs) > 0:
			r.DNS = nil
		case outside && !x.named():
			x.add(Step{Layer: Service, State: NotKnown, Says: "no address of a gateway for " + x.Message.Name + " is known"})
			return
		}
	}
	c := connection.Explain(&r)
	x.e.Connection = c
	var service, policy []explain.Diagnosis
	for _, d := range c.Diagnoses {
		switch {
		case d.Rule == "no-service" && x.atGateway(c): // it is a load balancer's of which the cluster has no Service
		case slices.Contains(byPolicies, d.Rule):
			policy = append(policy, d)
		case r.DNS == nil || r.DNS.Found() || !slices.Contains(r.DNS.Diagnoses, d):
			service = append(service, d)
		}
	}
	s := x.service(c, service)
	if why != "" {
		s.Says = why + ": " + s.Says
	}
	if x.To == nil {
		x.add(s)
	}
	if s.State == Broken {
		x.dropRepeated(service)
	}
	x.policy(c, policy, s.State)
}

// dropRepeated drops from the layer of a lookup that succeeds what breaks the layer of the Service, so that the cause
// is not told again as advice.
func (x *explainer) dropRepeated(causes []explain.Diagnosis) {
	s := x.e.Step(Name)
	if s == nil || s.State != OK {
		return
	}
	s.Diagnoses = slices.DeleteFunc(slices.Clone(s.Diagnoses), func(d explain.Diagnosis) bool {
		return slices.ContainsFunc(causes, func(c explain.Diagnosis) bool { return c.Rule == d.Rule })
	})
}

// named reports whether the host names a Service, for a client that does not ask the cluster's DNS, and no route has
// it.
func (x *explainer) named() bool {
	return x.DNS == nil && !x.Gateway.HasHost(x.Message) && x.ServiceNamed(x.Target.Host, x.Namespace) != nil
}

// atGateway reports whether all addresses of a connection are those of Gateways and Ingresses.
func (x *explainer) atGateway(c *connection.Explanation) bool {
	return x.Message != nil &&
		!slices.ContainsFunc(c.Attempts, func(a connection.Attempt) bool { return !x.Gateway.Has(a.Addr) })
}

// service returns the layer of who has the address.
func (x *explainer) service(c *connection.Explanation, found []explain.Diagnosis) Step {
	s := Step{Layer: Service, State: OK, Diagnoses: found}
	switch {
	case c.Outcome == connection.NoNumber:
		s.State, s.Says = Broken, found[len(found)-1].Why
	case len(c.Attempts) == 0:
		s.State, s.Says = NotKnown, "the address is not known"
	case c.Connects() && len(found) > 0: // two Services have the address, or the kernel differs
		s.State = Broken
	case len(found) > 0 && c.Outcome == connection.NotKnown:
		s.State = NotKnown
	case len(found) > 0:
		s.State = Broken
	}
	if len(c.Attempts) > 0 && x.atGateway(c) && c.Attempts[0].Service == "" {
		s.Says = c.Attempts[0].Address + " is an address of the gateway"
	}
	for i := range c.Attempts {
		if a := &c.Attempts[i]; s.Says == "" ||
			a.Outcome == connection.Connected && c.Attempts[0].Outcome != connection.Connected {
			s.Says = a.Summary()
		}
	}
	return s
}

// policy adds the layer of what policies decide. If no endpoint can be used, it is judged of the Pods that the Service
// selects.
func (x *explainer) policy(c *connection.Explanation, found []explain.Diagnosis, service State) {
	s := Step{Layer: Policy, State: OK, Diagnoses: found}
	verdict, note := c.Verdict, c.Note
	_, unread := c.Unread()
	if verdict == "" && service == Broken && len(found) == 0 {
		verdict, s.Diagnoses = x.ofSelected(c)
	}
	switch {
	case unread:
		s.State, s.Says = NotKnown, "policies could not be read"
	case verdict == connection.Allowed:
		s.Says = cmp.Or(c.Allows(), "policies allow it")
	case verdict == connection.Denied:
		s.State, s.Says = Broken, "policies deny it"
	case verdict == connection.Some:
		s.State, s.Says = Broken, "policies deny some of the endpoints, and connections to those are dropped"
	case len(found) > 0:
		s.State, s.Says = NotKnown, "it depends on an address that is not known"
	case service != OK && !c.Connects():
		s.State, s.Says = NotKnown, "there is no endpoint to judge"
	default:
		s.Says = "no policy judges it"
	}
	if s.State == Broken && len(s.Diagnoses) == 0 {
		s.Diagnoses = c.Denials()
	}
	if note != "" {
		s.Says += "; " + note
	}
	x.add(s)
}

// mostPods is the maximum number of Pods of a Service without endpoints that policies are judged of.
const mostPods = 8

// ofSelected judges the connection to the Pods that a Service without usable endpoints selects.
func (x *explainer) ofSelected(c *connection.Explanation) (verdict string, found []explain.Diagnosis) {
	s, target := x.targetOf(c)
	if s == nil || len(s.Selector) == 0 {
		return "", nil
	}
	pods := x.podsOf(s)
	for _, p := range pods[:min(len(pods), mostPods)] {
		to := dnsconfig.SubjectOfPod(p)
		at := target
		at.Port = portOf(p, target)
		e := connection.Explain(&connection.Request{World: x.World, Client: *x.Client, Target: at, To: &to})
		switch {
		case verdict == "":
			verdict = e.Verdict
		case verdict != e.Verdict:
			verdict = connection.Some
		}
		if denials := e.Denials(); len(found) == 0 && len(denials) > 0 {
			found = denials[:1]
		}
	}
	return verdict, found
}

// portOf returns the port of a Pod that a target's port leads to. Of a name that no container has, it is the Pod's only
// port of the protocol, if there is one: that is what the name was most likely meant for.
func portOf(p *cluster.Pod, t connection.Target) string {
	var of []cluster.Port
	if p.Spec != nil {
		of = slices.DeleteFunc(slices.Clone(p.Spec.Ports), func(o cluster.Port) bool {
			return plan.ProtocolOf(o.Protocol) != t.Protocol
		})
	}
	_, isName := strconv.Atoi(t.Port)
	if isName == nil || len(of) != 1 || of[0].Name == t.Port {
		return t.Port
	}
	return strconv.Itoa(int(of[0].Number))
}

// podsOf returns the Pods that a Service selects and that have not finished, by name.
func (x *explainer) podsOf(s *cluster.Service) (pods []*cluster.Pod) {
	for p := range x.View.Pods() {
		if !p.Finished && s.Selects(p) {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *cluster.Pod) int { return a.Compare(b.Key) })
	return pods
}

// targetOf returns the Service that a connection is for, and what its port leads to at a Pod.
func (x *explainer) targetOf(c *connection.Explanation) (s *cluster.Service, t connection.Target) {
	for i := range c.Attempts {
		a := &c.Attempts[i]
		namespace, name, ok := strings.Cut(a.Service, "/")
		if s = x.View.Service(cluster.Key{Namespace: namespace, Name: name}); !ok || s == nil {
			continue
		}
		for i, p := range s.Ports {
			if p.Name == a.Port && plan.ProtocolOf(p.Protocol) == x.Target.Protocol {
				t.Protocol, t.Port = x.Target.Protocol, strconv.Itoa(int(p.Number))
				if i < len(s.Targets) && s.Targets[i] != "" {
					t.Port = s.Targets[i]
				}
				return s, t
			}
		}
	}
	return nil, t
}

// counted returns a number of things: "1 endpoint", "2 endpoints".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
