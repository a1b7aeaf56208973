package app

import (
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

// Routes lists the HTTPRoutes, and what the gateway makes of them.
func (i *Inspector) Routes() (all []request.Route) {
	i.store.View(func(v *cluster.View) { all = request.NewWorld(v, i.gateway(), i.loaded.Partial...).Routes() })
	return all
}

// Gateways lists the Gateways, and what the gateway makes of them.
func (i *Inspector) Gateways() (all []request.Gateway) {
	i.store.View(func(v *cluster.View) {
		all = request.NewWorld(v, i.gateway(), i.loaded.Partial...).Gateways(time.Now())
	})
	return all
}

// Ingresses lists the Ingresses, and what the gateway makes of them.
func (i *Inspector) Ingresses() (all []request.Ingress) {
	i.store.View(func(v *cluster.View) {
		all = request.NewWorld(v, i.gateway(), i.loaded.Partial...).Ingresses(time.Now())
	})
	return all
}
