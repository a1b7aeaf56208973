package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// The longest texts of a ruleset.
const (
	maxComment = 120
	maxReason  = 80
)

// Reasons that are not those of policies.
const (
	reasonUnknownPod = "Pod is not known yet"
	// reasonDNS comes before the reason why the cluster DNS is denied.
	reasonDNS = "cluster DNS: "
)

// hashed returns a name that depends on a text: a prefix of at most seven octets and 24 digits.
func hashed(prefix, text string) string {
	sum := sha256.Sum256([]byte(text))
	return prefix + hex.EncodeToString(sum[:12])
}

// printable returns a text without what rulesets can't have, and at most so long.
func printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return '?'
		}
		return r
	}, text)
	if len(text) > most {
		return text[:most-3] + "..."
	}
	return text
}

// tierReason is the reason of the rule i of a ClusterNetworkPolicy.
func tierReason(p *cluster.ClusterNetworkPolicy, d ruleset.Direction, i int) string {
	const kind = "ClusterNetworkPolicy "
	place := ", " + cluster.RulePath(d.String(), i)
	return kind + printable(p.Name, maxReason-len(kind)-len(place)) + place
}

// isolationReason is the reason why NetworkPolicies that apply deny what none of them allows.
func isolationReason(policies []*policy) string {
	const before, after = "no policy of ", " allows it"
	if len(policies) == 1 {
		const before = "no rule of "
		return before + printable(policies[0].ref.Key.String(), maxReason-len(before)-len(after)) + after
	}
	text, n := before, 0
	for i, p := range policies {
		name := p.ref.Key.String()
		if i > 0 {
			name = ", " + name
		}
		const rest = len(after) + len(" (+1000)")
		if i > 0 && len(text)+len(name)+rest > maxReason {
			break
		}
		text += printable(name, maxReason-len(before)-rest)
		n++
	}
	text += after
	if more := len(policies) - n; more > 0 {
		text += fmt.Sprintf(" (+%d)", more)
	}
	return text
}
