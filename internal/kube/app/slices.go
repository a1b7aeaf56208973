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

// writeTimeout bounds a request that writes: one that hangs holds up the Service it
// is for, or the renewal of the Lease, for no longer, and by default renewals are
// tried twice as long. The end of a leader does not wait for it: that breaks off
// what is being written.
const writeTimeout = 5 * time.Second

// SlicesConfig is what a Slices is made from.
type SlicesConfig struct {
	Settings config.Config
	Version  string
	// Store is filled by a source of the scope source.Slices.
	Store *cluster.Store
	// Problem is why the first of the kinds cannot be read.
	Problem func(kinds ...cluster.Kind) error
	Log     *slog.Logger
}

// Slices is the EndpointSlice controller.
type Slices struct {
	cfg        SlicesConfig
	controller *endpointslices.Controller
	election   *leader.Election // nil when there is no election
	metrics    *slicesMetrics
	working    atomic.Bool
}

// NewSlices makes a Slices. It fails on a bad configuration, and where there is no
// API server to write to; it starts nothing.
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

// connect makes what writes.
func (s *Slices) connect(settings *kubesettings.CompiledController) error {
	k := &s.cfg.Settings.Kubernetes
	client := api.ClientConfig{
		Kubeconfig: k.Kubeconfig, QPS: float32(k.QPS), Burst: k.Burst, UserAgent: "portolan/" + s.cfg.Version,
	}
	reader, err := api.NewClient(client)
	if errors.Is(err, api.ErrNoCluster) { // whose text names manifests
		return errors.New("no cluster to write to: this is no Pod of a cluster; give --kubeconfig FILE")
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
	// A renewal must not wait behind what else is written.
	if lease.Client, err = api.NewClient(client); err != nil {
		return err
	}
	lease.Log = s.cfg.Log
	s.election, err = leader.New(lease)
	return err
}

// Name is the part's name.
func (s *Slices) Name() string { return "slices" }

// SlicesNeeds lists the kinds of the model that slices are made from.
func SlicesNeeds() []cluster.Kind { return endpointslices.ReadKinds() }

// Needs lists the kinds of the model that slices are made from.
func (s *Slices) Needs() []cluster.Kind { return SlicesNeeds() }

// Bind binds nothing.
func (s *Slices) Bind(context.Context) (serving []any, err error) { return nil, nil }

// Close has nothing to give back.
func (s *Slices) Close() {}

// Run keeps up the slices of the cluster while this process leads, until ctx is
// done: it writes nothing more then, gives the Lease back and returns nil. It fails
// when it no longer leads.
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

// Ready lists in words what is missing until this process works, or could take
// over from the leader.
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

// Metrics collects the metrics of the controller.
func (s *Slices) Metrics() prometheus.Collector { return s.metrics }
