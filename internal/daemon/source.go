package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/cluster/snapshot"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/simulate"
)

// loadTime is how long a command that reads a cluster once waits for it.
const loadTime = 30 * time.Second

// lookTime is how often it looks whether the API refuses to be read, and
// refusedTime for how long it believes that this may pass.
const (
	lookTime    = 50 * time.Millisecond
	refusedTime = time.Second
)

// Loaded is what is known of a cluster that was read once, beside the model.
type Loaded struct {
	manifest.Report
	// From are the paths of the manifests; none of a cluster that was read from
	// the API.
	From []string
	// Unread are why kinds can't be read that can be done without.
	Unread []error
	// Where is manifest.Source's; it knows nothing of a cluster that was read
	// from the API.
	Where func(kind cluster.Kind, key cluster.Key, field string) (file string, line int, ok bool)
	// Near is manifest.Source's, too.
	Near func(namespace string) (file string, line int)
	// Declared is, too.
	Declared func(kind cluster.Kind, key cluster.Key) []byte
	// Annotations is, too.
	Annotations func(kind cluster.Kind, key cluster.Key, name string) []string
}

// Load reads the cluster once and compiles it: what answers need or, if it is
// to be whole, all kinds with all that the model has room for. What is wrong
// with manifests is in the report.
func (d *Daemon) Load(ctx context.Context, version string, whole bool) (Loaded, error) {
	return d.loadOnce(func() (Loaded, error) { return d.load(ctx, version, whole) })
}

// Files are manifests to be read in the place of those that the settings name.
type Files struct {
	Paths []string // of files and directories; "-" is Stdin
	// Exclude are patterns of what is left out, see manifest.Config.
	Exclude []string
	Stdin   io.Reader
}

// LoadFiles is Load of all that is in some files.
func (d *Daemon) LoadFiles(f Files) (Loaded, error) {
	return d.loadOnce(func() (Loaded, error) {
		cfg := f.config(d.store)
		d.simulate(&cfg)
		l, err := loadFrom(manifest.New(cfg))
		l.From = f.Paths
		return l, err
	})
}

func (f Files) config(store *cluster.Store) manifest.Config {
	return manifest.Config{
		Path: f.Paths[0], Also: f.Paths[1:], Exclude: f.Exclude, Stdin: f.Stdin, Whole: true,
		Store: store, Log: slog.New(slog.DiscardHandler),
	}
}

// loadOnce compiles what load reads.
func (d *Daemon) loadOnce(load func() (Loaded, error)) (Loaded, error) {
	d.log = slog.New(slog.DiscardHandler)
	if err := d.beginSimulation(); err != nil {
		return Loaded{}, err
	}
	feed := d.store.Subscribe()
	defer feed.Close()
	l, err := load()
	if err != nil {
		return l, err
	}
	a := d.current.Load()
	a.compiler.Apply(d.store, feed, a.db)
	return l, nil
}

func loadFrom(source *manifest.Source) (l Loaded, err error) {
	l.Where, l.Near, l.Annotations, l.Declared = source.Where, source.Near, source.Annotations, source.Declared
	l.Report, err = source.Load()
	return l, err
}

func (d *Daemon) load(ctx context.Context, version string, whole bool) (l Loaded, err error) {
	if d.cfg.Manifests != "" {
		l, err = loadFrom(d.manifests(whole))
		l.From = []string{d.cfg.Manifests}
		return l, err
	}
	l.Where = func(cluster.Kind, cluster.Key, string) (string, int, bool) { return "", 0, false }
	l.Near = func(string) (string, int) { return "", 0 }
	l.Annotations = func(cluster.Kind, cluster.Key, string) []string { return nil }
	l.Declared = func(cluster.Kind, cluster.Key) []byte { return nil }
	wanted, must := d.needed(), d.needed()
	if whole {
		wanted, must = cluster.Kinds(), []cluster.Kind{cluster.KindService}
	}
	api, err := d.newAPI(version, whole)
	if err != nil {
		return l, err
	}
	l.Unread, err = d.loadAPI(ctx, api, wanted, must)
	return l, err
}

// loadAPI reads until all kinds are there that are wanted. If the API refuses
// some, it does without them, but for those that must be there.
func (d *Daemon) loadAPI(ctx context.Context, api *api.Source, wanted, must []cluster.Kind) (unread []error, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	feed := d.store.Subscribe()
	defer feed.Close()
	ended := make(chan error, 1)
	go func() { ended <- api.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	look := time.NewTicker(lookTime)
	defer look.Stop()
	var refused time.Time // since when; zero when it is not
	for missing := d.unloaded(wanted); len(missing) > 0; missing = d.unloaded(wanted) {
		refusals := refusalsOf(api.Status(), missing)
		switch {
		case len(refusals) == 0:
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		case time.Since(refused) > refusedTime:
			for _, k := range missing {
				refusal := refusals[k]
				switch {
				case refusal == nil:
					continue
				case slices.Contains(must, k):
					return nil, refusal
				}
				unread = append(unread, refusal)
				wanted = slices.DeleteFunc(slices.Clone(wanted), func(w cluster.Kind) bool { return w == k })
			}
		}
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, errors.New("interrupted while the cluster was read")
			}
			return nil, errNotRead(problemOf(api.Status(), missing...))
		case <-look.C:
		case <-feed.Ready():
			feed.Pending()
		}
	}
	return unread, nil
}

// refusalsOf are why kinds will not be read, as far as that is known.
func refusalsOf(statuses []api.Status, kinds []cluster.Kind) map[cluster.Kind]error {
	refusals := make(map[cluster.Kind]error)
	for _, k := range kinds {
		if problem := problemOf(statuses, k); api.Refused(problem) {
			refusals[k] = problem
		}
	}
	return refusals
}

// problemOf is why the first of the kinds can't be read, if that is known.
func problemOf(statuses []api.Status, kinds ...cluster.Kind) error {
	for _, k := range kinds {
		for _, st := range statuses {
			if st.Kind == k && st.Problem != nil {
				return st.Problem
			}
		}
	}
	return nil
}

// openSource gives what reads the cluster until its context is done.
func (d *Daemon) openSource(version string) (run func(context.Context) error, err error) {
	if d.cfg.Manifests == "" {
		if d.api, err = d.newAPI(version, false); err != nil {
			return nil, err
		}
		return d.api.Run, nil
	}
	// Looked at before a socket is bound: nothing began yet when it is not there.
	if d.cfg.Manifests != "-" {
		if _, err := os.Stat(d.cfg.Manifests); err != nil {
			return nil, fmt.Errorf("manifests: %w", err)
		}
	}
	return func(ctx context.Context) error {
		return d.manifests(false).Run(ctx, func(r manifest.Report) {
			d.log.Info("manifests loaded", "path", d.cfg.Manifests, "objects", r.Objects, "passed_over", r.PassedOver, "problems", len(r.Problems))
			if r.Objects == 0 {
				d.log.Warn("no object that names depend on is in the manifests", "path", d.cfg.Manifests)
			}
		})
	}, nil
}

func (d *Daemon) manifests(whole bool) *manifest.Source {
	cfg := manifest.Config{Path: d.cfg.Manifests, Whole: whole, Stdin: d.Stdin, Store: d.store, Log: d.log}
	d.simulate(&cfg)
	return manifest.New(cfg)
}

// beginSimulation makes what completes manifests, if they are to be.
func (d *Daemon) beginSimulation() (err error) {
	if !d.cfg.Simulate.Enabled {
		return nil
	}
	cfg := d.current.Load().settings.Simulate
	cfg.Log = d.log
	d.plane, err = simulate.New(cfg)
	return err
}

// simulate has what manifests declare completed, if it is to be.
func (d *Daemon) simulate(cfg *manifest.Config) {
	if d.plane != nil {
		cfg.ControlPlane = d.plane
	}
}

// Check tells whether what the settings name is there: the certificate, and the
// Kubernetes API as far as can be seen without asking it. Settings may be checked
// where there is no cluster.
func (d *Daemon) Check(version string) error {
	if _, err := d.certificate(); err != nil {
		return err
	}
	if _, err := d.clientCAs(); err != nil {
		return err
	}
	if d.cfg.Manifests != "" {
		return nil
	}
	if _, err := d.newAPI(version, false); !errors.Is(err, api.ErrNoCluster) {
		return err
	}
	return nil
}

func (d *Daemon) newAPI(version string, whole bool) (*api.Source, error) {
	k := &d.cfg.Kubernetes
	source, err := api.New(api.Config{
		Kubeconfig:      k.Kubeconfig,
		Namespaces:      k.Namespaces,
		ServiceSelector: k.ServiceSelector,
		Pods:            d.cfg.DNS.Pods == string(kubezone.PodsVerified),
		WatchList:       k.WatchList,
		PodNames:        d.cfg.DNS.EndpointPodNames,
		Whole:           whole,
		QPS:             float32(k.QPS),
		Burst:           k.Burst,
		Silence:         time.Duration(k.Silence),
		Settle:          time.Duration(d.cfg.Snapshot.Settle),
		UserAgent:       "portolan/" + version,
		Between:         d.answerWaiting,
		Store:           d.store,
		Log:             d.log,
	})
	if errors.Is(err, api.ErrSelector) {
		err = fmt.Errorf("kubernetes.serviceSelector: %w", err)
	}
	return source, err
}

// recall fills the store from the snapshot file, if there is one, and goes on
// from its serial. A file that can't be used is no reason not to start.
func (d *Daemon) recall() error {
	file := d.cfg.Snapshot.File
	if file == "" {
		return nil
	}
	d.saver = &snapshot.Saver{Path: file, Store: d.store, Heard: d.heard, Serial: func() uint32 { return d.current.Load().serial() }, Log: d.log}
	snap, err := snapshot.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		d.log.Error("snapshot can't be used", "err", err)
		return nil
	}
	first := d.current.Load()
	if after(snap.Serial+1, first.serial()) {
		a, err := d.newAnswers(d.cfg, snap.Serial+1, nil)
		if err != nil {
			return err
		}
		d.current.Store(a)
	}
	if d.plane != nil {
		snap.Restore(d.store, cluster.Kinds())
		d.store.View(d.plane.Recall)
	} else {
		snap.Restore(d.store, d.needed())
	}
	if d.api != nil {
		d.api.HeardLast(snap.Heard)
	}
	d.log.Info("snapshot recalled", "file", file, "heard", snap.Heard.Format(time.RFC3339), "objects", snap.Len())
	return nil
}

// heard is when the cluster was heard last: of the kind that was not heard for
// longest.
func (d *Daemon) heard() time.Time {
	now := time.Now()
	at := now
	for _, st := range d.kinds() {
		if t := now.Add(-st.Staleness); t.Before(at) {
			at = t
		}
	}
	return at
}
