package daemon

import (
	"cmp"
	"context"
	"io"
	"maps"
	"net/http"
	"slices"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/ops/access"
	"portolan.dev/portolan/internal/ops/admin"
	"portolan.dev/portolan/internal/ops/metrics"
	"portolan.dev/portolan/internal/ops/web"
	"portolan.dev/portolan/internal/support/bind"
	"portolan.dev/portolan/internal/support/budget"
)

// bindAdmin binds the admin server and the servers for probes only. It returns the
// served addresses for the log.
func (d *Daemon) bindAdmin(ctx context.Context) (serving []any, err error) {
	settings, err := d.cfg.Settings.Admin.Compile()
	if err != nil {
		return nil, err
	}
	registry := metrics.New(d.cfg.Version)
	for _, p := range d.cfg.Parts {
		registry.MustRegister(p.Metrics())
	}
	if d.cfg.Source != nil {
		registry.MustRegister(d.cfg.Source)
	}
	if d.cfg.Reload != nil {
		registry.MustRegister(&d.reloads)
	}
	if d.cfg.Evidence != nil {
		registry.MustRegister(d.cfg.Evidence)
	}
	d.connections = newConnections()
	registry.MustRegister(metrics.Budget{Accounts: d.accounts})
	cfg := admin.Config{
		Connections: d.connections, Debug: d.cfg.Settings.Admin.Debug,
		Ready: d.ready, Metrics: metrics.Handler(registry, d.cfg.Log), Dumps: append(d.cfg.Dumps, d.configDump()),
		Actions: d.cfg.Actions, Pages: d.pages(), DebugPages: d.debugPages(),
		PProf: d.cfg.Settings.Admin.PProf, Log: d.cfg.Log, Program: d.cfg.Program,
	}
	if cfg.Listen = settings.Listen; cfg.Listen.IsValid() {
		if err := d.addViews(&cfg); err != nil {
			return nil, err
		}
		server, err := d.addAdmin(ctx, cfg, cmp.Or(d.cfg.AdminFlag, "--admin"))
		if err != nil {
			return nil, err
		}
		serving = append(serving, "admin", server.Addr())
	}
	var probes []string
	cfg.ProbesOnly, cfg.TLS = true, nil
	for _, cfg.Listen = range settings.Probes {
		server, err := d.addAdmin(ctx, cfg, "admin.probes")
		if err != nil {
			return nil, err
		}
		probes = append(probes, server.Addr())
	}
	for _, cfg.Socket = range settings.ProbeSockets {
		server, err := d.addAdmin(ctx, cfg, "admin.probes")
		if err != nil {
			return nil, err
		}
		probes = append(probes, server.Addr())
	}
	if len(probes) > 0 {
		serving = append(serving, "probes", probes)
	}
	return serving, nil
}

// The share of the memory limit for connections to the admin servers, the memory of one
// in octets, and the highest number.
const (
	connectionShare = 0.03
	connectionCost  = 32 << 10
	maxConnections  = 256
)

func newConnections() *budget.Account {
	n := budget.Within(connectionShare, connectionCost, maxConnections)
	return budget.NewAccount("admin", budget.Limits{Total: n, PerSource: n})
}

// accountant is a Part with accounts of what clients make it hold.
type accountant interface{ Accounts() []budget.Stats }

// accounts returns the figures of all accounts of the process.
func (d *Daemon) accounts() []budget.Stats {
	all := []budget.Stats{d.connections.Stats()}
	for _, p := range d.cfg.Parts {
		if a, ok := p.(accountant); ok {
			all = append(all, a.Accounts()...)
		}
	}
	return all
}

// publisher is a Part with pages on the admin server that are for all clients.
type publisher interface {
	Pages() map[string]http.Handler
}

// pages returns the pages of all parts, by path.
func (d *Daemon) pages() map[string]http.Handler {
	all := make(map[string]http.Handler)
	for _, p := range d.cfg.Parts {
		if of, ok := p.(publisher); ok {
			maps.Copy(all, of.Pages())
		}
	}
	return all
}

// debugPublisher is a Part with pages on the admin server that are for operators.
type debugPublisher interface {
	DebugPages() map[string]http.Handler
}

// debugPages returns the pages for operators of all parts, by path.
func (d *Daemon) debugPages() map[string]http.Handler {
	all := make(map[string]http.Handler)
	for _, p := range d.cfg.Parts {
		if of, ok := p.(debugPublisher); ok {
			maps.Copy(all, of.DebugPages())
		}
	}
	return all
}

// viewer is a Part with views for the page on the admin server, which are for clients that may read it.
type viewer interface {
	Views() map[string]http.Handler
}

// addViews adds the page, the views of all parts, and who may read them.
func (d *Daemon) addViews(cfg *admin.Config) (err error) {
	cfg.Views = make(map[string]http.Handler)
	for _, p := range d.cfg.Parts {
		if of, ok := p.(viewer); ok {
			maps.Copy(cfg.Views, of.Views())
		}
	}
	own := &d.cfg.Settings.Admin
	if own.Page != config.PageOff && len(cfg.Views) > 0 {
		if cfg.Site, err = web.New(); err != nil {
			return err
		}
	}
	maps.Copy(cfg.Views, d.cfg.Evidence.Pages())
	cfg.Guard, cfg.TLS, err = access.Open(access.Files{
		Token: own.TokenFile, Certificate: own.TLS.Certificate, Key: own.TLS.Key, ClientCA: own.TLS.ClientCA,
	}, d.cfg.Log)
	return err
}

// addAdmin binds one server. setting is the key of its address.
func (d *Daemon) addAdmin(ctx context.Context, cfg admin.Config, setting string) (*admin.HTTPServer, error) {
	server, err := admin.Listen(ctx, cfg)
	if err != nil {
		return nil, bind.WithCure(err, setting)
	}
	d.admins = append(d.admins, server)
	return server, nil
}

// configDump returns the page of the settings in force that differ from the defaults.
func (d *Daemon) configDump() admin.Dump {
	return admin.Dump{Path: "/debug/config", ContentType: "application/yaml", Write: func(w io.Writer) error {
		d.mu.Lock()
		c := d.inForce
		d.mu.Unlock()
		c.DNS.Cookies.Secrets = slices.Repeat([]string{"(secret)"}, len(c.DNS.Cookies.Secrets))
		text, err := c.Text(nil)
		if err != nil {
			return err
		}
		if len(text) == 0 {
			text = []byte("# all settings have their defaults\n")
		}
		_, err = w.Write(text)
		return err
	}}
}
