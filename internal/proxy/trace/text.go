package trace

import (
	"fmt"
	"net/netip"
	"strings"
)

// String returns the Path in some lines, the first of which is the packet and the last its
// outcome.
func (p *Path) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s → %s", bare(p.From), p.To)
	if p.In != "" {
		fmt.Fprintf(&b, ", in through %s", p.In)
	}
	b.WriteString("\n")
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "  %s: %s: %s\n", s.Table, strings.Join(s.Chains, " → "), s.Verdict)
	}
	fmt.Fprintf(&b, "  %s\n", p.outcome())
	return b.String()
}

// outcome returns what became of the packet.
func (p *Path) outcome() string {
	switch p.Outcome {
	case Sent, Received:
		return p.arrival()
	case Lost:
		return "lost: no rule dropped it, and it did not leave (no route, the reverse-path filter, or iptables-legacy)"
	}
	text := fmt.Sprintf("%s by %s, chain %s", p.Outcome, p.By.Table, p.By.Chain)
	switch {
	case p.Why != "":
		return text + ": " + p.Why
	case p.By.Rule == 0:
		return text + ", by its policy: a table of another program"
	}
	return fmt.Sprintf("%s, rule handle %d: a table of another program", text, p.By.Rule)
}

// arrival returns where the packet went.
func (p *Path) arrival() string {
	var b strings.Builder
	to := p.Endpoint.String()
	switch {
	case p.Outcome == Received:
		fmt.Fprintf(&b, "received by the node at %s", to)
	case p.Out != "":
		fmt.Fprintf(&b, "sent to %s through %s", to, p.Out)
	default:
		fmt.Fprintf(&b, "sent to %s", to)
	}
	switch {
	case !p.Translated():
		b.WriteString(", its destination unchanged")
	case !p.looked():
		b.WriteString(", as connection tracking remembers")
	}
	if p.Masqueraded() {
		fmt.Fprintf(&b, ", masqueraded as %s", p.Source.Addr())
	} else {
		b.WriteString(", with its own source")
	}
	return b.String()
}

// looked reports whether the packet met a chain that could translate it: not if its connection is
// known.
func (p *Path) looked() bool {
	for _, s := range p.Steps {
		if len(s.Chains) > 1 {
			return true
		}
	}
	return false
}

// String returns the destination with its name.
func (d Destination) String() string {
	text := bare(d.Address)
	if d.Address.Port() != 0 {
		text += "/" + d.Protocol
	} else {
		text += ", " + d.Protocol
	}
	if d.Name != "" {
		text += " (" + d.Name + ")"
	}
	return text
}

// bare returns an address, without a port that protocols without ports do not have.
func bare(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}
