// Package app assembles the programs that run beside a cluster's control plane: the
// admission webhook and the EndpointSlice controller. Each is a part of a process, see
// daemon.Part.
package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/admission"
	"portolan.dev/portolan/internal/support/bind"
	"portolan.dev/portolan/internal/support/budget"
)

// Webhook is the admission webhook.
type Webhook struct {
	settings config.Config
	compiled *config.Compiled
	api      *admission.API
	rotator  *admission.CertificateRotator
	metrics  *webhookMetrics
	server   *admission.ReviewServer // nil until bound
	log      *slog.Logger
}

// NewWebhook returns a Webhook. It returns an error if the configuration is invalid or
// names no API server. It starts nothing.
func NewWebhook(settings config.Config, version string, log *slog.Logger) (*Webhook, error) {
	compiled, err := settings.Compile()
	if err != nil {
		return nil, err
	}
	switch {
	case settings.Manifests != "":
		return nil, errors.New("manifests: a webhook serves an API server; give --kubeconfig FILE")
	case len(compiled.Webhook.ClusterDNS) == 0:
		return nil, errors.New("webhook.clusterDNS: no address; give those of the cluster's DNS, there or with --cluster-dns")
	}
	w := &Webhook{settings: settings, compiled: compiled, log: log}
	k := &settings.Kubernetes
	w.api, err = admission.NewAPI(
		admission.APIConfig{Kubeconfig: k.Kubeconfig, QPS: k.QPS, Burst: k.Burst, UserAgent: "portolan/" + version},
	)
	if err != nil {
		return nil, err
	}
	w.rotator = admission.NewCertificateRotator(compiled.Webhook, w.api, time.Now, log)
	w.metrics = newWebhookMetrics(w.rotator.Until, compiled.Webhook.CertificateLife)
	return w, nil
}

// Name returns the part's name.
func (w *Webhook) Name() string { return "webhook" }

// Needs returns no kinds: reviews depend only on what the API server sends.
func (w *Webhook) Needs() []cluster.Kind { return nil }

// Accounts returns the figures of what clients make the process hold.
func (w *Webhook) Accounts() []budget.Stats {
	if w.server == nil {
		return nil
	}
	return w.server.Accounts()
}

// Bind binds the address for reviews.
func (w *Webhook) Bind(ctx context.Context) (serving []any, err error) {
	handler := admission.NewHandler(w.compiled.Webhook, w.api, w.metrics, w.log)
	if w.server, err = admission.Listen(ctx, w.compiled.Webhook, handler, w.rotator.Certificate, w.log); err != nil {
		return nil, bind.WithCure(err, "--listen")
	}
	return []any{"listen", w.server.Addr(), "service", w.settings.Webhook.Service}, nil
}

// Close closes the socket. It is for a Webhook whose Run is never called.
func (w *Webhook) Close() {
	if w.server != nil {
		w.server.Close()
	}
}

// Run answers reviews until ctx is done, drains and returns nil.
func (w *Webhook) Run(ctx context.Context) error {
	others, stopOthers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopOthers()
	group, running := errgroup.WithContext(others)
	group.Go(func() error {
		defer stopOthers()
		serving, stop := context.WithCancel(running)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		return w.server.Run(serving)
	})
	group.Go(func() error { return w.rotator.Run(running) })
	return ended(ctx, group.Wait())
}

// ended returns nil if err was caused by the end of ctx, and err otherwise.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Ready describes what is missing until reviews can be answered.
func (w *Webhook) Ready() (missing, remarks []string) {
	missing, remarks = w.rotator.Ready()
	if len(missing) > 0 && len(remarks) > 0 {
		missing[0] += ": " + strings.Join(remarks, "; ")
	}
	return missing, remarks
}

// Metrics returns the collector of the webhook's metrics.
func (w *Webhook) Metrics() prometheus.Collector { return w.metrics }
