// Package live compares an explanation with reality: it sends what the client would send, from where the client is, and
// says of each layer what the model has it see, and what it saw.
//
//	origin.go:  the client ─► the network namespace that packets are sent from
//	probe.go:   connections and packets ─► connected, refused, no answer, unreachable
//	name.go:    the lookup, compared with that of the model
//	connect.go: layers service and policy: the address, and the endpoints themselves
//	ask.go:     layers tls, route and backend: one handshake and one request, at the first address that connects
//
// One lookup, one connection to each address and to a few endpoints, and one request are sent, and nothing is sent
// again.
package live

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/request"
)

// The bounds of what is sent and waited for.
const (
	// DefaultWait is how long an answer is waited for: a second SYN is sent after a second.
	DefaultWait = 3 * time.Second
	// Budget is how long all of an explanation takes at most.
	Budget = 45 * time.Second
	// requestTime is how long the answer to a request is waited for: a gateway tries several endpoints.
	requestTime = 15 * time.Second
	// mostAddresses and mostEndpoints are how many addresses are tried, and how many endpoints of each.
	mostAddresses, mostEndpoints = 8, 4
)

// Request is what is compared.
type Request struct {
	Explanation *path.Explanation
	Origin      *Origin
	// Lookup is what became of the lookup; nil if there is none.
	Lookup *Lookup
	// Client and Message are those of the way; nil if there is none.
	Client  *connection.Client
	Message *request.Message
	// Wait is how long an answer is waited for; 0 is DefaultWait.
	Wait time.Duration
	// Unsafe has requests sent whose method may change something.
	Unsafe bool
}

// Lookup is a lookup by the model and with packets.
type Lookup struct {
	Model, Seen *explain.Explanation
	// FromClient: the packets were sent from where the client is, not from where the command runs.
	FromClient bool
	// Server, if it is valid, was queried instead of the cluster DNS.
	Server netip.AddrPort
	Sent   []path.Sent
}

// comparer has the state of Compare.
type comparer struct {
	*Request
	e    *path.Explanation
	lock sync.Mutex // of sent
	sent []path.Sent
	// response is that to the request; nil if there is none.
	response *path.Response
}

// Compare sends packets, and sets Live of the explanation and of its layers. It returns early if the context ends.
func Compare(ctx context.Context, r *Request) {
	c := &comparer{Request: r, e: r.Explanation}
	if c.Wait == 0 {
		c.Wait = DefaultWait
	}
	if c.Lookup != nil {
		c.sent = slices.Clone(c.Lookup.Sent)
	}
	c.name()
	switch {
	case c.Origin.Dialer == nil:
		c.notCompared(c.Origin.Why)
	case c.e.Connection == nil:
		c.notCompared(c.noAddress())
	default:
		c.ask(ctx, c.connect(ctx))
	}
	reality := &path.Reality{From: c.from(), Sent: c.sent, Response: c.response}
	if reality.Sent == nil {
		reality.Sent = []path.Sent{}
	}
	if c.Origin.Why != "" {
		reality.Missing, reality.Run = c.Origin.Why, c.Origin.Run
	}
	for i := range c.e.Steps {
		if s := &c.e.Steps[i]; s.Live.Differs() && reality.Differs == "" {
			reality.Differs = s.Layer
		}
	}
	c.e.Live = reality
}

// from says where the packets were sent from.
func (c *comparer) from() string {
	switch l := c.Lookup; {
	case l == nil || l.FromClient || len(l.Sent) == 0:
		return c.Origin.From
	case len(l.Sent) == len(c.sent):
		return fmt.Sprintf("this machine, not from %s", c.Client)
	}
	return c.Origin.From + "; the lookup from this machine, as --server has it"
}

// noAddress says why there is no connection: the layer of the service does, if there is one.
func (c *comparer) noAddress() string {
	if s := c.e.Step(path.Service); s != nil {
		return s.Says
	}
	return "there is no address to send to"
}

// notCompared says of the layers behind the name why they are not compared.
func (c *comparer) notCompared(why string) {
	for i := range c.e.Steps {
		if s := &c.e.Steps[i]; s.Layer != path.Name && s.Live == nil {
			s.Live = &path.Live{NotCompared: why}
		}
	}
}

// record adds what was sent.
func (c *comparer) record(what, result string, took time.Duration) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.sent = append(c.sent, SentOf(what, result, took))
}

// SentOf returns what was sent, with its result.
func SentOf(what, result string, took time.Duration) path.Sent {
	return path.Sent{What: what, Result: result, Milliseconds: float64(took.Microseconds()) / 1000}
}

// compared returns a comparison.
func compared(expected, seen string, agrees bool, likely ...string) *path.Live {
	l := &path.Live{Expected: expected, Seen: seen, Agrees: &agrees}
	if !agrees {
		l.Likely = likely
	}
	return l
}

// unclear returns a comparison that says nothing.
func unclear(expected, seen, why string, args ...any) *path.Live {
	return &path.Live{Expected: expected, Seen: seen, NotCompared: fmt.Sprintf(why, args...)}
}

// IsSafe reports whether a method changes nothing (RFC 9110, section 9.2.1), so that it is sent unless told not to.
func IsSafe(method string) bool {
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, method)
}
