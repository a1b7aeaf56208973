package daemon

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/admission"
	"portolan.dev/portolan/internal/ops/admin"
	"portolan.dev/portolan/internal/ops/metrics"
)

// Webhook is the admission webhook.
type Webhook struct {
	cfg      config.Config
	settings *config.Compiled
	api      *admission.API
	stopping atomic.Bool
	log      *slog.Logger
}

// NewWebhook wires a Webhook. It fails on a bad configuration, and where there
// is no API server to ask; it starts nothing.
func NewWebhook(cfg config.Config, version string) (*Webhook, error) {
	settings, err := cfg.Compile()
	if err != nil {
		return nil, err
	}
	switch {
	case cfg.Manifests != "":
		return nil, errors.New("manifests: a webhook serves an API server; give --kubeconfig FILE")
	case len(settings.Webhook.ClusterDNS) == 0:
		return nil, errors.New("webhook.clusterDNS: no address; give those of the cluster's DNS, there or with --cluster-dns")
	}
	w := &Webhook{cfg: cfg, settings: settings}
	k := &cfg.Kubernetes
	w.api, err = admission.NewAPI(admission.APIConfig{Kubeconfig: k.Kubeconfig, QPS: k.QPS, Burst: k.Burst, UserAgent: "portolan/" + version})
	return w, err
}

// Serve answers reviews until ctx is done, drains, and returns nil after that.
// It fails when it can't begin: an address is taken.
func (w *Webhook) Serve(ctx context.Context, version string, log *slog.Logger) error {
	w.log = log
	limitMemory(log)
	cfg := w.settings.Webhook
	rotator := admission.NewCertificateRotator(cfg, w.api, time.Now, log)
	figures := metrics.NewWebhook(version, rotator.Until, cfg.CertificateLife)
	handler := admission.NewHandler(cfg, w.api, figures, log)
	var server *admission.ReviewServer
	var probes *admin.HTTPServer
	err := bindPrivileged(func() (err error) {
		if server, err = admission.Listen(ctx, cfg, handler, rotator.Certificate, log); err != nil {
			return withCure(err, "--listen")
		}
		if !w.settings.Admin.IsValid() {
			return nil
		}
		probes, err = admin.Listen(ctx, admin.Config{
			Listen: w.settings.Admin, Ready: w.ready(rotator), Metrics: figures.Handler(log), PProf: w.cfg.Admin.PProf, Log: log,
		})
		return withCure(err, "--admin")
	})
	if err != nil {
		if server != nil {
			server.Close()
		}
		return err
	}
	at := []any{"listen", server.Addr(), "service", w.cfg.Webhook.Service}
	if probes != nil {
		at = append(at, "admin", probes.Addr())
	}
	log.Info("webhook serving", at...)
	return w.run(ctx, server, probes, rotator)
}

// run runs the parts: the server stops first, then what it needs.
func (w *Webhook) run(ctx context.Context, server *admission.ReviewServer, probes *admin.HTTPServer, rotator *admission.CertificateRotator) error {
	others, stopOthers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopOthers()
	group, running := errgroup.WithContext(others)
	group.Go(func() error {
		defer stopOthers()
		return server.Run(lameduck(ctx, running, time.Duration(w.cfg.Lameduck), &w.stopping, w.log))
	})
	group.Go(func() error { return rotator.Run(running) })
	if probes != nil {
		group.Go(func() error { return probes.Run(running) })
	}
	err := group.Wait()
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		w.log.Info("stopped")
		return nil
	}
	return err
}

// ready says in words what is missing until reviews can be answered.
func (w *Webhook) ready(rotator *admission.CertificateRotator) func() (missing, remarks []string) {
	return func() (missing, remarks []string) {
		missing, remarks = rotator.Ready()
		if w.stopping.Load() {
			missing = append(missing, "stopping")
		}
		if len(missing) > 0 && len(remarks) > 0 {
			missing[0] += ": " + strings.Join(remarks, "; ")
		}
		return missing, remarks
	}
}
