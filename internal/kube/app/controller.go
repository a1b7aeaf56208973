package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/api"
)

// ControllerConfig configures a Controller.
type ControllerConfig struct {
	Settings config.Config
	Version  string
	// Store is filled by a source with the scope that the constructor names.
	Store *cluster.Store
	// Problem returns the first error that prevents reading one of the kinds, or nil.
	Problem func(kinds ...cluster.Kind) error
	Log     *slog.Logger
}

// Controller is a controller that works while its process leads, and reads the model alone.
type Controller struct {
	cfg        ControllerConfig
	name       string
	needs      func() []cluster.Kind
	controller controller
	leading    *leading
	metrics    prometheus.Collector
}

// controller is what a Controller runs.
type controller interface {
	// Missing returns, in words, which kinds have not been read completely yet.
	Missing() []string
	// Work works until ctx is done, and returns ctx's error.
	Work(ctx context.Context) error
}

// Name returns the part's name.
func (c *Controller) Name() string { return c.name }

// Needs returns the kinds of the model that its work depends on.
func (c *Controller) Needs() []cluster.Kind { return c.needs() }

// Bind does nothing: the controller listens on no address.
func (c *Controller) Bind(context.Context) (serving []any, err error) { return nil, nil }

// Close does nothing.
func (c *Controller) Close() {}

// Run works while this process leads, until ctx is done. It then stops writing, releases
// the Lease and returns nil. It returns an error if it loses the Lease.
func (c *Controller) Run(ctx context.Context) error {
	return ended(ctx, c.leading.run(api.WithDebugLog(ctx, c.cfg.Log), c.controller.Work))
}

// Ready describes what is missing until this process works or could take over from the
// leader.
func (c *Controller) Ready() (missing, remarks []string) {
	if missing = c.controller.Missing(); len(missing) > 0 {
		if problem := c.cfg.Problem(c.needs()...); problem != nil {
			missing = append(missing, problem.Error())
		}
	}
	return missing, nil
}

// Metrics returns the collector of the controller's metrics.
func (c *Controller) Metrics() prometheus.Collector { return c.metrics }
