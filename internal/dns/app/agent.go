package app

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

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/secondary"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
	"portolan.dev/portolan/internal/dns/transfer"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/certfile"
	"portolan.dev/portolan/internal/support/deadline"
)

// NewAgent returns the DNS of an agent on a node. The agent transfers its zones from
// the cluster's servers or, in cache mode, forwards queries to them. NewAgent returns
// an error if the configuration is invalid. It starts nothing.
func NewAgent(cfg Config) (*DNS, error) {
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	if len(cfg.Settings.Node.Servers) == 0 {
		return nil, errNoServers
	}
	d := newDNS(cfg)
	d.sharePorts, d.notify.listen = true, compiled.Node.Notify
	if compiled.Node.Mode == dnssettings.NodeCache {
		d.keeper = &forwardedZones{}
		return d, d.begin()
	}
	keeper := &transferredZones{staleLimit: time.Duration(cfg.Settings.Admin.MaxStaleness)}
	if keeper.secondary, err = d.newSecondary(&compiled.Node); err != nil {
		return nil, err
	}
	d.keeper, d.restore = keeper, keeper.secondary.Restore
	d.background = append(d.background, keeper.secondary.Run)
	return d, d.begin()
}

// NodeSettings returns the compiled section node of the newest settings.
func (d *DNS) NodeSettings() *dnssettings.CompiledNode { return &d.newest.settings.Node }

// errNoServers is the error for an agent without the addresses of the cluster's
// servers.
var errNoServers = errors.New("node.servers: none; give the addresses of the cluster's DNS servers, with --server")

// forwardedZones is the zoneKeeper of cache mode. It has no zones: queries for the
// cluster's names are forwarded to the cluster's servers.
type forwardedZones struct{}

func (forwardedZones) prepare(a, _ *answers) (err error) {
	if err := useNodeSettings(a.settings); err != nil {
		return err
	}
	a.wiring.Relay = a.settings.Node.Relay
	a.db, err = zone.New()
	return err
}

func (forwardedZones) keep(ctx context.Context, _ *answers, publish func()) error {
	publish()
	<-ctx.Done()
	return ctx.Err()
}

func (forwardedZones) ready() (missing, remarks []string) { return nil, nil }

func (forwardedZones) collect(*figures) {}

// useNodeSettings sets the agent's listen addresses and adds its routes. Names that the
// cluster's servers have are not outside, although they are forwarded.
func useNodeSettings(s *config.Compiled) error {
	if len(s.DNS.Views) > 0 {
		return errViews
	}
	s.DNS.Listen = s.Node.Listen
	s.DNS.Routes = append(s.DNS.Routes, s.Node.Routes...)
	s.DNS.Rules.Served = s.DNS.Served()
	return nil
}

// errViews is the error for an agent with views. It has no zones of its own to show or
// hide, and what it forwards has its address, not the client's.
var errViews = errors.New(
	"dns.views: agents on nodes have no views, and servers see the agents' addresses; give the servers the views",
)

// transferredZones is the zoneKeeper of an agent with zones transferred by a secondary
// (RFC 9499). The secondary runs independently of answers.
type transferredZones struct {
	secondary  *secondary.Secondary
	staleLimit time.Duration // age at which a stale zone makes the agent unready; 0 is no limit
}

func (t *transferredZones) prepare(a, _ *answers) error {
	if err := useNodeSettings(a.settings); err != nil {
		return err
	}
	a.wiring.ForwardWhileLoading, a.wiring.NotifyHandler = true, t.secondary
	a.db = t.secondary.DB()
	return nil
}

func (t *transferredZones) keep(ctx context.Context, _ *answers, publish func()) error {
	publish()
	<-ctx.Done()
	return ctx.Err()
}

// ready lists the zones that are not loaded yet, whose queries are forwarded meanwhile,
// and the stale ones.
func (t *transferredZones) ready() (missing, remarks []string) {
	for _, z := range t.secondary.Status().Zones {
		age := time.Since(z.VerifiedAt)
		switch {
		case !z.Loaded:
			missing = append(missing, fmt.Sprintf("zone %s is not loaded%s", z.Zone, because(z.Failure)))
		case !z.Stale:
		case t.staleLimit > 0 && age > t.staleLimit:
			missing = append(missing, fmt.Sprintf("zone %s is stale%s", z.Zone, because(z.Failure)))
		default:
			remarks = append(remarks, fmt.Sprintf("zone %s is stale%s", z.Zone, because(z.Failure)))
		}
	}
	return missing, remarks
}

func (t *transferredZones) collect(f *figures) { f.secondary = new(t.secondary.Status()) }

func (d *DNS) newSecondary(n *dnssettings.CompiledNode) (s *secondary.Secondary, err error) {
	cfg := n.Secondary
	cfg.Log = d.cfg.Log
	if cfg.Node == "" {
		cfg.Node, _ = os.Hostname() // without a name, all agents prefer the same primary
	}
	if len(n.Named) > 0 {
		cfg.Finder = &finder{d, n.Named}
	}
	if n.Key != nil {
		if cfg.Key, err = rereadKey(*n.Key, d.cfg.Log); err != nil {
			return nil, err
		}
	}
	if files := d.cfg.Settings.DNS.TLS; files.Certificate != "" {
		c, err := certfile.Open(files.Certificate, files.Key, d.cfg.Log)
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		if cfg.TLS == nil {
			cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		cfg.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.Get(), nil }
	}
	return secondary.New(cfg)
}

// keyTime is the shortest interval between reads of a key file. Anyone can send a
// message that claims to be signed, so unverified traffic must not trigger reads.
const keyTime = time.Second

// rereadKey returns a function that returns the key in the file. The function reads the
// file at most once per keyTime. If the file is unusable, the previous key stays in
// force.
func rereadKey(file transfer.KeyFile, log *slog.Logger) (func() *dnswire.TSIGKey, error) {
	reader := &transfer.KeyReader{KeyFile: file}
	first, err := reader.Read(context.Background(), deadline.File)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // guards last, read and bad
	last, read, bad := first, time.Now(), false
	return func() *dnswire.TSIGKey {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if now.Sub(read) < keyTime {
			return last
		}
		read = now
		key, err := reader.Read(context.Background(), deadline.Prompt)
		if err == nil {
			last = key
		} else if !bad {
			log.Error("the key cannot be used; the one before stays in force", "err", err)
		}
		bad = err != nil
		return last
	}, nil
}

// finder resolves the names of primaries.
type finder struct {
	dns   *DNS
	named []dnssettings.NamedPrimary
}

// Find returns the primaries of all names. It returns an error if it finds none.
func (f *finder) Find(ctx context.Context) (found []forward.Upstream, err error) {
	for _, n := range f.named {
		for _, t := range []dnswire.Type{dnswire.TypeA, dnswire.TypeAAAA} {
			addrs, failure := f.dns.resolve(ctx, n.Name, t)
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

// resolve returns the addresses of a name, from the cache or from the upstreams.
func (d *DNS) resolve(ctx context.Context, name dnsname.Name, t dnswire.Type) (addrs []netip.Addr, err error) {
	upstreams, q := d.current.Load().upstreams, cache.Key{Name: []byte(name.WireLabels()), Type: t}
	now := time.Now()
	e, _ := upstreams.Cached(q, now)
	if e == nil {
		e, now = upstreams.Reserve(netip.Addr{}, q).Resolve(ctx)
	}
	if addrs, err = addressesOf(e, now); err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, t, err)
	}
	return addrs, nil
}

var errExpired = errors.New("the answer expired while it was waited for")

// addressesOf lists the addresses in an upstream's reply. It returns an error if there
// are none.
func addressesOf(e *cache.Entry, now time.Time) (addrs []netip.Addr, err error) {
	reply, _, _ := e.Answer(now)
	switch {
	case reply == nil && e.Failure == nil:
		return nil, errExpired
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
