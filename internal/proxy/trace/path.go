// Package trace follows packets of a client through the nftables tables of a node: which chains
// of the service proxy and of other programs each packet met, which endpoint it was sent to, or
// who dropped it.
//
//	kernel ─► nft.Trace: events ─► path.go: one Path for each packet ─► text.go
package trace

import (
	"net/netip"
	"slices"
	"time"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
)

// Outcome is what became of a packet.
type Outcome string

// The outcomes.
const (
	Sent     Outcome = "sent"     // it left the node, or went to a Pod on it
	Received Outcome = "received" // by a program on the node
	Rejected Outcome = "rejected" // with a TCP reset or ICMP port unreachable
	Dropped  Outcome = "dropped"
	Lost     Outcome = "lost" // no rule dropped it, and it did not leave
)

// Path is what became of a packet.
type Path struct {
	// From and To are the source and the destination that the client sent it to.
	From netip.AddrPort `json:"from"`
	To   Destination    `json:"to"`
	// In is the interface that it arrived at; empty for one of the node's own.
	In    string `json:"in,omitempty"`
	Steps []Step `json:"steps"`

	Outcome Outcome `json:"outcome"`
	// By is the chain that rejected or dropped it, and Why the reason, if it is the proxy's.
	By  *Place `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
	// Endpoint, Source and Out are, of a packet that was sent or received, its destination and its
	// source then, and the interface.
	Endpoint *Destination    `json:"endpoint,omitempty"`
	Source   *netip.AddrPort `json:"source,omitempty"`
	Out      string          `json:"out,omitempty"`
}

// Destination is where a packet is sent.
type Destination struct {
	Address  netip.AddrPort `json:"address"`
	Protocol string         `json:"protocol"`
	// Name is the Service or the Pod that has the address; empty if it is not known.
	Name string `json:"name,omitempty"`
}

// Step is the way of a packet through the chains of one table at one hook.
type Step struct {
	Table   string   `json:"table"` // family and name
	Chains  []string `json:"chains"`
	Verdict string   `json:"verdict"`
}

// Place is a rule, or the policy of a chain.
type Place struct {
	Table string `json:"table"`
	Chain string `json:"chain"`
	Rule  uint64 `json:"rule,omitempty"` // handle; 0 is the policy
}

// Masqueraded reports whether the source became another address.
func (p *Path) Masqueraded() bool { return p.Source != nil && p.Source.Addr() != p.From.Addr() }

// Translated reports whether the destination became another one.
func (p *Path) Translated() bool { return p.Endpoint != nil && p.Endpoint.Address != p.To.Address }

// Names name addresses.
type Names struct {
	Services map[frontend.Address]string
	Pods     map[netip.Addr]string
}

const (
	// silence is how long after its last event a packet is Lost.
	silence = time.Second
	// mostSteps and mostChains are how many tables, and chains of one, are kept of a packet.
	mostSteps, mostChains = 64, 64
)

// Assembler makes Paths of events. It is for one goroutine.
type Assembler struct {
	table string // of the service proxy
	names Names
	open  map[uint32]*packet
}

// packet is a Path that is not complete.
type packet struct {
	Path
	last time.Time
}

// NewAssembler returns an Assembler, given the name of the service proxy's tables.
func NewAssembler(table string, names Names) *Assembler {
	return &Assembler{table: table, names: names, open: make(map[uint32]*packet)}
}

// Add adds an event, and returns the Path that it completes; nil if it completes none.
func (a *Assembler) Add(e nft.TraceEvent, now time.Time) (done *Path) {
	p := a.open[e.Packet]
	if e.Begins && e.Headers != nil {
		if p != nil {
			done = a.end(e.Packet, Lost)
		}
		a.open[e.Packet] = &packet{last: now, Path: Path{
			From: e.Headers.Source, To: a.destination(e.Headers), In: e.Headers.In, Steps: []Step{},
		}}
		return done
	}
	if p == nil { // traced for another program
		return nil
	}
	p.last = now
	switch {
	case e.Begins:
		return nil
	case e.Ends && e.Headers != nil:
		to := a.destination(e.Headers)
		if to.Name == "" || to.Address != p.To.Address {
			to.Name = a.names.Pods[to.Address.Addr()]
		}
		p.Endpoint, p.Source, p.Out = &to, &e.Headers.Source, e.Headers.Out
		if e.Hook == nft.TraceInput {
			return a.end(e.Packet, Received)
		}
		return a.end(e.Packet, Sent)
	}
	p.step(e)
	if e.Verdict != "drop" {
		return nil
	}
	p.By = &Place{Table: e.Table, Chain: e.Chain, Rule: e.Rule}
	outcome := Dropped
	if last := p.Steps[len(p.Steps)-1]; nft.OfProxy(e.Table, a.table) {
		var rejected bool
		if p.Why, rejected = nft.WhyDropped(last.Chains); rejected {
			outcome = Rejected
		}
	}
	return a.end(e.Packet, outcome)
}

// Expire returns the Paths of packets that have had no event for a while.
func (a *Assembler) Expire(now time.Time) (done []*Path) {
	for id, p := range a.open {
		if now.Sub(p.last) >= silence {
			done = append(done, a.end(id, Lost))
		}
	}
	slices.SortFunc(done, func(p, q *Path) int { return p.From.Compare(q.From) })
	return done
}

func (a *Assembler) end(id uint32, outcome Outcome) *Path {
	p := a.open[id]
	delete(a.open, id)
	p.Outcome = outcome
	return &p.Path
}

// step adds an event to the steps.
func (p *packet) step(e nft.TraceEvent) {
	if e.Headers != nil || len(p.Steps) == 0 {
		if len(p.Steps) == mostSteps {
			return
		}
		p.Steps = append(p.Steps, Step{Table: e.Table})
	}
	s := &p.Steps[len(p.Steps)-1]
	s.visit(e.Chain)
	switch e.Verdict {
	case "jump", "goto":
		s.visit(e.Target)
	default:
		s.Verdict = e.Verdict
	}
}

// visit adds a chain, once when it is met again and again.
func (s *Step) visit(chain string) {
	if len(s.Chains) < mostChains && !slices.Contains(s.Chains, chain) {
		s.Chains = append(s.Chains, chain)
	}
}

func (a *Assembler) destination(h *nft.TraceHeaders) Destination {
	at := frontend.Address{Addr: h.Destination.Addr(), Protocol: h.Protocol, Port: h.Destination.Port()}
	return Destination{Address: h.Destination, Protocol: h.Protocol.String(), Name: a.names.Services[at]}
}
