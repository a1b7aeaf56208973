package app

import (
	"errors"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/events"
	"portolan.dev/portolan/internal/kube/nodespec"
)

// NewNodes returns the controller of the ranges of Pod addresses of Nodes, for the scope source.Proxy. It returns an
// error if the configuration is invalid, or names no API server or no ranges. It starts nothing.
func NewNodes(cfg ControllerConfig) (*Controller, error) {
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	settings := &compiled.Controller
	if len(settings.Nodes) == 0 {
		return nil, errors.New("controller.nodes.clusterCIDRs: no range; give that of all Pods, there or with --cluster-cidr")
	}
	client, err := clientConfig(&cfg.Settings, cfg.Version)
	if err != nil {
		return nil, err
	}
	writer, err := api.NewClient(client)
	if err != nil {
		return nil, err
	}
	leading, err := newLeading(client, settings.LeaseOf("nodes"), cfg.Log)
	if err != nil {
		return nil, err
	}
	metrics := newNodesMetrics(leading)
	metrics.of = nodespec.New(nodespec.Config{
		Store: cfg.Store, Client: writer, Ranges: settings.Nodes, Writes: settings.Syncs,
		Warn: events.New("portolan.dev/nodes", client).Warn, Wrote: metrics.wrote, Log: cfg.Log,
	})
	return &Controller{
		cfg: cfg, name: "nodes", needs: NodesNeeds, controller: metrics.of, leading: leading, metrics: metrics,
	}, nil
}

// NodesNeeds returns the kinds of the model that ranges depend on.
func NodesNeeds() []cluster.Kind { return nodespec.Needs() }
