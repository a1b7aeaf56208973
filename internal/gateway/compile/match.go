package compile

import (
	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// MatchOf compiles a match of an HTTPRoute, whether the route is accepted or not. Its error says why no
// request can be compared with it.
func MatchOf(m *cluster.RouteMatch) (table.Match, error) { return match(m) }

// PathMatchOf is MatchOf for a path of an Ingress.
func PathMatchOf(p *cluster.IngressPath) (table.Match, error) { return ingressMatch(p) }
