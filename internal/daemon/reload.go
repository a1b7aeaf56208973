package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"time"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/ops/metrics"
)

// pollTime is how often the configuration file is looked at: it may be a link
// that is swapped (a mounted ConfigMap), which no watch of the file tells.
const pollTime = time.Second

// reload reads the configuration again when its file changes and when it is
// asked to, until ctx is done. A bad one leaves the one before.
func (d *Daemon) reload(ctx context.Context, o Options) error {
	ticker := time.NewTicker(pollTime)
	defer ticker.Stop()
	applied, made := d.cfg, d.current.Load()
	content, _ := o.Content() // what can't be read has not changed
	// It may have changed since it was read for the start.
	made, _ = d.reloadOnce(o, &applied, made)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.Reload:
			content, _ = o.Content()
		case <-ticker.C:
			now, err := o.Content()
			if err != nil || bytes.Equal(now, content) {
				continue
			}
			content = now
		}
		var err error
		if made, err = d.reloadOnce(o, &applied, made); err == nil {
			d.log.Info("configuration read again")
		}
	}
}

// reloadOnce is reread, with what came of it logged and told.
func (d *Daemon) reloadOnce(o Options, applied *config.Config, made *answers) (*answers, error) {
	fresh, err := d.reread(o, applied, made)
	figures := metrics.ReloadFigures{OK: err == nil, At: time.Now()}
	if err != nil {
		d.log.Error("configuration can't be used; the one before stays", "err", err)
		if last := d.status.reload.Load(); last != nil {
			figures.At = last.At
		}
	}
	d.status.reload.Store(&figures)
	return fresh, err
}

// reread reads the configuration again; where it differs from what was applied,
// answers made from it take the place of those that were made last. It gives
// those that were made last then.
func (d *Daemon) reread(o Options, applied *config.Config, made *answers) (*answers, error) {
	cfg, err := o.Reread()
	if err != nil {
		return made, err
	}
	cfg, waiting := d.frozen(cfg)
	if len(waiting) > 0 {
		d.log.Warn("settings that take effect at the next start", "keys", waiting)
	}
	if o.Level != nil {
		var level slog.Level
		_ = level.UnmarshalText([]byte(cfg.Log.Level)) // checked with the configuration
		o.Level.Set(level)
	}
	applied.Log = cfg.Log
	if reflect.DeepEqual(cfg, *applied) {
		return made, nil
	}
	fresh, err := d.replace(cfg, made)
	if err != nil {
		return made, err
	}
	*applied = cfg
	return fresh, nil
}

// replace has answers made from cfg put in the place of those made last, which
// may themselves not be in their place yet.
func (d *Daemon) replace(cfg config.Config, last *answers) (*answers, error) {
	// Every zone may have changed; those that are go on counting meanwhile.
	const ahead = 1 << 10
	serial := last.serial()
	if now := d.current.Load().serial(); after(now, serial) {
		serial = now
	}
	a, err := d.newAnswers(cfg, serial+ahead, last)
	if err != nil {
		return nil, err
	}
	if a.stats != last.stats {
		d.status.retire(last.stats)
	}
	select {
	case <-d.replaced: // one that nobody has taken yet
	default:
	}
	d.replaced <- a
	return a, nil
}

// frozen is cfg with the values of the start where a key takes effect at a
// start only, and the keys that this is so for and that differ.
func (d *Daemon) frozen(cfg config.Config) (config.Config, []string) {
	var waiting []string
	start := d.cfg
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
	if d.agent != nil { // what it keeps is named by these
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
