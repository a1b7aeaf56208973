package app

import (
	"context"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/pod/request"
)

// gateway returns whose Ingresses and Gateways are served, and where.
func (i *Inspector) gateway() compile.Config {
	c := i.compiled.Gateway.Compile
	c.Unclassed = !i.observed
	return c
}

// HTTPRequest is the input of Request.
type HTTPRequest struct {
	Message request.Message
	// DNS is how the host is looked up; nil if no Pod sends the request.
	DNS *Question
}

// Request explains what becomes of an HTTP request.
func (i *Inspector) Request(ctx context.Context, q HTTPRequest) (e *request.Explanation) {
	r := request.Request{Gateway: i.gateway(), Message: q.Message, Now: time.Now(), Partial: i.loaded.Partial}
	var node NodeSettings
	if q.DNS != nil {
		q.DNS.Name, node = q.Message.Name, q.DNS.Node
		if !q.Message.HasAddress() {
			r.DNS = i.Explain(ctx, *q.DNS)
		}
	}
	i.store.View(func(v *cluster.View) {
		r.View, r.Linter = v, i.rules(v, node)
		e = request.Explain(&r)
	})
	return e
}

// Routes lists the HTTPRoutes, and what the gateway makes of them.
func (i *Inspector) Routes() (all []request.Route) {
	i.store.View(func(v *cluster.View) { all = request.NewWorld(v, i.gateway(), i.loaded.Partial...).Routes() })
	return all
}

// Gateways lists the Gateways, and what the gateway makes of them.
func (i *Inspector) Gateways() (all []request.Gateway) {
	i.store.View(func(v *cluster.View) { all = request.NewWorld(v, i.gateway(), i.loaded.Partial...).Gateways() })
	return all
}

// Ingresses lists the Ingresses, and what the gateway makes of them.
func (i *Inspector) Ingresses() (all []request.Ingress) {
	i.store.View(func(v *cluster.View) { all = request.NewWorld(v, i.gateway(), i.loaded.Partial...).Ingresses() })
	return all
}
