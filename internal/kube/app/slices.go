package app

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/endpointslices"
	"portolan.dev/portolan/internal/kube/leader"
	kubesettings "portolan.dev/portolan/internal/kube/settings"
)

// writeTimeout limits a write request. A request that hangs delays its Service, or the
// renewal of the Lease, by this time; by default, renewals are retried for twice as
// long. A leader that stops does not wait for it: it cancels its writes.
const writeTimeout = 5 * time.Second

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
	election   *leader.Election // nil if there is no election
	metrics    *slicesMetrics
	working    atomic.Bool
}

// NewSlices returns a Slices. It returns an error if the configuration is invalid or
// names no API server. It starts nothing.
func NewSlices(cfg SlicesConfig) (*Slices, error) {
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	if cfg.Settings.Manifests != "" {
		return nil, errors.New("manifests: a controller writes to an API server; give --kubeconfig FILE")
	}
	s := &Slices{cfg: cfg}
	s.metrics = newSlicesMetrics(s.working.Load)
	return s, s.connect(&compiled.Controller)
}

// connect creates the clients, the controller and the election.
func (s *Slices) connect(settings *kubesettings.CompiledController) error {
	k := &s.cfg.Settings.Kubernetes
	client := api.ClientConfig{
		Kubeconfig: k.Kubeconfig, QPS: float32(k.QPS), Burst: k.Burst, UserAgent: "portolan/" + s.cfg.Version,
	}
	reader, err := api.NewClient(client)
	if errors.Is(err, api.ErrNoCluster) { // the text of that error mentions manifests
		return errors.New("no cluster to write to: not running in a Pod; give --kubeconfig FILE")
	}
	if err != nil {
		return err
	}
	client.Timeout = writeTimeout
	writer, err := api.NewClient(client)
	if err != nil {
		return err
	}
	s.controller = endpointslices.NewController(endpointslices.ControllerConfig{
		Store: s.cfg.Store, Reader: reader, Writer: writer, Namespaces: k.Namespaces,
		MaxEndpoints: settings.MaxEndpoints, Syncs: settings.Syncs, Observer: s.metrics, Log: s.cfg.Log,
	})
	s.metrics.observe(s.controller)
	if settings.Lease == nil {
		return nil
	}
	lease := *settings.Lease
	// Renewals have a separate client, so that they do not wait for other writes.
	if lease.Client, err = api.NewClient(client); err != nil {
		return err
	}
	lease.Log = s.cfg.Log
	s.election, err = leader.New(lease)
	return err
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
		if s.election == nil {
			return s.work(writing)
		}
		return s.election.Run(writing, s.work)
	})
	group.Go(func() error { return s.controller.Follow(running) })
	return ended(ctx, group.Wait())
}

// work writes slices until ctx is done.
func (s *Slices) work(ctx context.Context) error {
	s.working.Store(true)
	defer s.working.Store(false)
	s.cfg.Log.Info("working")
	return s.controller.Work(ctx)
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
