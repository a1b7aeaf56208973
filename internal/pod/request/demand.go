package request

import (
	"fmt"
	"net/netip"

	"portolan.dev/portolan/internal/gateway/table"
)

// demands returns what a guard demands of clients, in the order in which it is looked at.
func demands(g *table.Guard) (all []string) {
	if g == nil {
		return nil
	}
	if len(g.Deny) > 0 {
		all = append(all, "an address that is not of "+ranges(g.Deny))
	}
	if len(g.Allow) > 0 {
		all = append(all, "an address of "+ranges(g.Allow))
	}
	for _, l := range g.Limits {
		all = append(all, fmt.Sprintf("at most %d requests in %s", l.Requests, l.Per))
	}
	if g.Concurrent != nil {
		all = append(all, fmt.Sprintf("at most %d requests at once", g.Concurrent.Max))
	}
	if g.BasicAuth != nil {
		all = append(all, fmt.Sprintf("a user's password (realm %q)", g.BasicAuth.Realm))
	}
	if g.External != nil {
		all = append(all, "the consent of "+service(g.External))
	}
	if g.AnyOf && len(all) > 1 {
		all = append(all, "only one of address, password and consent")
	}
	if g.MaxBody > 0 {
		all = append(all, fmt.Sprintf("a body of at most %d octets", g.MaxBody))
	}
	return all
}

// ranges lists ranges of addresses, the first ones.
func ranges(of []netip.Prefix) string {
	var words []string
	for _, p := range of {
		words = append(words, p.String())
	}
	return few(words)
}

// service returns the service that decides on requests.
func service(e *table.ExternalAuth) string {
	if e.Upstream == (table.Upstream{}) {
		return "a service outside the cluster"
	}
	return "Service " + nameOf(e.Upstream)
}
