package request

import (
	"cmp"
	"net/http"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
)

// Unreached says of a Service's port that none of its endpoints answers a connection of the gateway, as where policies
// drop its packets: the gateway answers requests for it itself. A connection that it keeps from before may go on, and a
// request on it has no answer if the packets of that are dropped, too.
func (e *Explanation) Unreached(service string, port uint16) {
	for i := range e.Answers {
		a := &e.Answers[i]
		for k := range a.Backends {
			b := &a.Backends[k]
			if b.Service == service && b.Port == port && b.Status == 0 {
				b.Status, b.Reason = a.unreached(len(b.Endpoints))
			}
		}
		if len(a.Backends) == 1 && a.Status == 0 {
			a.Status, a.Reason = a.Backends[0].Status, a.Backends[0].Reason
		}
	}
	if a := e.Answer(); a != nil {
		e.Outcome = a.outcome()
	}
}

// unreached returns what the gateway answers if none of n endpoints does: the rule's timeouts may end before all of
// them were tried.
func (a *Answer) unreached(n int) (status int, reason string) {
	status, reason = http.StatusBadGateway, string(table.Unreachable)
	taken := a.Taken()
	if taken == nil || a.Stream {
		return status, reason
	}
	rule := taken.route.Rule
	within := cmp.Or(rule.Connect, table.DialTimeout)
	tries := min(n, table.MaxAttempts)
	switch r := rule.Retry; {
	case r == nil:
	case r.CodesOnly:
		tries = 1
	default:
		tries = r.Attempts + 1
		if r.Within > 0 {
			tries = min(tries, 1+int(r.Within/within))
		}
	}
	late := rule.Request > 0 && (rule.Request <= within || rule.Request < within*time.Duration(tries))
	if late || rule.BackendRequest > 0 && rule.BackendRequest <= within {
		status, reason = http.StatusGatewayTimeout, string(table.TimedOut)
	}
	return status, reason
}
