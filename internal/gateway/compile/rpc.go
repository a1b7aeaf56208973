package compile

import (
	"cmp"
	"net/textproto"
	"regexp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// anyName is the expression of any service or method.
const anyName = "[^/]+"

// rpcMatch compiles a match of a GRPCRoute. The path of a request of gRPC is "/{service}/{method}" (gRPC over HTTP/2,
// "Requests").
func rpcMatch(from *cluster.RouteMatch) (m table.Match, err error) {
	rpc := &from.RPC
	m.AnyService = rpc.Service == ""
	switch {
	case rpc.Service == "" && rpc.Method == "":
		m.Kind, m.Path = table.Prefix, "/"
	case !rpc.Regex && rpc.Method == "":
		m.Kind, m.Path = table.Prefix, "/"+rpc.Service
	case !rpc.Regex && rpc.Service != "":
		m.Kind, m.Path = table.Exact, "/"+rpc.Service+"/"+rpc.Method
	case !rpc.Regex:
		m.Kind, m.Path = table.Expression, "/"+anyName+"/"+regexp.QuoteMeta(rpc.Method)
	default:
		for _, part := range []string{rpc.Service, rpc.Method} {
			if _, err := regexp.Compile(part); err != nil {
				return m, refuse("UnsupportedValue", "method: %v", err)
			}
		}
		m.Kind, m.Path = table.Expression, "/(?:"+cmp.Or(rpc.Service, anyName)+")/(?:"+cmp.Or(rpc.Method, anyName)+")"
	}
	if m.Kind == table.Expression {
		m.Whole, err = table.CompileWhole(m.Path)
	} else {
		m.Path, err = table.Normalize(m.Path)
	}
	if err != nil {
		return m, refuse("UnsupportedValue", "method: %v", err)
	}
	m.Headers, err = values(from.Headers, textproto.CanonicalMIMEHeaderKey)
	return m, err
}
