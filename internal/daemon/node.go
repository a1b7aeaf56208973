package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/secondary"
	"portolan.dev/portolan/internal/dns/transfer"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/node/hostnet"
	"portolan.dev/portolan/internal/ops/metrics"
)

// agent is that of a node: what a Daemon has in the place of a cluster.
type agent struct {
	network *hostnet.Net         // what it has put there; nil for nothing
	replica *secondary.Secondary // nil in the mode cache
	// notified listens for NOTIFY alone; nil where nothing does.
	notified *dnsserver.Server
}

// NewNode wires the agent of a node: it answers what a Daemon answers, and reads no
// cluster. It fails on a bad configuration, and starts nothing.
func NewNode(cfg config.Config, log *slog.Logger) (*Daemon, error) {
	compiled, err := cfg.Compile()
	if err != nil {
		return nil, err
	}
	if len(cfg.Node.Servers) == 0 {
		return nil, errNoServers
	}
	d := &Daemon{cfg: cfg, log: log, agent: new(agent)}
	if compiled.Node.Mode == config.NodeSecondary {
		if d.agent.replica, err = d.newReplica(&compiled.Node); err != nil {
			return nil, err
		}
	}
	return d, d.begin()
}

// errNoServers says that an agent does not know whom to ask.
var errNoServers = errors.New("node.servers: none; give the addresses of the cluster's DNS servers, with --server")

func (d *Daemon) newReplica(n *config.NodeConfig) (r *secondary.Secondary, err error) {
	cfg := n.Secondary
	cfg.Log = d.log
	if cfg.Node == "" {
		cfg.Node, _ = os.Hostname() // without a name all prefer the same primary
	}
	if len(n.Named) > 0 {
		cfg.Finder = &finder{d, n.Named}
	}
	if n.Key != nil {
		if cfg.Key, err = rereadKey(*n.Key, d.log); err != nil {
			return nil, err
		}
	}
	if d.cfg.DNS.TLS.Certificate != "" {
		c, err := newCertificate(d.cfg.DNS.TLS.Certificate, d.cfg.DNS.TLS.Key, d.log)
		if err != nil {
			return nil, err
		}
		if cfg.TLS == nil {
			cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		cfg.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.get(nil) }
	}
	return secondary.New(cfg)
}

// keyTime is how far apart a key's file is read, at least: who sends what is said to
// be signed may be anybody.
const keyTime = time.Second

// rereadKey gives a key as its file has it, or had it within keyTime. Where that
// can't be used, the one before stays.
func rereadKey(file transfer.KeyFile, log *slog.Logger) (func() *dnswire.TSIGKey, error) {
	first, err := file.Read()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // of what follows
	last, read, bad := first, time.Now(), false
	return func() *dnswire.TSIGKey {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if now.Sub(read) < keyTime {
			return last
		}
		read = now
		key, err := file.Read()
		if err == nil {
			last = key
		} else if !bad {
			log.Error("the key can't be used; the one before stays", "err", err)
		}
		bad = err != nil
		return last
	}, nil
}

// finder finds primaries by asking the cluster's servers for their names.
type finder struct {
	daemon *Daemon
	named  []config.NamedPrimary
}

// Find gives those of all names that are there; it fails when there is none.
func (f *finder) Find(ctx context.Context) (found []forward.Upstream, err error) {
	for _, n := range f.named {
		for _, t := range []dnswire.Type{dnswire.TypeA, dnswire.TypeAAAA} {
			addrs, failure := f.daemon.askOthers(ctx, n.Name, t)
			err = errors.Join(err, failure)
			for _, addr := range addrs {
				primary := n.Like
				primary.Addr = netip.AddrPortFrom(addr, n.Like.Addr.Port())
				found = append(found, primary)
			}
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, err
}

// askOthers gives the addresses of a name that others know.
func (d *Daemon) askOthers(ctx context.Context, name dnsname.Name, t dnswire.Type) (addrs []netip.Addr, err error) {
	others, q := d.current.Load().others, cache.Key{Name: []byte(name.WireLabels()), Type: t}
	now := time.Now()
	e, _ := others.Cached(q, now)
	if e == nil {
		request, err := others.Reserve(netip.Addr{}, q)
		if err != nil {
			return nil, err
		}
		e, now = request.Resolve(ctx)
	}
	if addrs, err = addressesOf(e, now); err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, t, err)
	}
	return addrs, nil
}

var errPast = errors.New("what was known is past its time")

// addressesOf gives the addresses in an answer of others; it fails where there are
// none.
func addressesOf(e *cache.Entry, now time.Time) (addrs []netip.Addr, err error) {
	reply, _, _ := e.Answer(now)
	switch {
	case reply == nil && e.Failure == nil:
		return nil, errPast
	case reply == nil:
		return nil, errors.New(e.Failure.Text)
	}
	for rec := range reply.Records {
		if rec.Section == dnswire.Answer {
			for addr := range rec.Addresses {
				addrs = append(addrs, addr)
			}
		}
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%s, no address", reply.RCode)
	}
	return addrs, nil
}

// newNodeAnswers makes what a node answers from instead of a compiled cluster.
func (d *Daemon) newNodeAnswers(a *answers) (err error) {
	settings := a.settings
	settings.DNS.Listen = settings.Node.Listen
	settings.DNS.Routes = append(settings.DNS.Routes, settings.Node.Routes...)
	if d.agent.replica != nil {
		a.db = d.agent.replica.DB()
		return nil
	}
	a.db, err = zone.New()
	return err
}

// setNode sets what is a node's own in the settings of its Responder.
func (d *Daemon) setNode(cfg *respond.Config, settings *config.Compiled) {
	switch {
	case d.agent == nil:
	case d.agent.replica == nil:
		cfg.Relay = settings.Node.Relay
	default:
		cfg.ForwardWhileLoading, cfg.NotifyHandler = true, d.agent.replica
	}
}

// followNothing waits until others are to take the place of a, and gives those:
// what a node answers from keeps itself up to date.
func (d *Daemon) followNothing(ctx context.Context, a *answers, _ *cluster.Feed) (next *answers, err error) {
	d.queries.Set(a.settings.DNS.QueryLog)
	defer d.runBeside(ctx, a)()
	d.current.Store(a)
	d.status.missing.Store(new([]cluster.Kind))
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case next = <-d.replaced:
		return next, nil
	}
}

// open gives what keeps a node's part of the cluster, or the cluster's, up to date
// until its context is done. It puts a node's addresses there.
func (d *Daemon) open(version string) (run func(context.Context) error, err error) {
	if d.agent != nil {
		if d.agent.replica != nil {
			d.agent.replica.Restore()
		}
		return d.runNode, d.installNetwork()
	}
	if run, err = d.openSource(version); err != nil {
		return nil, err
	}
	return run, d.recall()
}

func (d *Daemon) installNetwork() (err error) {
	cfg := d.current.Load().settings.Node.Network
	if len(cfg.Addresses) == 0 {
		return nil
	}
	cfg.Log = d.log
	d.agent.network, err = hostnet.Install(cfg)
	return err
}

// divert has packets to the node's addresses come here, until ctx is done.
func (d *Daemon) divert(ctx context.Context) error {
	if d.agent == nil || d.agent.network == nil {
		return nil
	}
	context.AfterFunc(ctx, func() {
		if err := d.agent.network.Undivert(); err != nil {
			d.log.Warn("packets to the node's addresses come here until the end", "err", err)
		}
	})
	return d.agent.network.Divert()
}

// runNode keeps the node's copy, and its network as it was put there, until ctx is
// done.
func (d *Daemon) runNode(ctx context.Context) error {
	if network := d.agent.network; network != nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = network.Run(ctx) // ends with ctx
		}()
		defer func() { <-done }()
	}
	if d.agent.replica != nil {
		return d.agent.replica.Run(ctx)
	}
	<-ctx.Done()
	return ctx.Err()
}

// closeNetwork takes from the node what was put there.
func (d *Daemon) closeNetwork() {
	if d.agent == nil || d.agent.network == nil {
		return
	}
	if err := d.agent.network.Close(); err != nil {
		d.log.Error("the node's network is not as it was", "err", err)
	}
}

// tell tells the figures of a node.
func (n *agent) tell(f *metrics.Figures) {
	if n.network != nil {
		f.Node = &metrics.NodeFigures{Repairs: n.network.Repairs(), Healthy: n.network.Healthy() == nil}
	}
	if n.replica != nil {
		f.Replica = new(n.replica.Status())
	}
}

// ready says in words what is missing until a node is ready, and what is stale
// besides. Names that are not there yet are asked for elsewhere.
func (n *agent) ready(limit time.Duration) (missing, remarks []string) {
	if n.network != nil {
		if err := n.network.Healthy(); err != nil {
			remarks = append(remarks, "the node's network can't be repaired: "+err.Error())
		}
	}
	if n.replica == nil {
		return nil, remarks
	}
	for _, z := range n.replica.Status().Zones {
		age := time.Since(z.VerifiedAt)
		switch {
		case !z.Loaded:
			missing = append(missing, fmt.Sprintf("there is no copy of %s yet%s", z.Zone, because(z.Failure)))
		case !z.Stale:
		case limit > 0 && age > limit:
			missing = append(missing, fmt.Sprintf("the copy of %s is old%s", z.Zone, because(z.Failure)))
		default:
			remarks = append(remarks, fmt.Sprintf("the copy of %s is old%s", z.Zone, because(z.Failure)))
		}
	}
	return missing, remarks
}
