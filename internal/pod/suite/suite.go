// Package suite has assertions on who reaches what, and judges them by a model of a cluster.
//
//	FILE ─► read.go: Suite ─► expand.go: cases, one for each client and target ─► podapp: path.Explanation
//	     ─► judge.go: Result
//	     ─► write.go: the first suite, of what a cluster allows today
package suite

import (
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
	// Connects: packets reach endpoints, whichever is chosen; those are of the values if there are any, as NAMESPACE/POD
	// or ADDRESS:PORT. Refused and Dropped: they do not, and the client hears so at once, or does not.
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
	// Explanation is nil if the Case could not be judged, which is an error of Why.
	Explanation *path.Explanation
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

// Sentence is what is asserted, and why it does not hold.
func (r *Result) Sentence() string { return r.Title() + ": " + r.Why }

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
