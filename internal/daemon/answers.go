package daemon

import (
	"context"
	"crypto/rand"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/transfer"
	"portolan.dev/portolan/internal/dns/zone"
)

// answers is what queries are answered from, made from one configuration.
type answers struct {
	compiler  *kubezone.Compiler // nil on a node
	db        *zone.DB
	responder *respond.Responder
	stats     *respond.Stats
	others    *forward.Forwarder // nil when nobody else is asked
	cache     *cache.Cache
	asks      asks
	rules     *filter.Filter // nil when there are none
	limiter   *filter.RateLimiter
	transfer  *transfer.Sender // nil when the zones go to nobody
	settings  *config.Compiled
}

// newAnswers makes answers whose serials begin with the one given. They go on
// counting as the ones before did, where the zones are the same.
func (d *Daemon) newAnswers(cfg config.Config, serial uint32, before *answers) (*answers, error) {
	compiled, err := cfg.Compile()
	if err != nil {
		return nil, err
	}
	compiled.DNS.Zone.Serial = serial
	compiled.DNS.Zone.Between = d.answerWaiting
	if compiled.DNS.Transfer.IsOn() {
		compiled.DNS.Zone.Instance = newInstance()
	}
	a := &answers{settings: compiled}
	made := func() error { return a.newZones(before) }
	if d.agent != nil {
		made = func() error { return d.newNodeAnswers(a) }
	}
	if err := made(); err != nil {
		return nil, err
	}
	a.stats = statsFor(a.db, before, d.seats(compiled.DNS.Listen))
	secrets := compiled.DNS.CookieSecrets
	if len(secrets) == 0 {
		secrets = []respond.CookieSecret{d.secret}
	}
	if err := d.newOthers(cfg, a, before); err != nil {
		return nil, err
	}
	if !compiled.DNS.Rules.Empty() {
		var last *filter.Filter
		if before != nil {
			last = before.rules
		}
		if a.rules, err = filter.Renew(last, compiled.DNS.Rules); err != nil {
			return nil, err
		}
	}
	a.limiter = filter.NewRateLimiter(compiled.DNS.RateLimit)
	transfers, err := d.newTransfer(a, before)
	if err != nil {
		return nil, err
	}
	var others respond.Upstreams
	if a.others != nil {
		others = a.others
	}
	var observer respond.Observer
	if !compiled.DNS.QueryLog.Empty() {
		compiled.DNS.QueryLog.Tap.Identity = nsid(cfg.DNS.Identity.NSID)
		observer = d.queries
	}
	settings := respond.Config{
		Data:          a.db,
		Upstreams:     others,
		Rules:         a.rules,
		Limiter:       a.limiter,
		Search:        autopath.New(compiled.DNS.Autopath),
		SearchSOA:     compiled.DNS.AutopathSOA,
		Observer:      observer,
		Transfers:     transfers,
		UDPSize:       cfg.DNS.UDPSize,
		NSID:          nsid(cfg.DNS.Identity.NSID),
		ServerID:      cfg.DNS.Identity.ServerID,
		Version:       cfg.DNS.Identity.Version,
		CookieSecrets: secrets,
		TCPIdle:       time.Duration(cfg.DNS.TCP.Idle),
		Stats:         a.stats,
	}
	d.setNode(&settings, compiled)
	a.responder, err = respond.New(settings)
	return a, err
}

// newZones makes the zones that the cluster is compiled into. They are those of the
// answers before where they would be the same: who follows them goes on.
func (a *answers) newZones(before *answers) (err error) {
	if before != nil && sameZones(a.settings, before.settings) {
		a.settings.DNS.Zone.Instance = before.settings.DNS.Zone.Instance
		a.compiler, a.db = before.compiler, before.db
		return nil
	}
	if a.compiler, err = kubezone.New(a.settings.DNS.Zone); err != nil {
		return err
	}
	a.db, err = a.compiler.NewDB()
	return err
}

// sameZones tells whether two configurations make the same zones.
func sameZones(a, b *config.Compiled) bool {
	of := func(c *config.Compiled) kubezone.Config {
		zones := c.DNS.Zone
		zones.Between, zones.Serial, zones.Instance = nil, 0, ""
		return zones
	}
	return a.DNS.Transfer.IsOn() == b.DNS.Transfer.IsOn() && reflect.DeepEqual(of(a), of(b))
}

func statsFor(db *zone.DB, before *answers, seats int) *respond.Stats {
	var zones []dnsname.Name
	for _, soa := range db.SOAs() {
		zones = append(zones, soa.Zone)
	}
	if before != nil && slices.Equal(before.stats.Zones(), zones) {
		return before.stats
	}
	return respond.NewStats(zones, seats)
}

// nsid is the configured identity, or the host's name as far as it fits.
func nsid(configured string) string {
	if configured != "" {
		return configured
	}
	const maxLabel = 63
	host, _ := os.Hostname() // none is no identity
	return host[:min(len(host), maxLabel)]
}

func randomSecret() (secret respond.CookieSecret) {
	_, _ = rand.Read(secret[:]) // never fails
	return secret
}

// serial is the highest of all zones.
func (a *answers) serial() (highest uint32) {
	for i, soa := range a.db.SOAs() {
		if i == 0 || after(soa.Serial, highest) {
			highest = soa.Serial
		}
	}
	return highest
}

// after compares serials (RFC 1982, section 3.2).
func after(a, b uint32) bool { return int32(a-b) > 0 }

// worker answers queries from the current answers.
type worker struct {
	daemon *Daemon
	seat   int
	of     *answers
	*respond.Worker
}

// Respond answers one query, see respond.Worker.
func (w *worker) Respond(packet []byte, client respond.Client, buf []byte) ([]byte, dnsserver.Deferred) {
	if now := w.daemon.current.Load(); now != w.of {
		w.of, w.Worker = now, now.responder.NewWorker(w.seat)
	}
	answer, later := w.Worker.Respond(packet, client, buf)
	if later == nil {
		return answer, nil // and not a Deferred that is nil
	}
	return nil, later
}

func (d *Daemon) newWorker(seat int) dnsserver.Answerer { return &worker{daemon: d, seat: seat} }

// keepCurrent keeps the current answers up to date, until ctx is done, and puts
// others in their place when there are.
func (d *Daemon) keepCurrent(ctx context.Context) error {
	follow := d.follow
	if d.agent != nil {
		follow = d.followNothing
	}
	a, feed := d.current.Load(), d.store.Subscribe()
	defer func() { feed.Close() }()
	for {
		next, err := follow(ctx, a, feed)
		if err != nil {
			return err
		}
		if next.db == a.db {
			d.current.Store(next) // with what the zones hold, and what the feed has for them
		} else {
			feed.Close()
			feed = d.store.Subscribe()
		}
		a = next
	}
}

// follow keeps a up to date with the store, by what feed has of it, until others are
// to take its place, and gives those.
func (d *Daemon) follow(ctx context.Context, a *answers, feed *cluster.Feed) (next *answers, err error) {
	d.queries.Set(a.settings.DNS.QueryLog)
	defer d.runBeside(ctx, a)()
	gathered, loaded, live := false, len(d.missing()) == 0, d.live()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case next := <-d.replaced:
			return next, nil
		case <-feed.Ready():
		}
		if !loaded && !gathered {
			gathered = d.gather(ctx, feed)
		}
		missing := d.missing() // before the pass, which may see more
		changed := a.compiler.Apply(d.store, feed, a.db)
		d.current.Store(a)
		if a.transfer != nil {
			a.transfer.Changed()
		}
		d.status.missing.Store(&missing)
		d.measure(changed)
		loaded = loaded || len(missing) == 0
		if !live && d.live() {
			live = true
			d.logLoaded()
			go settleMemory()
		}
	}
}

// runBeside runs what answers need beside the cluster, until stop is called.
func (d *Daemon) runBeside(ctx context.Context, a *answers) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	if a.others != nil {
		wg.Go(func() { _ = a.others.Run(ctx, d.log) }) // ends with ctx
	}
	if a.rules != nil {
		wg.Go(func() { _ = a.rules.Run(ctx, d.log) })
	}
	if a.transfer != nil {
		wg.Go(func() {
			if err := a.transfer.Run(ctx, d.log); ctx.Err() == nil {
				d.log.Error("secondaries are not told of changes", "err", err)
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// logLoaded says what there is; manifests have their own line.
func (d *Daemon) logLoaded() {
	if d.api == nil {
		return
	}
	var of []any
	var absent []string
	d.store.View(func(v *cluster.View) {
		for _, k := range d.needed() {
			of = append(of, strings.ToLower(k.String())+"s", v.Len(k))
		}
		for _, name := range d.cfg.Kubernetes.Namespaces {
			if v.Namespace(name) == nil {
				absent = append(absent, name)
			}
		}
	})
	d.log.Info("cluster loaded", of...)
	for _, name := range absent {
		d.log.Warn("a Namespace that is to be read does not exist", "setting", "kubernetes.namespaces", "namespace", name)
	}
}

// gatherTime is how long the first pass waits for kinds that are not there yet
// when some are: at a start they come within moments of each other, and to
// compile everything once is cheaper than once for each.
const gatherTime = time.Second

// gather waits for them, and tells whether any kind is there. Pods are not
// waited for: they may be many, and few ask for them.
func (d *Daemon) gather(ctx context.Context, feed *cluster.Feed) bool {
	late := time.NewTimer(gatherTime)
	defer late.Stop()
	for {
		missing := d.missing()
		switch {
		case len(missing) == len(d.needed()):
			return false
		case len(missing) == 0, slices.Equal(missing, []cluster.Kind{cluster.KindPod}):
			return true
		}
		select {
		case <-ctx.Done():
			return true
		case <-late.C:
			return true
		case <-feed.Ready():
		}
	}
}

// measure tells how long changes took to show whose cause is known.
func (d *Daemon) measure(changed cluster.Changes) {
	now := time.Now()
	for ch, cause := range changed.Objects {
		if cause == 0 || ch.Kind != cluster.KindService {
			continue
		}
		kind := "cluster_ip"
		d.store.View(func(v *cluster.View) {
			if s := v.Service(ch.Key); s != nil && s.Headless {
				kind = "headless"
			}
		})
		d.metrics.Programmed(kind, now.Sub(time.Unix(0, cause)))
	}
}
