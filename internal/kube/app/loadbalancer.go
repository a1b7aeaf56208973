package app

import (
	"errors"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/events"
	"portolan.dev/portolan/internal/kube/loadbalancer"
	kubesettings "portolan.dev/portolan/internal/kube/settings"
)

// NewLoadBalancer returns the controller of the addresses of Services of type LoadBalancer, for the scope
// source.LoadBalancer. It returns an error if the configuration is invalid, or names no API server or no pools. It
// starts nothing.
func NewLoadBalancer(cfg ControllerConfig) (*Controller, error) {
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	settings := &compiled.Controller
	switch k := &cfg.Settings.Kubernetes; {
	case len(settings.LoadBalancer.Pools) == 0:
		return nil, errors.New("controller.loadBalancer.pools: no pool; give one in the configuration file")
	case len(k.Namespaces) > 0 || k.ServiceSelector != "":
		return nil, errors.New("kubernetes.namespaces, kubernetes.serviceSelector: the controller needs all Services, " +
			"so that it assigns no address twice; limit them in controller.loadBalancer.pools")
	}
	client, err := clientConfig(&cfg.Settings, cfg.Version)
	if err != nil {
		return nil, err
	}
	writer, err := api.NewClient(client)
	if err != nil {
		return nil, err
	}
	leading, err := newLeading(client, settings.LeaseOf("loadbalancer"), cfg.Log)
	if err != nil {
		return nil, err
	}
	metrics := newLoadBalancerMetrics(leading)
	metrics.of = loadbalancer.New(loadbalancer.Config{
		Store: cfg.Store, Client: writer, Pool: settings.LoadBalancer, Writes: settings.Syncs,
		Tell: events.New(kubesettings.DefaultLoadBalancerClass, client).Warn, Wrote: metrics.wrote, Log: cfg.Log,
	})
	return &Controller{
		cfg: cfg, name: "loadbalancer", needs: LoadBalancerNeeds, controller: metrics.of, leading: leading, metrics: metrics,
	}, nil
}

// LoadBalancerNeeds returns the kinds of the model that addresses depend on.
func LoadBalancerNeeds() []cluster.Kind { return loadbalancer.Needs() }
