package compile

import (
	"encoding/hex"
	"fmt"
	"net/textproto"
	"path"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

const (
	// defaultRetries is how often a request is sent again if HTTPRouteRetry.attempts is not set, and maxRetries how often
	// at most.
	defaultRetries, maxRetries = 2, 10
)

// experimental adds what the fields of the experimental channel say to a Rule. Without the setting they have no effect,
// but for filters, which must not be skipped (HTTPRouteFilter.type).
func (r *ruler) experimental(rule *table.Rule, from *cluster.RouteRule) error {
	for i := range from.Backends {
		for n := range from.Backends[i].Filters {
			if from.Backends[i].Filters[n].Type == cluster.ExternalAuthFilter {
				return refuse("UnsupportedValue", "filter type ExternalAuth is for rules, and not for backendRefs")
			}
		}
	}
	for i := range from.Filters {
		f := &from.Filters[i]
		if f.Type != cluster.ExternalAuthFilter {
			continue
		}
		if !r.cfg.Experimental {
			return refuse("UnsupportedValue", "filter type ExternalAuth is not supported without gateway.experimental")
		}
		rule.Guard = &table.Guard{External: r.externalAuth(f.External)}
	}
	if !r.cfg.Experimental {
		for field, set := range map[string]bool{
			"retry": from.Retry != nil, "sessionPersistence": from.Session != nil,
		} {
			if set {
				r.note(rule, field+" has no effect without gateway.experimental")
			}
		}
		return nil
	}
	if from.Retry != nil {
		rule.Retry = r.retry(rule, from.Retry)
	}
	if from.Session != nil {
		rule.Persistence = r.persistence(rule, from.Session)
	}
	return nil
}

// note says something of a rule that is served.
func (r *ruler) note(rule *table.Rule, text string) {
	r.rules.notes = append(r.rules.notes, fmt.Sprintf("rule %d: %s", rule.Index, text))
	slices.Sort(r.rules.notes)
}

// retry compiles HTTPRouteRetry.
func (r *ruler) retry(rule *table.Rule, from *cluster.RouteRetry) *table.Retry {
	made := &table.Retry{Codes: from.Codes, Attempts: from.Attempts, Backoff: from.Backoff.Limit}
	switch {
	case made.Attempts == 0:
		made.Attempts = defaultRetries
	case made.Attempts > maxRetries:
		made.Attempts = maxRetries
		r.note(rule, fmt.Sprintf("retry.attempts is %d, of which %d are made", from.Attempts, maxRetries))
	}
	return made
}

// persistence compiles SessionPersistence. Each rule has sessions of its own, under a name of its own unless it is set.
func (r *ruler) persistence(rule *table.Rule, from *cluster.RouteSession) *table.Persistence {
	made := &table.Persistence{
		Header: from.Header, Name: from.Name, Absolute: from.Absolute.Limit,
		Key: table.PersistenceKey(from.UID, rule.Object, strconv.Itoa(rule.Index), rule.Name),
	}
	if from.Permanent {
		made.MaxAge = from.Absolute.Limit
	}
	if made.Name == "" {
		of := table.PersistenceKey("name", rule.Object, strconv.Itoa(rule.Index), rule.Name) // which tells no key
		const octets = 4
		made.Name = "portolan-session-" + hex.EncodeToString(of[:octets])
	}
	if made.Header {
		made.Name = textproto.CanonicalMIMEHeaderKey(made.Name)
	}
	return made
}

// externalAuth compiles HTTPExternalAuthFilter. If its backend is invalid all requests are refused.
func (r *ruler) externalAuth(from *cluster.ExternalAuth) *table.ExternalAuth {
	made := &table.ExternalAuth{
		RequestHeaders: canonical(
			from.RequestHeaders,
		),
		ResponseHeaders: canonical(from.ResponseHeaders),
		MaxBody:         from.MaxBody,
	}
	up, problem := r.upstream(&from.Backend)
	switch {
	case problem != nil:
		r.unresolved(problem)
		made.Reason = table.Reason(problem.Message)
		return made
	case from.GRPC:
		made.Kind, up.Protocol = table.AuthGRPC, table.H2C
	case from.Path != "":
		made.Path = strings.TrimSuffix(path.Clean("/"+from.Path), "/")
	}
	made.Upstream = up
	return made
}

// canonical returns names of headers in canonical form; nil for none.
func canonical(names []string) (all []string) {
	for _, name := range names {
		all = append(all, textproto.CanonicalMIMEHeaderKey(name))
	}
	return all
}
