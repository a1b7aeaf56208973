// Package config reads the configuration file. One YAML file configures everything.
// Each area declares its sections (keys, defaults and compiled forms) in a package
// settings, and this package reads the file over the defaults. An unknown key is an
// error with its line.
package config

import (
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/config/key"
	dns "portolan.dev/portolan/internal/dns/settings"
	gateway "portolan.dev/portolan/internal/gateway/settings"
	"portolan.dev/portolan/internal/kube/admission"
	kube "portolan.dev/portolan/internal/kube/settings"
	"portolan.dev/portolan/internal/kube/simulate"
	network "portolan.dev/portolan/internal/network/settings"
	policy "portolan.dev/portolan/internal/policy/settings"
	proxy "portolan.dev/portolan/internal/proxy/settings"
	"portolan.dev/portolan/internal/support/evidence"
)

// Config is the configuration as the file spells it. A key without a value keeps its
// default.
type Config struct {
	// Manifests is a directory of manifests, or one file. The cluster is then read from
	// it instead of the Kubernetes API.
	Manifests string `yaml:"manifests"`
	// Simulate completes the manifests as a cluster's control plane does.
	Simulate   kube.Simulate   `yaml:"simulate"`
	Kubernetes kube.Kubernetes `yaml:"kubernetes"`
	Snapshot   kube.Snapshot   `yaml:"snapshot"`
	Admin      Admin           `yaml:"admin"`
	// Lameduck is how long the server continues to answer queries after the signal to
	// stop, while it is not ready.
	Lameduck   key.Duration    `yaml:"lameduck"`
	Log        Log             `yaml:"log"`
	DNS        dns.DNS         `yaml:"dns"`
	Node       dns.Node        `yaml:"node"`
	Webhook    kube.Webhook    `yaml:"webhook"`
	Controller kube.Controller `yaml:"controller"`
	Proxy      proxy.Proxy     `yaml:"proxy"`
	Network    network.Network `yaml:"network"`
	Policy     policy.Policy   `yaml:"policy"`
	Gateway    gateway.Gateway `yaml:"gateway"`
}

// Admin is the section of the HTTP server for health, metrics and dumps.
type Admin struct {
	Listen string `yaml:"listen"` // empty turns the server off
	// Probes are additional addresses and ports that serve only health, readiness and
	// metrics, on CoreDNS' paths.
	Probes []string `yaml:"probes"`
	// CoreDNSMetrics also exports some metrics under CoreDNS' names.
	CoreDNSMetrics bool `yaml:"coreDNSMetrics"`
	// Debug also serves dumps on addresses that are not loopback.
	Debug bool `yaml:"debug"`
	// PProf also serves profiles on addresses that are not loopback.
	PProf bool `yaml:"pprof"`
	// MaxStaleness is how long the connection to the API may be lost before the server
	// is not ready; 0 is no limit.
	MaxStaleness key.Duration `yaml:"maxStaleness"`
	// Page is PageProcess, PageCluster or PageOff.
	Page string `yaml:"page"`
	// TokenFile has the token that clients of the page need that are not on loopback.
	TokenFile string   `yaml:"tokenFile"`
	TLS       AdminTLS `yaml:"tls"`
	// Evidence is the sample of recent queries, drops and requests.
	Evidence Evidence `yaml:"evidence"`
}

// Evidence is the section of the sample of events that a process keeps.
type Evidence struct {
	Size        int    `yaml:"size"`        // events kept; 0 turns it off
	OneIn       int    `yaml:"oneIn"`       // of so many events one is recorded
	PerSecond   int    `yaml:"perSecond"`   // failures of each reason that are all recorded
	MaskClients string `yaml:"maskClients"` // none, prefix or all
}

// Compile returns the section in the types of the package that uses it.
func (e *Evidence) Compile() evidence.Config {
	return evidence.Config{
		Size: e.Size, OneIn: e.OneIn, PerSecond: e.PerSecond, Mask: evidence.Mask(e.MaskClients),
	}
}

// AdminTLS is the section of TLS on the admin address.
type AdminTLS struct {
	Certificate string `yaml:"cert"`
	Key         string `yaml:"key"`
	// ClientCA has the authorities of client certificates that are as good as a token.
	ClientCA string `yaml:"clientCA"`
}

// The values of Admin.Page.
const (
	PageProcess = "process" // the page shows what the process reads
	PageCluster = "cluster" // the process reads all that the page shows
	PageOff     = "off"
)

// Log is the section of the log, which goes to stderr.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // text or json
}

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		Simulate:   kube.DefaultSimulate(),
		Kubernetes: kube.DefaultKubernetes(),
		Snapshot:   kube.DefaultSnapshot(),
		Admin: Admin{
			Listen: "127.0.0.1:9153", Page: PageProcess,
			Evidence: Evidence{Size: 1024, OneIn: 128, PerSecond: 10, MaskClients: string(evidence.MaskNone)},
		},
		Log:        Log{Level: "info", Format: "text"},
		DNS:        dns.Default(),
		Node:       dns.DefaultNode(),
		Webhook:    kube.DefaultWebhook(),
		Controller: kube.DefaultController(),
		Proxy:      proxy.Default(),
		Network:    network.Default(),
		Policy:     policy.Default(),
		Gateway:    gateway.Default(),
	}
}

// Keys returns the description of every key and section, in the order of the file.
func Keys() key.Table {
	return slices.Concat(
		manifestsKeys,
		kube.Keys,
		processKeys,
		dns.Keys,
		dns.NodeKeys,
		kube.WebhookKeys,
		kube.ControllerKeys,
		proxy.Keys,
		network.Keys,
		policy.Keys,
		gateway.Keys,
	)
}

// Validate checks what can be checked without side effects. Its errors name the key.
func (c *Config) Validate() error {
	_, err := c.Compile()
	return err
}

// Compiled is a configuration in the types of the packages that use it.
type Compiled struct {
	Admin      CompiledAdmin
	Simulate   simulate.Config
	DNS        dns.Compiled
	Node       dns.CompiledNode
	Webhook    admission.Config
	Controller kube.CompiledController
	Proxy      proxy.Compiled
	Network    network.Compiled
	Policy     policy.Compiled
	Gateway    gateway.Compiled
}

// Compile checks the configuration and returns it in the types of the packages that use
// it. An error is a *key.Error, or joins some.
func (c *Config) Compile() (*Compiled, error) {
	if err := c.checkKeys(); err != nil {
		return nil, err
	}
	made := new(Compiled)
	var err error
	if made.DNS, err = c.DNS.Compile(); err != nil {
		return nil, err
	}
	if err := c.checkSource(); err != nil {
		return nil, err
	}
	services, pods := made.DNS.ServiceRanges, made.DNS.PodRanges
	if made.Simulate, err = c.Simulate.Compile(services, pods); err != nil {
		return nil, err
	}
	if made.Admin, err = c.Admin.Compile(); err != nil {
		return nil, err
	}
	if made.Node, err = c.Node.Compile(&made.DNS); err != nil {
		return nil, err
	}
	if made.Webhook, err = c.Webhook.Compile(made.DNS.Zone.Zones[0], made.DNS.Autopath.Suffix); err != nil {
		return nil, err
	}
	if made.Controller, err = c.Controller.Compile(); err != nil {
		return nil, err
	}
	if made.Proxy, err = c.Proxy.Compile(); err != nil {
		return nil, err
	}
	if made.Network, err = c.Network.Compile(); err != nil {
		return nil, err
	}
	if made.Policy, err = c.Policy.Compile(); err != nil {
		return nil, err
	}
	if made.Gateway, err = c.Gateway.Compile(); err != nil {
		return nil, err
	}
	return made, nil
}

// checkSource checks the settings of the cluster's source.
func (c *Config) checkSource() error {
	switch {
	case c.Simulate.Enabled && c.Manifests == "":
		return key.Errorf("simulate.enabled",
			"there are no manifests to simulate a cluster from; set manifests to a directory")
	case c.Manifests != "" && c.Kubernetes.Kubeconfig != "":
		return key.Errorf("kubernetes.kubeconfig",
			"the cluster is read from manifests; set only one of manifests and kubeconfig")
	case c.Manifests != "" && c.Snapshot.File != "" && !c.Simulate.Enabled:
		return key.Errorf("snapshot.file", "a snapshot is of the Kubernetes API; "+
			"with manifests it needs simulate.enabled, whose addresses it keeps")
	case c.Kubernetes.ServiceSelector != "" && c.Node.Has(dns.PartPolicy):
		return key.Errorf("kubernetes.serviceSelector", "the part policy of node.parts needs all Services: "+
			"by that of the cluster DNS it judges queries to the agent")
	case len(c.Kubernetes.Namespaces) > 0 && c.Node.Has(dns.PartPolicy):
		return key.Errorf("kubernetes.namespaces", "the part policy of node.parts needs all namespaces: "+
			"its Pods, their peers and policies are in any of them")
	}
	return c.Kubernetes.Check()
}

// CompiledAdmin is an Admin in the types of the packages that use it.
type CompiledAdmin struct {
	Listen       netip.AddrPort // invalid if the server is off
	Probes       []netip.AddrPort
	ProbeSockets []string // paths
}

// Compile checks the section and returns it in the types of the packages that use it. An
// error is a *key.Error.
func (a *Admin) Compile() (made CompiledAdmin, err error) {
	for i, text := range a.Probes {
		if path, is := strings.CutPrefix(text, "unix:"); is {
			if path == "" || slices.Contains(made.ProbeSockets, path) {
				return made, key.ItemErrorf("admin.probes", i, "%q is without a path, or given twice", text)
			}
			made.ProbeSockets = append(made.ProbeSockets, path)
			continue
		}
		addr, err := netip.ParseAddrPort(text)
		if err != nil {
			return made, key.ItemErrorf("admin.probes", i,
				"%q is not an address and port, such as 0.0.0.0:8080, or unix:PATH", text)
		}
		if addr.Port() != 0 && (text == a.Listen || slices.Contains(made.Probes, addr)) {
			return made, key.ItemErrorf("admin.probes", i, "%q is given twice", text)
		}
		made.Probes = append(made.Probes, addr)
	}
	switch tls := &a.TLS; {
	case tls.Certificate != "" && tls.Key == "":
		return made, key.Errorf("admin.tls.key", "it is missing, the key of admin.tls.cert")
	case tls.Key != "" && tls.Certificate == "":
		return made, key.Errorf("admin.tls.cert", "it is missing, the certificate of admin.tls.key")
	case a.TokenFile != "" && a.Listen == "":
		return made, key.Errorf("admin.tokenFile", "nobody can show a token, as admin.listen is empty")
	case tls.ClientCA != "" && tls.Certificate == "":
		return made, key.Errorf("admin.tls.clientCA", "client certificates need TLS; set cert and key, too")
	}
	if a.Listen == "" {
		return made, nil
	}
	if made.Listen, err = netip.ParseAddrPort(a.Listen); err != nil {
		err = key.Errorf("admin.listen", "%q is not an address and port, such as 127.0.0.1:9153", a.Listen)
	}
	return made, err
}
