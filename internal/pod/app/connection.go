package app

import (
	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// proxySettings returns the settings of the service proxy.
func (i *Inspector) proxySettings() *connection.Settings {
	p := &i.compiled.Proxy
	return &connection.Settings{
		NodePorts: p.NodePorts, MasqueradeAll: p.Table.MasqueradeAll, Pods: frontend.Pods(p.Table.Pods),
	}
}

// VIPs returns the addresses of Services that a node serves.
func (i *Inspector) VIPs(node string) (all []connection.VIP) {
	i.store.View(func(v *cluster.View) { all = connection.VIPs(v, i.proxySettings(), node) })
	return all
}

// Backends returns the endpoints of the Services that a node serves.
func (i *Inspector) Backends(node string) (all []connection.Backend) {
	i.store.View(func(v *cluster.View) { all = connection.Backends(v, i.proxySettings(), node) })
	return all
}

// HasNode reports whether the cluster has a Node of a name.
func (i *Inspector) HasNode(name string) (has bool) {
	i.store.View(func(v *cluster.View) { has = v.Node(name) != nil })
	return has
}
