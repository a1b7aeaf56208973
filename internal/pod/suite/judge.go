package suite

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/request"
)

// Judge returns whether a Case is as it expects, given how its way is explained, and what the client sees.
func (c *Case) Judge(v *cluster.View, e *path.Explanation) Result {
	r := Result{Case: *c, Explanation: e, Got: Seen(e)}
	expect := &c.Test.Expect
	if r.Why = c.differs(v, e, expect); r.Why == "" && c.Test.By != "" {
		if deciders := Deciders(e); !slices.ContainsFunc(deciders, func(d string) bool { return begins(d, c.Test.By) }) {
			verb := "decides"
			if len(deciders) > 1 {
				verb = "decide"
			}
			r.Why = fmt.Sprintf("%s %s it, not %s", listed(deciders), verb, c.Test.By)
		}
	}
	return r
}

// begins reports whether a text is another one, or goes on after it with a word.
func begins(text, with string) bool { return text == with || strings.HasPrefix(text, with+" ") }

func listed(all []string) string {
	if len(all) == 0 {
		return "no policy and no route"
	}
	return strings.Join(all, " and ")
}

// differs returns why what the client sees is not what is expected; empty if it is.
func (c *Case) differs(v *cluster.View, e *path.Explanation, expect *Expect) string {
	got := Outcome(Seen(e))
	switch expect.Outcome {
	case Resolves, Unresolved:
		return c.lookup(v, e, expect)
	case Connects:
		if got != Connects && got != Backend || e.Connection == nil {
			return describe(e)
		}
		return otherEndpoints(e.Connection, expect.Values)
	case Refused, Dropped:
		if got != expect.Outcome {
			return describe(e)
		}
		return ""
	}
	a := answer(e)
	switch {
	case a == nil && expect.Outcome == Backend && got == Connects:
		return otherServices(e.Connection, expect.Values)
	case a == nil:
		return describe(e)
	case expect.Outcome == Backend && (e.State != path.OK || a.Location != ""), !answersAs(a, expect):
		return describe(e)
	}
	return elsewhere(e, expect)
}

// answersAs reports whether a gateway's answer is what is expected, whichever backend has it.
func answersAs(a *request.Answer, expect *Expect) bool {
	switch expect.Outcome {
	case Backend:
		return a.Served()
	case Redirect:
		return a.Redirect() == expect.Values[0]
	}
	return a.Answers() == expect.Status
}

// elsewhere returns why a request is not answered as expected, wherever it comes to: several gateways may get it.
func elsewhere(e *path.Explanation, expect *Expect) string {
	for i := range e.Request.Answers {
		a := &e.Request.Answers[i]
		if !answersAs(a, expect) {
			return cmp.Or(a.Listener, "a gateway without a listener for it") + " may get it, and answers otherwise"
		}
		if expect.Outcome != Backend {
			continue
		}
		if why := otherBackends(a, expect.Values); why != "" {
			return why
		}
	}
	return ""
}

// describe says what a client sees, and why.
func describe(e *path.Explanation) string {
	text := "got " + Seen(e)
	if s := e.Step(e.Cause); s != nil {
		why := s.Says
		if len(s.Diagnoses) > 0 {
			why = s.Diagnoses[0].Why
		}
		return fmt.Sprintf("%s: %s: %s", text, s.Layer, why)
	}
	return text
}

// answer returns what the gateway does with the request; nil if the request does not come to it.
func answer(e *path.Explanation) *request.Answer {
	if e.Request == nil {
		return nil
	}
	for _, l := range []path.Layer{path.Name, path.Service, path.Policy} {
		if s := e.Step(l); s != nil && s.State == path.Broken {
			return nil
		}
	}
	return e.Request.Answer()
}

// Seen returns what a client sees: an Outcome, with the status of a gateway's own answer, or "not known".
func Seen(e *path.Explanation) string {
	c := e.Connection
	switch s := e.Step(path.Name); {
	case s != nil && s.State == path.Broken:
		return string(Unresolved)
	case c == nil && e.Request == nil && s != nil && s.State == path.OK:
		return string(Resolves)
	case c != nil && c.Verdict == connection.Some:
		return "partly " + string(Dropped)
	case c != nil && c.Outcome == connection.TimedOut:
		return string(Dropped)
	case c != nil && c.Outcome == connection.Refused:
		return string(Refused)
	}
	if a := answer(e); a != nil {
		switch status := a.Answers(); {
		case a.Redirect() != "":
			return string(Redirect) + " to " + a.Redirect()
		case status != 0:
			return fmt.Sprintf("%s %d", Status, status)
		case e.State == path.OK:
			return string(Backend)
		case e.Cause == path.Backend: // it depends on which backend, or endpoint, is chosen
			return "not known"
		case e.State == path.Broken:
			return "no answer"
		}
		return "not known"
	}
	if c != nil && e.Request == nil && (c.Outcome == connection.Connected || c.Leaves()) {
		return string(Connects)
	}
	return "not known"
}

// Deciders returns what decides on a way: policies, with the path of their rule, and the rule of the route. Where
// connections are denied, what allows one of the directions decides nothing.
func Deciders(e *path.Explanation) (all []string) {
	add := func(text string) {
		if text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	if c := e.Connection; c != nil {
		for i := range c.Attempts {
			for _, u := range c.Attempts[i].Endpoints {
				for _, text := range u.Deciders() {
					add(text)
				}
			}
		}
	}
	if a := answer(e); a != nil {
		if rule := a.Taken(); rule != nil {
			add(rule.Name)
		}
	}
	return all
}

// lookup returns why a lookup is not as expected.
func (c *Case) lookup(v *cluster.View, e *path.Explanation, expect *Expect) string {
	if e.Name == nil {
		return "nothing is looked up: the target is an address, or the client no Pod"
	}
	if e.Name.Found() == (expect.Outcome == Unresolved) || e.Name.NotKnown() {
		return "got " + e.Name.Summary()
	}
	if len(expect.Values) == 0 {
		return ""
	}
	var want, got []string
	for _, text := range expect.Values {
		namespace, name, ok := strings.Cut(strings.TrimPrefix(text, servicePrefix), "/")
		s := v.Service(cluster.Key{Namespace: namespace, Name: name})
		switch {
		case !ok:
			want = append(want, text)
		case s == nil:
			return fmt.Sprintf("Service %s/%s, which it should resolve to, does not exist", namespace, name)
		default:
			want = append(want, addresses(s.ClusterIPs)...)
		}
	}
	got = append(got, addresses(e.Name.Own)...)
	for _, r := range e.Name.Records {
		if r.Type != "CNAME" {
			got = append(got, r.Data)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		return fmt.Sprintf("it resolves to %s, not to %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
	return ""
}

func addresses(of []netip.Addr) (all []string) {
	for _, a := range of {
		all = append(all, a.String())
	}
	return all
}

// otherEndpoints returns why a connection may reach an endpoint that is none of the values.
func otherEndpoints(c *connection.Explanation, values []string) string {
	if len(values) == 0 {
		return ""
	}
	for i := range c.Attempts {
		for _, u := range c.Attempts[i].Endpoints {
			if u.Used && !slices.Contains(values, u.Pod) && !slices.Contains(values, u.Address) {
				return "it may reach " + strings.TrimSpace(u.Address+" "+u.Pod)
			}
		}
	}
	return ""
}

// otherBackends returns why a Service may serve a request that is none of the values.
func otherBackends(a *request.Answer, values []string) string {
	for i := range a.Backends {
		b := &a.Backends[i]
		if b.Weight > 0 && !isExpected(b.Service, values) {
			return fmt.Sprintf("Service %s may serve it", b.Service)
		}
	}
	return ""
}

// otherServices returns why a URL's host is a Service that is none of the values, or none.
func otherServices(c *connection.Explanation, values []string) string {
	for i := range c.Attempts {
		switch service := c.Attempts[i].Service; {
		case service == "":
			return "it connects to an address that no Service has"
		case !isExpected(service, values):
			return fmt.Sprintf("Service %s serves it", service)
		}
	}
	return ""
}

// isExpected reports whether a Service is among the values; any is if there are none.
func isExpected(service string, values []string) bool {
	return len(values) == 0 || slices.Contains(values, service) || slices.Contains(values, servicePrefix+service)
}

// servicePrefix begins the name of a Service where other objects could be meant.
const servicePrefix = "svc/"
