package nft

import (
	"strings"

	"portolan.dev/portolan/internal/policy/ruleset"
)

// Event is what happened to a packet that was logged.
type Event uint8

// The events.
const (
	// Denied packets were dropped by a rule.
	Denied Event = iota
	// Audited packets would have been dropped, were a policy not in audit mode.
	Audited
	// Unknown packets were dropped since their source, for Egress, or their destination is an address for
	// Pods of the node that no Pod has.
	Unknown
	// Forged packets were dropped since their source is none of the addresses of the Pod whose device they
	// came by.
	Forged
)

// String returns the word for the event in a log prefix.
func (e Event) String() string { return events[min(int(e), len(events)-1)] }

var events = []string{"deny", "audit", "unknown", "forged"}

// Prefix is what the log prefix of a packet says (nft(8), log statement).
type Prefix struct {
	Event     Event
	Direction ruleset.Direction
	// Chain is the name of the ruleset's chain, or of the table's own for Unknown and Forged.
	Chain string
	// Reason is that of the rule.
	Reason string
}

const (
	prefixBegin = "portolan-policy "
	// maxPrefix is the longest log prefix in octets (linux/netfilter/nf_log.h, NF_LOG_PREFIXLEN).
	maxPrefix = 127
)

// String returns the log prefix, such as
//
//	portolan-policy deny in in-5f2a90b1: NetworkPolicy shop/db
//
// of up to 127 octets: a longer Reason is cut.
func (p Prefix) String() string {
	s := prefixBegin + p.Event.String() + " " + directionName(p.Direction) + " " + p.Chain + ": " + p.Reason
	return s[:min(len(s), maxPrefix)]
}

// ParsePrefix reads a log prefix that String returned, and reports whether it is one.
func ParsePrefix(s string) (p Prefix, ok bool) {
	rest, ok := strings.CutPrefix(s, prefixBegin)
	if !ok {
		return p, false
	}
	event, rest, _ := strings.Cut(rest, " ")
	direction, rest, _ := strings.Cut(rest, " ")
	p.Chain, p.Reason, ok = strings.Cut(rest, ": ")
	if !ok || p.Chain == "" {
		return Prefix{}, false
	}
	for i, name := range events {
		for _, d := range []ruleset.Direction{ruleset.Ingress, ruleset.Egress} {
			if event == name && direction == directionName(d) {
				p.Event, p.Direction = Event(i), d
				return p, true
			}
		}
	}
	return Prefix{}, false
}

func directionName(d ruleset.Direction) string {
	if d == ruleset.Ingress {
		return "in"
	}
	return "out"
}
