package app

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/events"
	"portolan.dev/portolan/internal/kube/nodespec"
	kubesettings "portolan.dev/portolan/internal/kube/settings"
)

// NodesConfig configures a Nodes.
type NodesConfig struct {
	Settings config.Config
	Version  string
	// Store is filled by a source with the scope source.Proxy.
	Store *cluster.Store
	// Problem returns the first error that prevents reading one of the kinds, or nil.
	Problem func(kinds ...cluster.Kind) error
	Log     *slog.Logger
}

// Nodes is the controller of the ranges of Pod addresses of Nodes.
type Nodes struct {
	cfg        NodesConfig
	controller *nodespec.Controller
	leading    *leading
	metrics    *nodesMetrics
}

// NewNodes returns a Nodes. It returns an error if the configuration is invalid, or names
// no API server or no ranges. It starts nothing.
func NewNodes(cfg NodesConfig) (*Nodes, error) {
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	if len(compiled.Controller.Nodes) == 0 {
		return nil, errors.New("controller.nodes.clusterCIDRs: no range; give that of all Pods, there or with --cluster-cidr")
	}
	n := &Nodes{cfg: cfg}
	return n, n.connect(&compiled.Controller)
}

// connect creates the clients, the controller and the election.
func (n *Nodes) connect(settings *kubesettings.CompiledController) error {
	client, err := clientConfig(&n.cfg.Settings, n.cfg.Version)
	if err != nil {
		return err
	}
	writer, err := api.NewClient(client)
	if err != nil {
		return err
	}
	if n.leading, err = newLeading(client, settings.LeaseOf("nodes"), n.cfg.Log); err != nil {
		return err
	}
	n.metrics = newNodesMetrics(n)
	n.controller = nodespec.New(nodespec.Config{
		Store: n.cfg.Store, Client: writer, Ranges: settings.Nodes, Writes: settings.Syncs,
		Warn: events.New("portolan.dev/nodes", client).Warn, Wrote: n.metrics.wrote, Log: n.cfg.Log,
	})
	return nil
}

// Name returns the part's name.
func (n *Nodes) Name() string { return "nodes" }

// NodesNeeds returns the kinds of the model that ranges depend on.
func NodesNeeds() []cluster.Kind { return nodespec.Needs() }

// Needs returns the kinds of the model that ranges depend on.
func (n *Nodes) Needs() []cluster.Kind { return NodesNeeds() }

// Bind does nothing: the controller listens on no address.
func (n *Nodes) Bind(context.Context) (serving []any, err error) { return nil, nil }

// Close does nothing.
func (n *Nodes) Close() {}

// Run gives ranges while this process leads, until ctx is done. It then stops writing,
// releases the Lease and returns nil. It returns an error if it loses the Lease.
func (n *Nodes) Run(ctx context.Context) error {
	return ended(ctx, n.leading.run(api.WithDebugLog(ctx, n.cfg.Log), n.controller.Work))
}

// Ready describes what is missing until this process works or could take over from the
// leader.
func (n *Nodes) Ready() (missing, remarks []string) {
	if missing = n.controller.Missing(); len(missing) > 0 {
		if problem := n.cfg.Problem(nodespec.Needs()...); problem != nil {
			missing = append(missing, problem.Error())
		}
	}
	return missing, nil
}

// Metrics returns the collector of the controller's metrics.
func (n *Nodes) Metrics() prometheus.Collector { return n.metrics }
