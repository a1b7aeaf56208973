package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/endpointslices"
	"portolan.dev/portolan/internal/kube/leader"
	"portolan.dev/portolan/internal/ops/admin"
	"portolan.dev/portolan/internal/ops/metrics"
)

// writeTime bounds a request that writes: one that hangs holds up the Service it is
// for, or the renewal of the Lease, for no longer, and by default renewals are tried
// twice as long. The end of a leader does not wait for it: that breaks off what is
// being written.
const writeTime = 5 * time.Second

// Slices is the controller of EndpointSlices.
type Slices struct {
	cfg        config.Config
	settings   *config.Compiled
	log        *slog.Logger
	source     *api.Source
	controller *endpointslices.Controller
	election   *leader.Election // nil when nobody else does the same
	figures    *metrics.Controller
	working    atomic.Bool
	stopping   atomic.Bool
}

// NewSlices wires a Slices. It fails on a bad configuration, and where there is no
// API server to ask; it starts nothing.
func NewSlices(cfg config.Config, version string, log *slog.Logger) (*Slices, error) {
	settings, err := cfg.Compile()
	if err != nil {
		return nil, err
	}
	if cfg.Manifests != "" {
		return nil, errors.New("manifests: a controller writes to an API server; give --kubeconfig FILE")
	}
	s := &Slices{cfg: cfg, settings: settings, log: log, figures: metrics.NewController(version)}
	store := cluster.NewStore()
	k := &cfg.Kubernetes
	s.source, err = api.New(api.Config{
		Kubeconfig: k.Kubeconfig, Namespaces: k.Namespaces, ServiceSelector: k.ServiceSelector, ForSlices: true, WatchList: k.WatchList,
		QPS: float32(k.QPS), Burst: k.Burst, Silence: time.Duration(k.Silence), UserAgent: "portolan/" + version, Store: store, Log: log,
	})
	switch {
	case errors.Is(err, api.ErrNoCluster): // which knows of manifests
		return nil, errors.New("no cluster to write to: this is no Pod of a cluster; give --kubeconfig FILE")
	case errors.Is(err, api.ErrSelector):
		return nil, fmt.Errorf("kubernetes.serviceSelector: %w", err)
	case err != nil:
		return nil, err
	}
	return s, s.connect(store, version)
}

// connect makes what writes.
func (s *Slices) connect(store *cluster.Store, version string) error {
	k := &s.cfg.Kubernetes
	client := api.ClientConfig{Kubeconfig: k.Kubeconfig, QPS: float32(k.QPS), Burst: k.Burst, UserAgent: "portolan/" + version}
	reader, err := api.NewClient(client)
	if err != nil {
		return err
	}
	client.Timeout = writeTime
	writer, err := api.NewClient(client)
	if err != nil {
		return err
	}
	of := s.settings.Controller
	s.controller = endpointslices.NewController(endpointslices.ControllerConfig{
		Store: store, Reader: reader, Writer: writer, Namespaces: k.Namespaces,
		MaxEndpoints: of.MaxEndpoints, Syncs: of.Syncs, Observer: figures{s.figures}, Log: s.log,
	})
	if of.Lease == nil {
		return nil
	}
	// A renewal must not wait behind what else is written.
	if of.Lease.Client, err = api.NewClient(client); err != nil {
		return err
	}
	of.Lease.Log = s.log
	s.election, err = leader.New(*of.Lease)
	return err
}

// figures takes results as text.
type figures struct{ *metrics.Controller }

func (f figures) Synced(result endpointslices.SyncResult, took time.Duration) {
	f.Controller.Synced(string(result), took)
}

// Serve keeps up the slices of the cluster while it leads, until ctx is done: it
// writes nothing more then, gives the Lease back, and returns nil. It fails when it
// can't begin, and when it leads no more.
func (s *Slices) Serve(ctx context.Context) error {
	limitMemory(s.log)
	s.figures.Watch(s.controller, s.leading)
	var probes *admin.HTTPServer
	if s.settings.Admin.IsValid() {
		err := bindPrivileged(func() (err error) {
			probes, err = admin.Listen(ctx, admin.Config{
				Listen: s.settings.Admin, Ready: s.ready, Metrics: s.figures.Handler(s.log), PProf: s.cfg.Admin.PProf, Log: s.log,
			})
			return withCure(err, "--admin")
		})
		if err != nil {
			return err
		}
		s.log.Info("controller of slices serving", "admin", probes.Addr())
	} else {
		s.log.Info("controller of slices serving")
	}
	return s.run(ctx, probes)
}

// run runs the parts: what writes stops first, then what it needs.
func (s *Slices) run(ctx context.Context, probes *admin.HTTPServer) error {
	others, stopOthers := context.WithCancel(api.WithDebugLog(context.WithoutCancel(ctx), s.log))
	defer stopOthers()
	group, running := errgroup.WithContext(others)
	group.Go(func() error {
		defer stopOthers()
		writing, stop := context.WithCancel(running)
		defer stop()
		defer context.AfterFunc(ctx, func() {
			s.stopping.Store(true)
			s.log.Info("stopping")
			stop()
		})()
		if s.election == nil {
			return s.work(writing)
		}
		return s.election.Run(writing, s.work)
	})
	group.Go(func() error { return s.source.Run(running) })
	group.Go(func() error { return s.controller.Follow(running) })
	if probes != nil {
		group.Go(func() error { return probes.Run(running) })
	}
	err := group.Wait()
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		s.log.Info("stopped")
		return nil
	}
	return err
}

// work writes, and says so.
func (s *Slices) work(ctx context.Context) error {
	s.working.Store(true)
	defer s.working.Store(false)
	s.log.Info("working")
	return s.controller.Work(ctx)
}

func (s *Slices) leading() bool { return s.working.Load() }

// ready says in words what is missing until this process works, or could take
// over from the one that does.
func (s *Slices) ready() (missing, remarks []string) {
	missing = s.controller.Missing()
	if len(missing) > 0 {
		for _, problem := range []error{problemOf(s.source.Status(), cluster.Kinds()...), s.controller.Problem()} {
			if problem != nil {
				missing = append(missing, problem.Error())
			}
		}
	}
	if s.stopping.Load() {
		missing = append(missing, "stopping")
	}
	return missing, nil
}
