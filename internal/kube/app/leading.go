package app

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/leader"
)

// writeTimeout limits a write request. A request that hangs delays its object, or the
// renewal of the Lease, by this time; by default, renewals are retried for twice as
// long. A leader that stops does not wait for it: it cancels its writes.
const writeTimeout = 5 * time.Second

// clientConfig configures the clients of a controller. It returns an error if the settings
// name no API server.
func clientConfig(settings *config.Config, version string) (api.ClientConfig, error) {
	k := &settings.Kubernetes
	client := api.ClientConfig{
		Kubeconfig: k.Kubeconfig, QPS: float32(k.QPS), Burst: k.Burst, Timeout: writeTimeout,
		UserAgent: "portolan/" + version,
	}
	if settings.Manifests != "" {
		return client, errors.New("manifests: a controller writes to an API server; give --kubeconfig FILE")
	}
	_, err := api.NewClient(client)
	if errors.Is(err, api.ErrNoCluster) { // the text of that error mentions manifests
		err = errors.New("no cluster to write to: not running in a Pod; give --kubeconfig FILE")
	}
	return client, err
}

// leading is the part of a controller's process in its election.
type leading struct {
	election *leader.Election // nil if there is no election
	working  atomic.Bool
	log      *slog.Logger
}

// newLeading returns a leading for an election; nil is none.
func newLeading(client api.ClientConfig, lease *leader.Config, log *slog.Logger) (*leading, error) {
	l := &leading{log: log}
	if lease == nil {
		return l, nil
	}
	var err error
	// Renewals have a separate client, so that they do not wait for other writes.
	if lease.Client, err = api.NewClient(client); err != nil {
		return nil, err
	}
	lease.Log = log
	l.election, err = leader.New(*lease)
	return l, err
}

// run calls work once this process leads, and returns its error, ErrLost when it loses the
// Lease, or ctx's. It releases the Lease.
func (l *leading) run(ctx context.Context, work func(context.Context) error) error {
	marked := func(ctx context.Context) error {
		l.working.Store(true)
		defer l.working.Store(false)
		l.log.Info("working")
		return work(ctx)
	}
	if l.election == nil {
		return marked(ctx)
	}
	return l.election.Run(ctx, marked)
}
