package app

import (
	"sync"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/dns/respond"
)

// Examined is the DNS of a process as the page asks it: for the same zones by the same rules, but its answers count
// nowhere, are not limited, and nothing is forwarded.
type Examined struct {
	dns *DNS

	mu sync.Mutex
	of *answers // of which responder is
	as *respond.Responder
}

// Examine returns the DNS for the page.
func (d *DNS) Examine() *Examined { return &Examined{dns: d} }

// Responder returns what answers for the zones as they are now.
func (e *Examined) Responder() (*respond.Responder, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.dns.current.Load(); a != e.of {
		w := &a.wiring
		made, err := respond.New(respond.Config{
			Data: a.db, Rules: a.filter, UDPSize: w.UDPSize, Search: w.Search, SearchSOA: w.SearchSOA,
		})
		if err != nil {
			return nil, err
		}
		e.of, e.as = a, made
	}
	return e.as, nil
}

// ZoneProblems returns why local zones are not as their files are.
func (e *Examined) ZoneProblems() []*localzone.ZoneError { return e.dns.ZoneProblems() }

// Release does nothing: the zones are those of the process.
func (e *Examined) Release() {}

// Upstreams returns the counters of the servers that names outside the cluster are asked of.
func (d *DNS) Upstreams() []forward.UpstreamStats {
	if f := d.current.Load().upstreams; f != nil {
		return f.Stats().Upstreams
	}
	return nil
}

// OnDemand is the DNS of a cluster in a process that serves none: the zones are compiled when they are asked for.
type OnDemand struct {
	cfg Config

	mu       sync.Mutex
	examined *Examined     // nil until it is asked for
	feed     *cluster.Feed // the changes since the zones were compiled
}

// NewOnDemand returns an OnDemand. It returns an error if the configuration is invalid.
func NewOnDemand(cfg Config) (*OnDemand, error) {
	cfg.Settings.DNS.Forward.Routes = nil
	_, err := New(cfg)
	return &OnDemand{cfg: cfg}, err
}

// Responder compiles what has changed, and returns what answers for the zones.
func (o *OnDemand) Responder() (*respond.Responder, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.examined == nil {
		dns, err := New(o.cfg)
		if err != nil {
			return nil, err
		}
		o.examined, o.feed = dns.Examine(), o.cfg.Store.Subscribe()
	}
	a := o.examined.dns.current.Load()
	a.compiler.Apply(o.cfg.Store, o.feed, a.db)
	return o.examined.Responder()
}

// ZoneProblems returns why local zones are not as their files are.
func (o *OnDemand) ZoneProblems() []*localzone.ZoneError {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.examined == nil {
		return nil
	}
	return o.examined.ZoneProblems()
}

// Release forgets the zones until they are asked for again.
func (o *OnDemand) Release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.examined != nil {
		o.feed.Close()
		o.examined, o.feed = nil, nil
	}
}
