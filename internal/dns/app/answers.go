package app

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/dns/respond"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
	"portolan.dev/portolan/internal/dns/transfer"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/evidence"
)

// answers is all state that answers to queries depend on. It is made from one
// configuration.
type answers struct {
	settings  *config.Compiled
	roots     []*x509.CertPool   // see rootsOf
	compiler  *kubezone.Compiler // nil if the zones are not compiled in this process
	db        *zone.DB
	local     *localzone.Zones   // nil if the zones are not compiled in this process
	upstreams *forward.Forwarder // nil if nothing is forwarded
	cache     *cache.Cache
	forwarded forwardSettings
	filter    *filter.Filter // nil when there are no rules
	limiter   *filter.RateLimiter
	transfer  *transfer.Sender // nil when zones are not transferred
	stats     *respond.Stats
	responder *respond.Responder
	views     []*respond.Responder // of the settings' views, in their order
	// wiring is the responder's configuration.
	wiring respond.Config
}

// newAnswers returns answers whose zone serials start at serial. It reuses the parts of
// before whose settings are unchanged, so that their serials continue and their caches
// stay full.
func (d *DNS) newAnswers(cfg config.Config, serial uint32, before *answers) (*answers, error) {
	compiled, err := cfg.Compile()
	if err != nil {
		return nil, err
	}
	zones := &compiled.DNS.Zone
	zones.Serial, zones.Between = serial, d.AnswerWaiting
	if compiled.DNS.Transfer.IsOn() {
		zones.Instance = newInstance()
	}
	a := &answers{settings: compiled, roots: rootsOf(compiled)}
	if err := d.keeper.prepare(a, before); err != nil {
		return nil, err
	}
	if err := d.forwardFor(cfg, a, before); err != nil {
		return nil, err
	}
	if err := a.newFilter(before); err != nil {
		return nil, err
	}
	if a.compiler != nil { // last: it changes zones that before may share
		if err := d.transferFor(a, before); err != nil {
			return nil, err
		}
	}
	seats := d.seats(compiled.DNS.Listen)
	a.stats = statsFor(a.db, before, seats)
	if d.evidence == nil {
		d.evidence = d.cfg.Evidence.Source(evidence.SourceConfig{
			Kind: respond.EvidenceKind, Reasons: respond.EvidenceReasons(), Seats: seats, Pod: d.cfg.Pod,
		})
	}
	a.wiring.Data, a.wiring.Stats = a.db, a.stats
	a.wiring.Rules, a.wiring.Limiter = a.filter, a.limiter
	if a.upstreams != nil {
		a.wiring.Upstreams = a.upstreams
	}
	d.identify(cfg.DNS, a)
	a.responder, err = respond.New(a.wiring)
	for i := range compiled.DNS.Views {
		view, failed := respond.New(compiled.DNS.Views[i].Config(a.wiring))
		if failed != nil {
			return nil, failed
		}
		a.views = append(a.views, view)
	}
	return a, err
}

// identify sets the server's identity, EDNS limits, cookies, search path, observer and gate.
func (d *DNS) identify(cfg dnssettings.DNS, a *answers) {
	compiled := &a.settings.DNS
	w := &a.wiring
	w.UDPSize, w.TCPIdle = cfg.UDPSize, time.Duration(cfg.TCP.Idle)
	w.NSID, w.ServerID, w.Version = nsid(cfg.Identity.NSID), cfg.Identity.ServerID, cfg.Identity.Version
	if w.CookieSecrets = compiled.CookieSecrets; len(w.CookieSecrets) == 0 {
		w.CookieSecrets = []respond.CookieSecret{d.secret}
	}
	w.Gate, w.Evidence = d.cfg.Gate, d.evidence
	w.Search, w.SearchSOA = autopath.New(compiled.Autopath), compiled.AutopathSOA
	if !compiled.QueryLog.Empty() {
		compiled.QueryLog.Tap.Identity = w.NSID
		w.Observer = d.queries
	}
}

// newFilter sets the filter rules and the rate limiter.
func (a *answers) newFilter(before *answers) (err error) {
	compiled := &a.settings.DNS
	a.limiter = filter.NewRateLimiter(compiled.RateLimit)
	if compiled.Rules.Empty() {
		return nil
	}
	var last *filter.Filter
	if before != nil {
		last = before.filter
	}
	a.filter, err = filter.Renew(last, compiled.Rules)
	return err
}

// newInstance returns a random label that identifies one history of serials.
func newInstance() string {
	var raw [8]byte
	_, _ = rand.Read(raw[:]) // never fails
	return hex.EncodeToString(raw[:])
}

// statsFor returns the counters of answers. It reuses those of before if the zones are
// the same.
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

// nsid returns the configured identity, or the host name cut to the length of a label.
func nsid(configured string) string {
	if configured != "" {
		return configured
	}
	const maxLabel = 63
	host, _ := os.Hostname() // without a host name the NSID is empty
	return host[:min(len(host), maxLabel)]
}

// serial returns the highest serial of all zones.
func (a *answers) serial() (highest uint32) {
	for i, soa := range a.db.SOAs() {
		if i == 0 || after(soa.Serial, highest) {
			highest = soa.Serial
		}
	}
	return highest
}

// after reports whether serial a comes after b (RFC 1982, section 3.2).
func after(a, b uint32) bool { return int32(a-b) > 0 }

// run runs the background work of answers, except for the zones, until ctx is done.
func (a *answers) run(ctx context.Context, log *slog.Logger) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if a.upstreams != nil {
		wg.Go(func() { _ = a.upstreams.Run(ctx, log) }) // ends with ctx
	}
	if a.filter != nil {
		wg.Go(func() { _ = a.filter.Run(ctx, log) })
	}
	if a.local != nil {
		wg.Go(func() { _ = a.local.Run(ctx, log, a.db, a.notifySecondaries) }) // ends with ctx
	}
	if a.transfer != nil {
		wg.Go(func() {
			if err := a.transfer.Run(ctx, log); ctx.Err() == nil {
				log.Error("secondaries are not notified of changes", "err", err)
			}
		})
	}
}

// notifySecondaries has secondaries notified of a change of the zones.
func (a *answers) notifySecondaries() {
	if a.transfer != nil {
		a.transfer.Changed()
	}
}

// worker answers queries from the current answers.
type worker struct {
	dns  *DNS
	seat int
	of   *answers
	*respond.Worker
	views []*respond.Worker // of the views, in their order
}

func (d *DNS) newWorker(seat int) dnsserver.Answerer { return &worker{dns: d, seat: seat} }

// Respond answers one query. See respond.Worker.
func (w *worker) Respond(packet []byte, client respond.Client, buf []byte) ([]byte, dnsserver.Deferred) {
	if now := w.dns.current.Load(); now != w.of {
		w.use(now)
	}
	chosen := w.Worker
	if len(w.views) > 0 {
		chosen = w.viewOf(client)
	}
	answer, deferred := chosen.Respond(packet, client, buf)
	if deferred == nil {
		return answer, nil // a nil pointer in an interface is not nil
	}
	return nil, deferred
}

// use makes a the answers that w answers from.
func (w *worker) use(a *answers) {
	w.of, w.Worker, w.views = a, a.responder.NewWorker(w.seat), nil
	for _, view := range a.views {
		w.views = append(w.views, view.NewWorker(w.seat))
	}
}

// viewOf returns the worker of the first view that has the client, or that of clients
// without a view.
func (w *worker) viewOf(client respond.Client) *respond.Worker {
	for i := range w.of.settings.DNS.Views {
		if w.of.settings.DNS.Views[i].Contains(client.Addr) {
			return w.views[i]
		}
	}
	return w.Worker
}
