// Package suite has assertions on who reaches what, and judges them by a model of a cluster.
//
//	FILE ─► read.go: Suite ─► expand.go: cases, one for each client and target ─► podapp: path.Explanation
//	     ─► judge.go: Result
//	     ─► write.go: the first suite, of what a cluster allows today
package suite

import (
	"cmp"
	"fmt"
	"strings"

	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/peer"
	"portolan.dev/portolan/internal/pod/request"
)

// Suite is a file of assertions.
type Suite struct {
	// File is its name, as in messages.
	File  string
	Tests []Test
}

// Test is an assertion on each of some clients with each of some targets.
type Test struct {
	// File and Line are where it begins, from 1.
	File string
	Line int
	// Name says what it is for; it may be empty.
	Name string
	// From are clients and To what they ask for, as Read documents.
	From, To []string
	// Method and Headers are those of the request to a URL, "NAME: VALUE".
	Method  string
	Headers []string
	Expect  Expect
	// By is the policy or the route that decides, or the beginning of its name with the rule; empty is any.
	By string
}

// Outcome is what is expected of a way.
type Outcome string

// The outcomes.
const (
	// Resolves: the host resolves, to all of the values if there are any: addresses, or svc/NAMESPACE/NAME for the cluster
	// IPs of a Service. Unresolved: it does not.
	Resolves   Outcome = "resolves"
	Unresolved Outcome = "unresolved"
	// Connects: packets reach endpoints, whichever is chosen, or leave the cluster for an address outside; endpoints are
	// of the values if there are any, as NAMESPACE/POD or ADDRESS:PORT. Refused and Dropped: they do not, and the client
	// hears so at once, or does not.
	Connects Outcome = "connects"
	Refused  Outcome = "refused"
	Dropped  Outcome = "dropped"
	// Backend: a gateway has a Service of the values serve the request, or any if there is none.
	Backend Outcome = "backend"
	// Status: the gateway itself answers with a status.
	Status Outcome = "status"
	// Redirect: it answers with a redirect to the value.
	Redirect Outcome = "redirect"
)

// Expect is what an assertion expects.
type Expect struct {
	Outcome Outcome
	Values  []string
	Status  int
}

// Case is an assertion on one client and one target.
type Case struct {
	Test *Test
	// From and To name them.
	From, To string
	// Client is a Pod or workload, unless Elsewhere is the place of the client.
	Client    dnsconfig.Subject
	Elsewhere *connection.Client
	// Target is what is asked for: a name alone, a peer, a Pod, or a message.
	Name    string // of a lookup without a connection; else empty
	Peer    peer.Peer
	Pod     *dnsconfig.Subject
	Message *request.Message
	// Namespace is that of a Service that the target names without one.
	Namespace string
}

// Result is what came of a Case.
type Result struct {
	Case
	// Got is what the client would see, and Why why it is not what is expected; empty if it is.
	Got, Why string
	// Explanation is nil if it was not kept.
	Explanation *path.Explanation
	// Seen is what packets saw, and NotSent why that is not known; both are empty if none were to be sent.
	Seen, NotSent string
}

// Compare sets what packets saw by the explanation, which was compared with them. A case whose packets saw something
// else than the model says does not hold.
func (r *Result) Compare() {
	var seen []string
	for i := range r.Explanation.Steps {
		s := &r.Explanation.Steps[i]
		switch l := s.Live; {
		case l == nil || l.Agrees == nil:
		case *l.Agrees:
			seen = append(seen, fmt.Sprintf("%s: %s", s.Layer, l.Seen))
		default:
			seen = append(seen, fmt.Sprintf("%s: %s, expected %s", s.Layer, l.Seen, l.Expected))
			if r.Why == "" {
				r.Why = "packets see something else than the model says: "
			} else {
				r.Why += "; packets see something else: "
			}
			r.Why += seen[len(seen)-1]
		}
	}
	r.Seen = strings.Join(seen, "; ")
	if to := r.refusedBy(); r.Why == "" && to != "" {
		r.Why = "packets come there, and no program listens: " + to + ": " + connection.Refused
	}
	if len(seen) == 0 {
		r.NotSent = cmp.Or(r.Explanation.Live.Missing, notCompared(r.Explanation), "nothing was sent")
	}
}

// refusedBy returns the connection to a Pod by its name, which has no layer service, that was refused although it is
// expected to connect; empty if there is none.
func (r *Result) refusedBy() string {
	if r.Test.Expect.Outcome == Connects && r.Explanation.Step(path.Service) == nil {
		for _, s := range r.Explanation.Live.Sent {
			if s.Result == connection.Refused {
				return s.What
			}
		}
	}
	return ""
}

// notCompared says why the layers are not compared, each reason once.
func notCompared(e *path.Explanation) string {
	var reasons, all []string
	layers := make(map[string][]string)
	for i := range e.Steps {
		s := &e.Steps[i]
		if s.Live == nil {
			continue
		}
		why := s.Live.NotCompared
		if layers[why] == nil {
			reasons = append(reasons, why)
		}
		layers[why] = append(layers[why], string(s.Layer))
	}
	for _, why := range reasons {
		all = append(all, strings.Join(layers[why], ", ")+": "+why)
	}
	return strings.Join(all, "; ")
}

// Passed reports whether the assertion holds.
func (r *Result) Passed() bool { return r.Why == "" }

// Title is what is asserted, in a line.
func (c *Case) Title() string {
	text := fmt.Sprintf("%s → %s: %s", c.From, c.To, &c.Test.Expect)
	if c.Test.By != "" {
		text += " by " + c.Test.By
	}
	if c.Test.Name != "" {
		text = c.Test.Name + ": " + text
	}
	return text
}

// Sentence is what is asserted, and why it does not hold, if it does not.
func (r *Result) Sentence() string {
	if r.Passed() {
		return r.Title()
	}
	return r.Title() + ": " + r.Why
}

// Message is Sentence, with the place in the file.
func (r *Result) Message() string {
	return fmt.Sprintf("%s:%d: %s", r.Test.File, r.Test.Line, r.Sentence())
}

// String returns what is expected, as in "resolves to 10.96.0.7".
func (e *Expect) String() string {
	switch {
	case e.Outcome == Status:
		return fmt.Sprintf("%s %d", Status, e.Status)
	case len(e.Values) > 0:
		return fmt.Sprintf("%s %s", e.Outcome, strings.Join(e.Values, ", "))
	}
	return string(e.Outcome)
}
