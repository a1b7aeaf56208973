package conflist

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"portolan.dev/portolan/internal/cni/plugin"
)

// Intervals of Follow.
const (
	// settleInterval is the time from a change of the directory until Follow looks at it. An installer may
	// write a file in several steps.
	settleInterval = 100 * time.Millisecond
	// lookInterval is the time between two looks at a directory in which nothing is reported to change.
	lookInterval = 10 * time.Second
	// patience is how long a configuration may be in a state that Follow cannot use before it logs that.
	patience = 2 * time.Second
	// A repair after contestCount others within contestInterval is delayed by contestPause: another program
	// undoes each.
	contestCount    = 5
	contestInterval = time.Minute
	contestPause    = 30 * time.Second
)

// Follow keeps the plugin installed until ctx is done, and returns nil: when another installer rewrites the
// configuration, or a new one comes to be the first, and when the program is removed. It logs changes, and
// problems once each.
func Follow(ctx context.Context, cfg Config, log *slog.Logger) error {
	f := &follower{cfg: cfg.withDefaults(), log: log}
	var events <-chan fsnotify.Event
	if w, err := fsnotify.NewWatcher(); err == nil {
		defer w.Close()
		f.watcher, events = w, w.Events
		go func() {
			for range w.Errors { // it ends with the watcher
				continue
			}
		}()
	} else {
		log.Warn("changes of the CNI configuration are noticed late", "err", err)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			timer.Reset(f.look(time.Now()))
		case event := <-events:
			if matters(event) && !f.contested {
				timer.Reset(settleInterval)
			}
		}
	}
}

// follower is the state of Follow.
type follower struct {
	cfg     Config
	log     *slog.Logger
	watcher *fsnotify.Watcher // nil without one: then there is lookInterval

	repairs   []time.Time // of contestInterval, the oldest first
	contested bool
	failing   time.Time // since when; zero if it is not
	reported  string    // the problem that was logged last
	warned    []string
	installed bool // the program, once
}

// effectOf returns what it means to Pods if the plugin is not in the configuration.
func effectOf(cfg Config) string {
	if cfg.Own != "" {
		return "Pods cannot start meanwhile"
	}
	return "Pods that start meanwhile do not wait for their policies"
}

// matters reports whether an event is of a file that runtimes read.
func matters(e fsnotify.Event) bool {
	return slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name))
}

// look repairs what is to be repaired, and returns how long to wait until the next look.
func (f *follower) look(now time.Time) time.Duration {
	f.repairs = slices.DeleteFunc(f.repairs, func(t time.Time) bool { return now.Sub(t) > contestInterval })
	f.contested = false
	if f.watcher != nil {
		_ = f.watcher.Add(f.cfg.ConfDir) // the directory may be new; if there is none, repair says so
	}
	n, err := f.repair()
	switch {
	case errors.Is(err, errRewritten):
		return settleInterval
	case err != nil:
		if f.failing.IsZero() {
			f.failing = now
		}
		if now.Sub(f.failing) >= patience {
			f.report(err)
		}
		return patience
	}
	f.failing = time.Time{}
	f.report(nil)
	if !n.Changed {
		return lookInterval
	}
	f.log.Info("the CNI plugin is in the configuration of the network", "file", n.File, "plugins", n.Plugins)
	if f.repairs = append(f.repairs, now); len(f.repairs) <= contestCount {
		return lookInterval
	}
	f.contested = true
	f.log.Warn(
		"another program undoes the change of the CNI configuration again and again", "file", n.File,
		"effect", effectOf(f.cfg),
	)
	return contestPause
}

// repair installs what is missing.
func (f *follower) repair() (Network, error) {
	_, err := os.Stat(filepath.Join(f.cfg.BinDir, plugin.Type))
	if err != nil || !f.installed {
		path, changed, err := InstallProgram(f.cfg)
		if err != nil {
			return Network{}, err
		}
		if f.installed = true; changed {
			f.log.Info("the CNI plugin is installed", "file", path)
		}
	}
	if f.cfg.Own != "" {
		return InstallOwn(f.cfg)
	}
	n, err := Join(f.cfg)
	// Of bridges the agent warns when a Pod is behind one.
	if warnings := n.unsupported(); err == nil && !slices.Equal(warnings, f.warned) {
		f.warned = warnings
		for _, w := range warnings {
			f.log.Warn("policies are not enforced for all packets", "reason", w)
		}
	}
	return n, err
}

// report reports a problem, and logs it if it is not the one before, or that it has gone.
func (f *follower) report(err error) {
	if f.cfg.Observe != nil {
		f.cfg.Observe(err)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == f.reported:
		return
	case err == nil:
		f.log.Info("the CNI plugin can be installed again")
	default:
		f.log.Warn("the CNI plugin cannot be installed", "effect", effectOf(f.cfg), "err", err)
	}
	f.reported = text
}
