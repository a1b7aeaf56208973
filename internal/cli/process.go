package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/daemon"
	dnsapp "portolan.dev/portolan/internal/dns/app"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
	gatewayapp "portolan.dev/portolan/internal/gateway/app"
	"portolan.dev/portolan/internal/kube/api"
	kubeapp "portolan.dev/portolan/internal/kube/app"
	"portolan.dev/portolan/internal/kube/daemonset"
	"portolan.dev/portolan/internal/kube/events"
	"portolan.dev/portolan/internal/kube/gatewaystatus"
	"portolan.dev/portolan/internal/kube/nodekey"
	"portolan.dev/portolan/internal/kube/source"
	"portolan.dev/portolan/internal/kube/ticketkeys"
	networkapp "portolan.dev/portolan/internal/network/app"
	nodeapp "portolan.dev/portolan/internal/node/app"
	"portolan.dev/portolan/internal/ops/admin"
	policyapp "portolan.dev/portolan/internal/policy/app"
	policysettings "portolan.dev/portolan/internal/policy/settings"
	proxyapp "portolan.dev/portolan/internal/proxy/app"
	"portolan.dev/portolan/internal/support/evidence"
)

// assembly is the input for assembling a command's process. Only this file lists the
// parts of each command.
type assembly struct {
	settings config.Config
	stdin    io.Reader
	stdout   io.Writer
	log      *slog.Logger
	evidence *evidence.Ring // nil if it is off
}

// serve returns the process of `portolan serve`.
func (a assembly) serve() (*daemon.Config, error) {
	store := cluster.NewStore()
	var src *source.Source
	dns, err := dnsapp.New(dnsapp.Config{
		Settings: a.settings, Store: store, Log: a.log, Loaded: func() { daemon.SettleMemory(daemon.RareGC) },
		Problem:  func(kinds ...cluster.Kind) error { return src.Problem(kinds...) },
		Evidence: a.evidence,
	})
	if err != nil {
		return nil, err
	}
	src, err = source.New(a.withPage(source.Config{
		Settings: a.settings, Version: version(), Store: store, Stdin: a.stdin, Log: a.log,
		Needs: dns.Needs, Between: dns.AnswerWaiting, Serial: dns.Serial, Recalled: dns.ContinueFrom,
	}))
	if err != nil {
		return nil, err
	}
	cfg := &daemon.Config{
		Parts: []daemon.Part{dns}, Source: src, Evidence: a.evidence,
		Dumps: []admin.Dump{
			zoneDump(dns), modelDump(src), cacheDump(dns),
		},
		Actions: []admin.Action{flushAction(dns)},
	}
	return cfg, a.addPage(cfg, pageOf{command: "serve", store: store, source: src, dns: dns, forwards: dns})
}

// node returns the process of `portolan node`.
func (a assembly) node() (*daemon.Config, error) {
	if err := a.settings.Validate(); err != nil {
		return nil, err
	}
	cfg := &daemon.Config{
		Program:  "portolan node", // so that one agent can replace another
		Evidence: a.evidence,
	}
	kernel := a.kernel(cfg, len(a.settings.Node.Parts))
	if a.settings.Node.ReadsCluster() {
		daemon.LeaveToKernel(leftByRules) // before accounts are made
	}
	if a.settings.Node.Has(dnssettings.PartPolicy) {
		if err := kernel.newPolicy(); err != nil {
			return nil, err
		}
	}
	if a.settings.Node.Has(dnssettings.PartDNS) {
		if err := a.addAgent(cfg, kernel); err != nil {
			return nil, err
		}
	}
	if a.settings.Node.Has(dnssettings.PartProxy) {
		if err := kernel.addProxy(); err != nil {
			return nil, err
		}
	}
	if a.settings.Node.Has(dnssettings.PartNetwork) {
		if err := kernel.addNetwork(); err != nil {
			return nil, err
		}
	}
	if kernel.policy != nil {
		cfg.Parts, kernel.needs = append(cfg.Parts, kernel.policy), append(kernel.needs, kernel.policy.Needs()...)
	}
	if err := kernel.addAnnouncer(); err != nil {
		return nil, err
	}
	return cfg, kernel.addSource("node")
}

// addAgent adds the DNS agent of a node. It reads no cluster: its zones come from servers, and
// what other parts in the same process read is not for it.
func (a assembly) addAgent(cfg *daemon.Config, kernel *kernelParts) error {
	own := dnsapp.Config{Settings: a.settings, Store: cluster.NewStore(), Log: a.log, Evidence: a.evidence}
	if kernel.policy != nil {
		own.Gate, own.Pod = kernel.policy.Gate(), kernel.policy.PodOf
	}
	dns, err := dnsapp.NewAgent(own)
	if err != nil {
		return err
	}
	part := daemon.Part(dns)
	if network := dns.NodeSettings().Network; len(network.Addresses) > 0 {
		part = nodeapp.New(network, dns, a.log)
	}
	kernel.answers, kernel.agent = true, dns
	cfg.Parts = append(cfg.Parts, part)
	cfg.Dumps = append(cfg.Dumps, zoneDump(dns), cacheDump(dns))
	cfg.Actions = append(cfg.Actions, flushAction(dns))
	return nil
}

// proxy returns the process of `portolan proxy`.
func (a assembly) proxy() (*daemon.Config, error) {
	daemon.LeaveToKernel(leftByRules)
	cfg := &daemon.Config{Program: "portolan proxy"}
	kernel := a.kernel(cfg, 1)
	if err := kernel.addProxy(); err != nil {
		return nil, err
	}
	return cfg, kernel.addSource("proxy")
}

// The shares of the memory limit that are the runtime's, where the kernel holds rules and their elements, and where it
// holds connections with what is sent over them.
const (
	leftByRules   = 0.75
	leftByGateway = 0.55
)

// gateway returns the process of `portolan gateway`.
func (a assembly) gateway() (*daemon.Config, error) {
	daemon.LeaveToKernel(leftByGateway) // before accounts are made
	store := cluster.NewStore()
	var src *source.Source
	cfg := gatewayapp.Config{
		Settings: a.settings, Store: store, Log: a.log, Loaded: func() { daemon.SettleMemory(daemon.RareGC) },
		Problem:   func(kinds ...cluster.Kind) error { return src.Problem(kinds...) },
		AccessLog: a.stdout, Evidence: a.evidence,
	}
	if err := a.addStatuses(&cfg); err != nil {
		return nil, err
	}
	gateway, err := gatewayapp.New(cfg)
	if err != nil {
		return nil, err
	}
	src, err = source.New(a.withPage(source.Config{
		Settings: a.settings, Scope: source.Gateway, Version: version(), Store: store, Stdin: a.stdin, Log: a.log,
		Needs: gateway.Needs,
	}))
	if err != nil {
		return nil, err
	}
	table := admin.Dump{
		Path: gatewayapp.TablePath, ContentType: "text/plain; charset=utf-8", Write: gateway.WriteTable,
	}
	daemonCfg := &daemon.Config{
		Parts: []daemon.Part{gateway}, Source: src, Evidence: a.evidence, Dumps: []admin.Dump{table, modelDump(src)},
	}
	if a.settings.Gateway.Handover != "" { // so that one gateway can replace another
		daemonCfg.Program = "portolan gateway"
	}
	return daemonCfg, a.addPage(daemonCfg, pageOf{command: "gateway", store: store, source: src})
}

// addStatuses has the gateway write statuses, and share keys, if it reads an API.
func (a assembly) addStatuses(cfg *gatewayapp.Config) (err error) {
	compiled, err := a.settings.Compile()
	if err != nil || a.settings.Manifests != "" {
		return err
	}
	client := a.client()
	cfg.Statuses = gatewaystatus.New(a.settings.Gateway.Controller, client)
	cfg.Bundles = gatewaystatus.NewBundles(client, a.log).Follow
	gateway := &compiled.Gateway
	if gateway.TicketName != "" {
		cfg.TicketKeys = ticketkeys.New(client, gateway.TicketNamespace, gateway.TicketName, time.Now, a.log).Run
	}
	cfg.Lead, err = gatewaystatus.Lead(client, gateway.LeaseNamespace, gateway.LeaseName, a.log)
	return err
}

// kernelParts adds the parts of a node that program its kernel, and the source that they share.
type kernelParts struct {
	assembly
	cfg     *daemon.Config
	parts   int // of the process
	store   *cluster.Store
	src     *source.Source
	answers bool // a part answers DNS
	agent   *dnsapp.DNS
	needs   []cluster.Kind
	policy  *policyapp.Policy  // nil if none enforces policies
	network bool               // a part connects Pods
	served  *networkapp.Served // nil if none is the service proxy
	// announces: a part announces the addresses of load balancers.
	announces bool
}

func (a assembly) kernel(cfg *daemon.Config, parts int) *kernelParts {
	return &kernelParts{assembly: a, cfg: cfg, parts: parts, store: cluster.NewStore()}
}

// settle settles memory when the kernel has the cluster.
func (k *kernelParts) settle() {
	if k.answers { // clients of DNS wait for answers, which take memory, too
		debug.FreeOSMemory()
		return
	}
	daemon.SettleMemory(daemon.FrequentGC)
	daemon.UseOneProcessor()
}

func (k *kernelParts) problem(kinds ...cluster.Kind) error { return k.src.Problem(kinds...) }

// addProxy adds the service proxy of a node.
func (k *kernelParts) addProxy() error {
	k.served = networkapp.NewServed()
	proxy, err := proxyapp.New(proxyapp.Config{
		Settings: k.settings, Store: k.store, Log: k.log, Memory: 1 / float64(k.parts),
		Loaded: func() {
			k.settle()
			k.served.Set()
		},
		Problem: k.problem, Warn: k.warnOwners(),
	})
	if err != nil {
		return err
	}
	k.cfg.Parts, k.needs = append(k.cfg.Parts, proxy), append(k.needs, proxy.Needs()...)
	return nil
}

// addNetwork adds the network of a node's Pods.
func (k *kernelParts) addNetwork() error {
	node, err := proxyapp.NodeName(k.settings.Proxy.NodeName)
	if err != nil {
		return err
	}
	cfg := networkapp.Config{
		Settings: k.settings,
		Store:    k.store,
		Log:      k.log,
		Node:     node,
		Problem:  k.problem,
		Loaded:   k.settle,
	}
	if k.policy != nil {
		cfg.Admission = k.policy.Admission()
	}
	if k.settings.Manifests == "" {
		cfg.Publish = nodekey.New(k.client(), node).Publish
	}
	network, err := networkapp.New(cfg)
	if err != nil {
		return err
	}
	k.network = true
	k.cfg.Parts, k.needs = append(k.cfg.Parts, network), append(k.needs, network.Needs()...)
	return nil
}

// addAnnouncer adds the announcements of load balancers' addresses, where they are switched on.
func (k *kernelParts) addAnnouncer() error {
	compiled, err := k.settings.Compile()
	if err != nil || !compiled.Network.Announce.Enabled || k.served == nil && !k.network {
		return err
	}
	node, err := proxyapp.NodeName(k.settings.Proxy.NodeName)
	if err != nil {
		return err
	}
	announcer := networkapp.NewAnnouncer(networkapp.AnnouncerConfig{
		Settings: compiled.Network.Announce, Store: k.store, Node: node, Ours: compiled.Controller.LoadBalancer.Ours,
		Served: k.served, Log: k.log,
	})
	k.announces = true
	k.cfg.Parts, k.needs = append(k.cfg.Parts, announcer), append(k.needs, announcer.Needs()...)
	return nil
}

// newPolicy makes the policies of a node.
func (k *kernelParts) newPolicy() error {
	node, err := proxyapp.NodeName(k.settings.Proxy.NodeName)
	if err != nil {
		return err
	}
	compiled, err := k.settings.Compile()
	if err != nil {
		return err
	}
	cfg := policyapp.Config{
		Settings: k.settings, Store: k.store, Log: k.log, Node: node, Problem: k.problem, Loaded: k.settle,
		Evidence: k.evidence,
	}
	if k.settings.Node.Has(dnssettings.PartNetwork) {
		cfg.Linked = true
		cfg.Settings.Policy.CNI.Socket, cfg.Settings.Policy.CNI.Install = k.settings.Network.CNI.Socket, false
	}
	if k.settings.Node.Has(dnssettings.PartDNS) {
		cfg.DNS, cfg.Resolves = compiled.Node.Network.Addresses, true
	}
	if name := compiled.Policy.DaemonSet; name != "" {
		own := daemonset.New(daemonset.Config{
			Client: k.client(), Name: name, Annotation: policysettings.Annotation, Log: k.log,
		})
		cfg.Find, cfg.Removed = own.Find, own.Removed
	}
	k.policy, err = policyapp.New(cfg)
	return err
}

// client configures clients of the API server for what parts write or ask.
func (a assembly) client() api.ClientConfig {
	k := &a.settings.Kubernetes
	return api.ClientConfig{
		Kubeconfig: k.Kubeconfig, QPS: float32(k.QPS), Burst: k.Burst, UserAgent: "portolan/" + version(),
	}
}

// addSource adds the source of what the parts need, if they need anything, and the page of the command.
func (k *kernelParts) addSource(command string) error {
	page := pageOf{command: command, forwards: k.agent}
	if len(k.needs) == 0 {
		return k.addPage(k.cfg, page)
	}
	slices.Sort(k.needs)
	k.needs = slices.Compact(k.needs)
	cfg := source.Config{
		Settings: k.settings, Scope: source.Policy, Version: version(), Store: k.store, Stdin: k.stdin, Log: k.log,
		Needs: func() []cluster.Kind { return k.needs }, Announce: k.announces,
	}
	if k.policy == nil && !k.network && !k.announces { // it reads the Node of its own only
		node, err := proxyapp.NodeName(k.settings.Proxy.NodeName)
		if err != nil {
			return err
		}
		cfg.Scope, cfg.Node = source.Proxy, node
	}
	var err error
	if k.src, err = source.New(k.withPage(cfg)); err != nil {
		return err
	}
	k.cfg.Source, k.cfg.Dumps = k.src, append(k.cfg.Dumps, modelDump(k.src))
	page.store, page.source = k.store, k.src
	return k.addPage(k.cfg, page)
}

// warnOwners returns a function that writes Events about Services; nil without an API server.
func (a assembly) warnOwners() func(context.Context, proxyapp.Warning) error {
	if a.settings.Manifests != "" {
		return nil
	}
	writer := events.New("portolan.dev/proxy", a.client())
	return func(ctx context.Context, w proxyapp.Warning) error {
		return writer.Warn(ctx, events.Event{
			Object: cluster.Ref{Kind: cluster.KindService, Key: w.Service}, Node: w.Node,
			Reason: w.Reason, Action: w.Action, Note: w.Note,
		})
	}
}

// webhook returns the process of `portolan webhook`.
func (a assembly) webhook() (*daemon.Config, error) {
	webhook, err := kubeapp.NewWebhook(a.settings, version(), a.log)
	return &daemon.Config{Parts: []daemon.Part{webhook}}, err
}

// slices returns the process of `portolan controller slices`.
func (a assembly) slices() (*daemon.Config, error) {
	store := cluster.NewStore()
	src, err := source.New(a.withPage(source.Config{
		Settings: a.settings, Scope: source.Slices, Version: version(), Store: store, Log: a.log, Needs: kubeapp.SlicesNeeds,
	}))
	if err != nil {
		return nil, err
	}
	slices, err := kubeapp.NewSlices(kubeapp.SlicesConfig{
		Settings: a.settings, Version: version(), Store: store, Problem: src.Problem, Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	cfg := &daemon.Config{Parts: []daemon.Part{slices}, Source: src}
	return cfg, a.addPage(cfg, pageOf{command: "controller slices", store: store, source: src})
}

// nodes returns the process of `portolan controller nodes`.
func (a assembly) nodes() (*daemon.Config, error) {
	store := cluster.NewStore()
	src, err := source.New(a.withPage(source.Config{
		Settings: a.settings, Scope: source.Proxy, Version: version(), Store: store, Log: a.log, Needs: kubeapp.NodesNeeds,
	}))
	if err != nil {
		return nil, err
	}
	nodes, err := kubeapp.NewNodes(kubeapp.ControllerConfig{
		Settings: a.settings, Version: version(), Store: store, Problem: src.Problem, Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	cfg := &daemon.Config{Parts: []daemon.Part{nodes}, Source: src}
	return cfg, a.addPage(cfg, pageOf{command: "controller nodes", store: store, source: src})
}

// loadBalancer returns the process of `portolan controller loadbalancer`.
func (a assembly) loadBalancer() (*daemon.Config, error) {
	store := cluster.NewStore()
	src, err := source.New(a.withPage(source.Config{
		Settings: a.settings, Scope: source.LoadBalancer, Version: version(), Store: store, Log: a.log,
		Needs: kubeapp.LoadBalancerNeeds,
	}))
	if err != nil {
		return nil, err
	}
	balancer, err := kubeapp.NewLoadBalancer(kubeapp.ControllerConfig{
		Settings: a.settings, Version: version(), Store: store, Problem: src.Problem, Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	cfg := &daemon.Config{Parts: []daemon.Part{balancer}, Source: src}
	return cfg, a.addPage(cfg, pageOf{command: "controller loadbalancer", store: store, source: src})
}

func modelDump(src *source.Source) admin.Dump {
	return admin.Dump{Path: "/debug/model", ContentType: "application/json", Write: src.WriteModel}
}

func zoneDump(dns *dnsapp.DNS) admin.Dump {
	return admin.Dump{Path: "/debug/zone", ContentType: "text/dns; charset=utf-8", Write: dns.WriteZone}
}

// The paths of the commands of cache.
const (
	cachePath = "/debug/cache"
	flushPath = "/cache/flush"
)

func cacheDump(dns *dnsapp.DNS) admin.Dump {
	return admin.Dump{Path: cachePath, ContentType: "text/plain; charset=utf-8", Write: dns.WriteCache}
}

// flushAction removes a name, the parameter name, from the cache.
func flushAction(dns *dnsapp.DNS) admin.Action {
	return admin.Action{Path: flushPath, Do: func(q url.Values) (string, error) {
		name := q.Get("name")
		if name == "" {
			return "", errors.New("the parameter name is missing")
		}
		n, err := dns.FlushCache(name)
		if err != nil {
			return "", err
		}
		return "removed " + many(n, "entry", "entries"), nil
	}}
}

// process describes a command's process and how it reloads its settings.
type process struct {
	assemble func(assembly) (*daemon.Config, error)
	// follow reloads the settings; nil if they are read once.
	follow     *config.Follower
	signals    []os.Signal     // that reload the settings, beside SIGHUP
	conditions []key.Condition // that hold for the process, beside those of its settings
}

// run assembles a process and runs it until the command's context is done.
func (p process) run(cmd *cobra.Command, settings config.Config) error {
	level := new(slog.LevelVar)
	log := newLogger(settings.Log, level, cmd.ErrOrStderr())
	daemon.LimitMemory(log)
	cfg, err := p.assemble(assembly{
		settings: settings, stdin: cmd.InOrStdin(), stdout: cmd.OutOrStdout(), log: log,
		evidence: evidence.New(settings.Admin.Evidence.Compile()),
	})
	if err != nil {
		return err
	}
	cfg.Settings, cfg.Version, cfg.Log = settings, version(), log
	if p.follow != nil {
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, append(p.signals, syscall.SIGHUP)...)
		defer signal.Stop(hangup)
		p.follow.Reload = hangup
		cfg.Reload = &daemon.Reload{
			Level:    level,
			Follower: p.follow,
			Frozen: func(start, next config.Config) (config.Config, []string) {
				return next.Freeze(&start, start.Conditions(p.conditions...))
			},
		}
	}
	return daemon.New(*cfg).Run(cmd.Context())
}
