package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/endpointslices"
	kubesettings "portolan.dev/portolan/internal/kube/settings"
)

// SlicesConfig configures a Slices.
type SlicesConfig struct {
	Settings config.Config
	Version  string
	// Store is filled by a source with the scope source.Slices.
	Store *cluster.Store
	// Problem returns the first error that prevents reading one of the kinds, or nil.
	Problem func(kinds ...cluster.Kind) error
	Log     *slog.Logger
}

// Slices is the EndpointSlice controller.
type Slices struct {
	cfg        SlicesConfig
	controller *endpointslices.Controller
	leading    *leading
	metrics    *slicesMetrics
}

// NewSlices returns a Slices. It returns an error if the configuration is invalid or
// names no API server. It starts nothing.
func NewSlices(cfg SlicesConfig) (*Slices, error) {
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	s := &Slices{cfg: cfg}
	return s, s.connect(&compiled.Controller)
}

// connect creates the clients, the controller and the election.
func (s *Slices) connect(settings *kubesettings.CompiledController) error {
	client, err := clientConfig(&s.cfg.Settings, s.cfg.Version)
	if err != nil {
		return err
	}
	reading := client
	reading.Timeout = 0 // of watches
	reader, err := api.NewClient(reading)
	if err != nil {
		return err
	}
	writer, err := api.NewClient(client)
	if err != nil {
		return err
	}
	if s.leading, err = newLeading(client, settings.LeaseOf("slices"), s.cfg.Log); err != nil {
		return err
	}
	s.metrics = newSlicesMetrics(s.leading.working.Load)
	s.controller = endpointslices.NewController(endpointslices.ControllerConfig{
		Store: s.cfg.Store, Reader: reader, Writer: writer, Namespaces: s.cfg.Settings.Kubernetes.Namespaces,
		MaxEndpoints: settings.MaxEndpoints, Syncs: settings.Syncs, Observer: s.metrics, Log: s.cfg.Log,
	})
	s.metrics.observe(s.controller)
	return nil
}

// Name returns the part's name.
func (s *Slices) Name() string { return "slices" }

// SlicesNeeds returns the kinds of the model that slices are made from.
func SlicesNeeds() []cluster.Kind { return endpointslices.ReadKinds() }

// Needs returns the kinds of the model that slices are made from.
func (s *Slices) Needs() []cluster.Kind { return SlicesNeeds() }

// Bind does nothing: the controller listens on no address.
func (s *Slices) Bind(context.Context) (serving []any, err error) { return nil, nil }

// Close does nothing.
func (s *Slices) Close() {}

// Run maintains the slices of the cluster while this process leads, until ctx is done.
// It then stops writing, releases the Lease and returns nil. It returns an error if it
// loses the Lease.
func (s *Slices) Run(ctx context.Context) error {
	others, stopOthers := context.WithCancel(api.WithDebugLog(context.WithoutCancel(ctx), s.cfg.Log))
	defer stopOthers()
	group, running := errgroup.WithContext(others)
	group.Go(func() error {
		defer stopOthers()
		writing, stop := context.WithCancel(running)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		return s.leading.run(writing, s.controller.Work)
	})
	group.Go(func() error { return s.controller.Follow(running) })
	return ended(ctx, group.Wait())
}

// Ready describes what is missing until this process works or could take over from the
// leader.
func (s *Slices) Ready() (missing, remarks []string) {
	missing = s.controller.Missing()
	if len(missing) > 0 {
		for _, problem := range []error{s.cfg.Problem(cluster.Kinds()...), s.controller.Problem()} {
			if problem != nil {
				missing = append(missing, problem.Error())
			}
		}
	}
	return missing, nil
}

// Metrics returns the collector of the controller's metrics.
func (s *Slices) Metrics() prometheus.Collector { return s.metrics }
