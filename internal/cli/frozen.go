package cli

import (
	"reflect"

	"portolan.dev/portolan/internal/config"
)

// agentProcess reports whether the process is the agent of a node.
type agentProcess bool

// frozen is cfg with the values of the start where a key takes effect at a
// start only, and the keys that this is so for and that differ.
func frozen(start, cfg config.Config, agent agentProcess) (config.Config, []string) {
	var waiting []string
	keep := func(key string, value, first any) {
		v, f := reflect.ValueOf(value).Elem(), reflect.ValueOf(first).Elem()
		if !reflect.DeepEqual(v.Interface(), f.Interface()) {
			waiting = append(waiting, key)
			v.Set(f)
		}
	}
	keep("manifests", &cfg.Manifests, &start.Manifests)
	keep("simulate", &cfg.Simulate, &start.Simulate)
	if start.Simulate.Enabled { // addresses come from these
		keep("dns.serviceCIDRs", &cfg.DNS.ServiceCIDRs, &start.DNS.ServiceCIDRs)
		keep("dns.podCIDRs", &cfg.DNS.PodCIDRs, &start.DNS.PodCIDRs)
	}
	keep("kubernetes", &cfg.Kubernetes, &start.Kubernetes)
	keep("snapshot", &cfg.Snapshot, &start.Snapshot)
	keep("admin", &cfg.Admin, &start.Admin)
	keep("lameduck", &cfg.Lameduck, &start.Lameduck)
	keep("dns.listen", &cfg.DNS.Listen, &start.DNS.Listen)
	keep("dns.tcp", &cfg.DNS.TCP, &start.DNS.TCP)
	keep("dns.tls", &cfg.DNS.TLS, &start.DNS.TLS)
	keep("dns.https", &cfg.DNS.HTTPS, &start.DNS.HTTPS)
	keep("dns.udpSteering", &cfg.DNS.UDPSteering, &start.DNS.UDPSteering)
	keep("webhook", &cfg.Webhook, &start.Webhook) // another process'
	keep("node", &cfg.Node, &start.Node)
	keep("controller", &cfg.Controller, &start.Controller)
	keep("log.format", &cfg.Log.Format, &start.Log.Format)
	if agent { // what it keeps is named by these
		keep("dns.zones", &cfg.DNS.Zones, &start.DNS.Zones)
		keep("dns.serviceCIDRs", &cfg.DNS.ServiceCIDRs, &start.DNS.ServiceCIDRs)
		keep("dns.podCIDRs", &cfg.DNS.PodCIDRs, &start.DNS.PodCIDRs)
		keep("dns.transfer", &cfg.DNS.Transfer, &start.DNS.Transfer)
	}
	if start.Manifests == "" { // what is read from the API depends on these
		keep("dns.pods", &cfg.DNS.Pods, &start.DNS.Pods)
		keep("dns.endpointPodNames", &cfg.DNS.EndpointPodNames, &start.DNS.EndpointPodNames)
	}
	return cfg, waiting
}
