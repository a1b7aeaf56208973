package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/ops/metrics"
)

// Reload describes how settings are reloaded.
type Reload struct {
	// Level is the level of the log.
	Level *slog.LevelVar
	// Follower reads the settings again, including overrides by the command line. Run
	// sets its Apply and Report.
	Follower *config.Follower
	// Frozen returns next with the start's values for the keys that need a restart, and
	// the paths of those keys that differ.
	Frozen func(start, next config.Config) (config.Config, []string)
}

// reload applies the settings when their files change, until ctx is done. If they are
// invalid, the previous ones stay in force.
func (d *Daemon) reload(ctx context.Context) error {
	f := d.cfg.Reload.Follower
	f.Apply, f.Report = d.apply, d.reloaded
	d.reloads.record(nil)
	return f.Run(ctx)
}

// reloaded logs and records the outcome of a reload.
func (d *Daemon) reloaded(err error) {
	if err == nil {
		d.cfg.Log.Info("configuration reloaded")
	} else {
		d.cfg.Log.Warn("the configuration cannot be used; the one before stays in force", "err", err)
	}
	d.reloads.record(err)
}

// apply passes settings to the parts that can change them.
func (d *Daemon) apply(next config.Config) error {
	r := d.cfg.Reload
	next, waiting := r.Frozen(d.cfg.Settings, next)
	if len(waiting) > 0 {
		d.cfg.Log.Warn("these settings take effect at the next start", "keys", waiting)
	}
	if err := d.reconfigure(next); err != nil {
		return err
	}
	var level slog.Level
	_ = level.UnmarshalText([]byte(next.Log.Level)) // checked with the configuration
	r.Level.Set(level)
	return nil
}

// reconfigure gives all parts their new settings, or leaves all with the ones before.
func (d *Daemon) reconfigure(next config.Config) error {
	var done []Reconfigurer
	for _, p := range d.cfg.Parts {
		part, ok := p.(Reconfigurer)
		if !ok {
			continue
		}
		if err := part.Reconfigure(next); err != nil {
			errs := []error{fmt.Errorf("%s: %w", p.Name(), err)}
			for _, part := range done {
				errs = append(errs, part.Reconfigure(d.inForce))
			}
			return errors.Join(errs...)
		}
		done = append(done, part)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inForce = next
	return nil
}

// reloadState is the result of the last reload.
type reloadState struct {
	mu   sync.Mutex
	done bool
	err  error
	good time.Time // time of the last success; zero if there was none since the start
}

func (s *reloadState) record(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done, s.err = true, err
	if err == nil {
		s.good = time.Now()
	}
}

// remarks describes why the settings in force differ from the files.
func (s *reloadState) remarks() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return []string{"the configuration file cannot be used, and earlier settings are in force: " + s.err.Error()}
}

var (
	reloadSuccess = metrics.Desc(
		"config_reload_success", "1 if the last reload of the configuration succeeded, 0 if it failed.",
	)
	reloadTime = metrics.Desc(
		"config_last_reload_timestamp_seconds", "Time of the last successful reload of the configuration.",
	)
)

// Describe sends the descriptions of what Collect sends.
func (s *reloadState) Describe(ch chan<- *prometheus.Desc) {
	ch <- reloadSuccess
	ch <- reloadTime
}

// Collect sends the result of the last reload.
func (s *reloadState) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		return
	}
	metrics.Gauge(ch, reloadSuccess, metrics.Truth(s.err == nil))
	if !s.good.IsZero() {
		metrics.Gauge(ch, reloadTime, float64(s.good.UnixNano())/1e9)
	}
}
