package app

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/dns/zone"
)

// compiledZones compiles the zones from the model.
type compiledZones struct {
	dns *DNS
	// feed has the changes since db was last compiled. The two belong together.
	feed *cluster.Feed
	db   *zone.DB
	// missing lists the kinds that were not loaded at the last compilation. It is nil
	// before the first one.
	missing atomic.Pointer[[]cluster.Kind]
	settled bool   // Config.Loaded was called
	signal  func() // called when the zones have been compiled from all kinds but Pods
}

// prepare sets the zones that the cluster is compiled into. It reuses those of before
// if the settings make the same zones, so that secondaries can continue with
// incremental transfers.
func (c *compiledZones) prepare(a, before *answers) (err error) {
	if before != nil && sameZones(a.settings, before.settings) {
		a.settings.DNS.Zone.Instance = before.settings.DNS.Zone.Instance
		a.compiler, a.db, a.local = before.compiler, before.db, before.local
		return nil
	}
	if a.compiler, err = kubezone.New(a.settings.DNS.Zone); err != nil {
		return err
	}
	return a.newDB(before)
}

// newDB makes the zones, with the content of the local ones.
func (a *answers) newDB(before *answers) (err error) {
	cfg := a.settings.DNS.LocalZones
	if cfg.SOA, err = a.compiler.SOA(dnsname.Root); err != nil {
		return err
	}
	var last *localzone.Zones
	published := make(map[dnsname.Name]uint32) // serials
	if before != nil {
		last = before.local
		for _, soa := range before.db.SOAs() {
			published[soa.Zone] = soa.Serial
		}
		for _, p := range last.Problems() {
			if !p.Loaded { // nobody has seen its serial
				delete(published, p.Zone)
			}
		}
	}
	if a.local, err = localzone.New(cfg, last); err != nil {
		return err
	}
	soas := a.local.SOAs()
	for i := range soas {
		if serial, ok := published[soas[i].Zone]; ok && after(serial, soas[i].Serial) {
			soas[i].Serial = serial
		}
	}
	if a.db, err = a.compiler.NewDB(soas...); err != nil {
		return err
	}
	a.local.Publish(a.db)
	return nil
}

// sameZones reports whether two configurations produce the same zones.
func sameZones(a, b *config.Compiled) bool {
	of := func(c *config.Compiled) kubezone.Config {
		zones := c.DNS.Zone
		zones.Between, zones.Serial, zones.Instance = nil, 0, ""
		return zones
	}
	return a.DNS.Transfer.IsOn() == b.DNS.Transfer.IsOn() && reflect.DeepEqual(of(a), of(b)) &&
		reflect.DeepEqual(a.DNS.LocalZones, b.DNS.LocalZones)
}

// keep compiles changes of the model until ctx is done.
func (c *compiledZones) keep(ctx context.Context, a *answers, publish func()) error {
	if c.feed == nil && len(a.settings.DNS.Zone.DNSAddresses) == 0 {
		c.dns.cfg.Log.Warn("ns.dns of each zone has no address unless the DNS Service exists; set dns.nameServer.addresses",
			"service", a.settings.DNS.Zone.DNSService)
	}
	if c.db != a.db {
		if c.feed != nil {
			c.feed.Close()
		}
		c.feed, c.db = c.dns.cfg.Store.Subscribe(), a.db
	}
	gathered, loaded := false, len(c.unloaded(a)) == 0
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.feed.Ready():
		}
		if !loaded && !gathered {
			gathered = c.gather(ctx, a)
		}
		missing := c.unloaded(a) // before the pass: further kinds may load during it
		changed := a.compiler.Apply(c.dns.cfg.Store, c.feed, a.db)
		publish()
		a.notifySecondaries()
		c.missing.Store(&missing)
		if isComplete(missing) {
			c.signal()
		}
		c.measure(changed)
		loaded = loaded || len(missing) == 0
		if !c.settled && c.isLive(a) {
			c.settled = true
			go c.dns.cfg.Loaded()
		}
	}
}

// unloaded returns the kinds that answers need and that are not loaded.
func (c *compiledZones) unloaded(a *answers) (missing []cluster.Kind) {
	c.dns.cfg.Store.View(func(v *cluster.View) {
		for _, k := range a.compiler.Kinds() {
			if !v.Loaded(k) {
				missing = append(missing, k)
			}
		}
	})
	return missing
}

// isLive reports whether all kinds that answers need come from the live source and not
// from a snapshot.
func (c *compiledZones) isLive(a *answers) (live bool) {
	c.dns.cfg.Store.View(func(v *cluster.View) { live = v.Freshness(a.compiler.Kinds()...) == cluster.Live })
	return live
}

// gatherTimeout is the longest time that the first pass waits for further kinds after
// the first is loaded. At startup the kinds load within moments of each other, and
// compiling everything once is cheaper than once per kind.
const gatherTimeout = time.Second

// gather waits for all kinds except Pods, up to gatherTimeout, and reports whether any
// kind is loaded.
func (c *compiledZones) gather(ctx context.Context, a *answers) bool {
	late := time.NewTimer(gatherTimeout)
	defer late.Stop()
	for {
		missing := c.unloaded(a)
		switch {
		case len(missing) == len(a.compiler.Kinds()):
			return false
		case isComplete(missing):
			return true
		}
		select {
		case <-ctx.Done():
			return true
		case <-late.C:
			return true
		case <-c.feed.Ready():
		}
	}
}

// isComplete reports whether no kind is missing but Pods: there may be many, and few
// queries need them.
func isComplete(missing []cluster.Kind) bool {
	return len(missing) == 0 || slices.Equal(missing, []cluster.Kind{cluster.KindPod})
}

// measure records the time from a change of a Service to the answers that show it.
func (c *compiledZones) measure(changed cluster.Changes) {
	now := time.Now()
	for ch, cause := range changed.Objects {
		if cause == 0 || ch.Kind != cluster.KindService {
			continue
		}
		kind := "cluster_ip"
		c.dns.cfg.Store.View(func(v *cluster.View) {
			if s := v.Service(ch.Key); s != nil && s.Headless {
				kind = "headless"
			}
		})
		c.dns.metrics.programmed(kind, now.Sub(time.Unix(0, cause)))
	}
}

// ready lists the kinds that are not loaded and without which there are no answers.
func (c *compiledZones) ready() (missing, remarks []string) {
	unloaded := c.missing.Load()
	if unloaded == nil {
		return []string{"nothing is compiled yet"}, nil
	}
	for _, k := range *unloaded {
		missing = append(missing, fmt.Sprintf("%s are not loaded%s", k.Plural(), because(c.dns.cfg.Problem(k))))
	}
	for _, p := range c.dns.ZoneProblems() {
		remarks = append(remarks, p.Error())
	}
	return missing, remarks
}

// because returns ": " and the problem, or "" if problem is nil.
func because(problem error) string {
	if problem == nil {
		return ""
	}
	return ": " + problem.Error()
}

// collect does nothing: compiled zones have no additional metrics.
func (c *compiledZones) collect(*figures) {}
