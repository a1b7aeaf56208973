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
	"portolan.dev/portolan/internal/kube/loadbalancer"
	kubesettings "portolan.dev/portolan/internal/kube/settings"
)

// LoadBalancerConfig configures a LoadBalancer.
type LoadBalancerConfig struct {
	Settings config.Config
	Version  string
	// Store is filled by a source with the scope source.LoadBalancer.
	Store *cluster.Store
	// Problem returns the first error that prevents reading one of the kinds, or nil.
	Problem func(kinds ...cluster.Kind) error
	Log     *slog.Logger
}

// LoadBalancer is the controller of the addresses of Services of type LoadBalancer.
type LoadBalancer struct {
	cfg        LoadBalancerConfig
	controller *loadbalancer.Controller
	leading    *leading
	metrics    *loadBalancerMetrics
}

// NewLoadBalancer returns a LoadBalancer. It returns an error if the configuration is invalid, or names
// no API server or no pools. It starts nothing.
func NewLoadBalancer(cfg LoadBalancerConfig) (*LoadBalancer, error) {
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	switch k := &cfg.Settings.Kubernetes; {
	case len(compiled.Controller.LoadBalancer.Pools) == 0:
		return nil, errors.New("controller.loadBalancer.pools: no pool; give one in the configuration file")
	case len(k.Namespaces) > 0 || k.ServiceSelector != "":
		return nil, errors.New("kubernetes.namespaces, kubernetes.serviceSelector: the controller needs all Services, " +
			"so that it assigns no address twice; limit them in controller.loadBalancer.pools")
	}
	l := &LoadBalancer{cfg: cfg}
	return l, l.connect(&compiled.Controller)
}

// connect creates the clients, the controller and the election.
func (l *LoadBalancer) connect(settings *kubesettings.CompiledController) error {
	client, err := clientConfig(&l.cfg.Settings, l.cfg.Version)
	if err != nil {
		return err
	}
	writer, err := api.NewClient(client)
	if err != nil {
		return err
	}
	if l.leading, err = newLeading(client, settings.LeaseOf("loadbalancer"), l.cfg.Log); err != nil {
		return err
	}
	l.metrics = newLoadBalancerMetrics(l)
	l.controller = loadbalancer.New(loadbalancer.Config{
		Store: l.cfg.Store, Client: writer, Pool: settings.LoadBalancer, Writes: settings.Syncs,
		Tell: events.New(kubesettings.DefaultLoadBalancerClass, client).Warn, Wrote: l.metrics.wrote, Log: l.cfg.Log,
	})
	return nil
}

// Name returns the part's name.
func (l *LoadBalancer) Name() string { return "loadbalancer" }

// LoadBalancerNeeds returns the kinds of the model that addresses depend on.
func LoadBalancerNeeds() []cluster.Kind { return loadbalancer.Needs() }

// Needs returns the kinds of the model that addresses depend on.
func (l *LoadBalancer) Needs() []cluster.Kind { return LoadBalancerNeeds() }

// Bind does nothing: the controller listens on no address.
func (l *LoadBalancer) Bind(context.Context) (serving []any, err error) { return nil, nil }

// Close does nothing.
func (l *LoadBalancer) Close() {}

// Run assigns addresses while this process leads, until ctx is done. It then stops writing,
// releases the Lease and returns nil. It returns an error if it loses the Lease.
func (l *LoadBalancer) Run(ctx context.Context) error {
	return ended(ctx, l.leading.run(api.WithDebugLog(ctx, l.cfg.Log), l.controller.Work))
}

// Ready describes what is missing until this process works or could take over from the
// leader.
func (l *LoadBalancer) Ready() (missing, remarks []string) {
	if missing = l.controller.Missing(); len(missing) > 0 {
		if problem := l.cfg.Problem(loadbalancer.Needs()...); problem != nil {
			missing = append(missing, problem.Error())
		}
	}
	return missing, nil
}

// Metrics returns the collector of the controller's metrics.
func (l *LoadBalancer) Metrics() prometheus.Collector { return l.metrics }
