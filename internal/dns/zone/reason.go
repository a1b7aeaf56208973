package zone

import "portolan.dev/portolan/internal/dns/dnswire"

// Reason is why an answer is negative, or not what the zones have. Its text is stable: logs,
// metrics and alerts refer to it. The zero value stands for the reason that the code of the
// EDE implies.
type Reason uint8

// The reasons.
const (
	Implied Reason = iota
	NoNamespace
	NoService
	NoPort
	NoEndpoint
	NoAddress
	NoEndpoints
	NoneReady
	TargetAddress
	TargetInvalid
	NoPod
	NoPodAddress
	PodsDisabled
	AliasLoop
	NotLoaded
	StaleData
	Blocked
	NotAllowed
	NoUpstream
	UpstreamFailed
	Other
	Reasons // how many there are
)

var reasonTexts = [Reasons]string{
	Implied:        "",
	NoNamespace:    "no-namespace",
	NoService:      "no-service",
	NoPort:         "no-port",
	NoEndpoint:     "no-endpoint",
	NoAddress:      "no-address",
	NoEndpoints:    "no-endpoints",
	NoneReady:      "none-ready",
	TargetAddress:  "target-is-address",
	TargetInvalid:  "target-invalid",
	NoPod:          "no-pod",
	NoPodAddress:   "no-pod-address",
	PodsDisabled:   "pods-disabled",
	AliasLoop:      "alias-loop",
	NotLoaded:      "not-loaded",
	StaleData:      "stale",
	Blocked:        "blocked",
	NotAllowed:     "not-allowed",
	NoUpstream:     "no-upstream",
	UpstreamFailed: "upstream-failed",
	Other:          "other",
}

// String returns the text of the reason.
func (r Reason) String() string { return reasonTexts[r] }

// Why returns the reason of an EDE: Implied for nil, which has none.
func (e *EDE) Why() Reason {
	switch {
	case e == nil:
		return Implied
	case e.Reason != Implied:
		return e.Reason
	case e.Code == dnswire.EDENotReady:
		return NotLoaded
	case e.Code == dnswire.EDEStale || e.Code == dnswire.EDEStaleNXDomain:
		return StaleData
	case e.Code == dnswire.EDEBlocked || e.Code == dnswire.EDEFiltered:
		return Blocked
	case e.Code == dnswire.EDEProhibited:
		return NotAllowed
	case e.Code == dnswire.EDENotAuthoritative:
		return NoUpstream
	case e.Code == dnswire.EDENoReachable || e.Code == dnswire.EDENetworkError:
		return UpstreamFailed
	}
	return Other
}
