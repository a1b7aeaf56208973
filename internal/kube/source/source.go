// Package source reads the cluster of a process into the model, from the
// Kubernetes API or from manifests, follows it, and keeps it in a snapshot file
// for a start without the API.
//
//	API server ──► kube/api ──────┐
//	                              ├──► cluster.Store ──► snapshot file
//	manifests ──► kube/manifest ──┘        ▲
//	                    kube/simulate ─────┘ (completes manifests)
package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/cluster/snapshot"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/simulate"
	"portolan.dev/portolan/internal/support/deadline"
)

// ErrNoCluster is the error if the settings do not name a cluster.
var ErrNoCluster = api.ErrNoCluster

// Forever is a Config.Patience without a limit.
const Forever = time.Duration(math.MaxInt64)

// Scope is the part of a cluster that is read.
type Scope uint8

// The scopes.
const (
	// Names is the part that DNS answers need.
	Names Scope = iota
	// Slices is the part that the EndpointSlice controller needs.
	Slices
	// Whole is all kinds with all fields of the model.
	Whole
	// Proxy is the part that service proxies need.
	Proxy
	// Gateway is the part that gateways need.
	Gateway
	// Policy is Proxy, and the part that a node's policies need.
	Policy
	// LoadBalancer is the part that the controller of load balancers needs.
	LoadBalancer
)

// Config configures a Source.
type Config struct {
	// Settings are valid. They say where the cluster is read from (kubernetes,
	// manifests) and how it is stored and completed (snapshot, simulate).
	Settings config.Config
	Scope    Scope
	Version  string // of the program, for the user agent
	Store    *cluster.Store
	// Stdin is read for manifests with the path "-".
	Stdin io.Reader
	Log   *slog.Logger

	// Node is the only Node that is read; empty is all.
	Node string
	// Announce is that of api.Config.
	Announce bool
	// Context is the context of the kubeconfig; empty is its current context.
	Context string
	// Patience is how long Load waits for the API; 0 is 30 s, and Forever has no limit.
	Patience time.Duration
	// Fallback are namespaces: Load reads kinds in them that the API refuses to list in all
	// namespaces.
	Fallback []string

	// Also are kinds of custom resources, and of cluster.ReferencedKinds, that Load reads besides those
	// of the scope Whole.
	Also []cluster.Kind
	// Needs returns the kinds to read; nil means all kinds of the scope.
	Needs func() []cluster.Kind
	// Page are kinds that are read besides these for people to look at. With any, all objects have all fields of the
	// model.
	Page []cluster.Kind
	// Between, if not nil, is called between objects when many arrive at once, so that
	// a server in the same process is not delayed.
	Between func()
	// Serial returns the highest serial of the zones made from the model. A snapshot
	// stores it, and Recalled is called with it before the model is restored. Both are nil without zones.
	Serial   func() uint32
	Recalled func(serial uint32) error
}

// Source reads one cluster.
type Source struct {
	cfg   Config
	api   *api.Source            // nil for manifests
	plane *simulate.ControlPlane // nil if nothing is simulated
	saver *snapshot.Saver        // nil if there is no snapshot file
	// manifestProblems are those that stand of the manifests that Run follows; nil before they are read.
	manifestProblems atomic.Pointer[[]manifest.Problem]
}

// New returns a Source. It reads nothing.
func New(cfg Config) (*Source, error) {
	s := &Source{cfg: cfg}
	if cfg.Needs == nil {
		s.cfg.Needs = s.kindsOfScope
	}
	if !cfg.Settings.Simulate.Enabled {
		return s, nil
	}
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	completed := compiled.Simulate
	completed.Log = cfg.Log
	s.plane, err = simulate.New(completed)
	return s, err
}

// Simulates reports whether a simulated control plane completes the manifests.
func (s *Source) Simulates() bool { return s.plane != nil }

// Complete adds to a transaction on a simulated cluster what its control plane makes of the changes. It returns the
// objects that this rejects.
func (s *Source) Complete(tx *cluster.Tx) []cluster.Refusal { return s.plane.Complete(tx) }

// Open connects to the API or checks for the manifests, and restores the model from the
// snapshot file if there is one. It returns an error if there is no cluster to read.
func (s *Source) Open() (err error) {
	if path := s.cfg.Settings.Manifests; path == "" {
		if s.api, err = s.newAPI(); err != nil {
			return err
		}
	} else if path != "-" {
		stat := func() (fs.FileInfo, error) { return os.Stat(path) }
		if _, err := new(deadline.Call[fs.FileInfo]).Do(context.Background(), deadline.File, "stat "+path, stat); err != nil {
			return fmt.Errorf("manifests: %w", err)
		}
	}
	return s.recall()
}

// Run keeps the model current until ctx is done, and then writes the snapshot for the
// last time. Files whose read or write blocks delay it by at most deadline.File.
func (s *Source) Run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	if s.api != nil {
		group.Go(func() error { return s.api.Run(running) })
		group.Go(func() error { return s.logLoaded(running) })
	} else {
		group.Go(func() error {
			return deadline.Until(running, deadline.Prompt, func() error { return s.followManifests(running) })
		})
	}
	if s.saver != nil {
		group.Go(func() error {
			return deadline.Until(running, deadline.File, func() error { return s.saver.Run(running) })
		})
		defer func() {
			_ = deadline.Until(ctx, deadline.File, func() error { s.saver.Save(); return nil })
		}()
	}
	return group.Wait()
}

func (s *Source) followManifests(ctx context.Context) error {
	path := s.cfg.Settings.Manifests
	return s.newManifests().Run(ctx, func(r manifest.Report) {
		if first := s.manifestProblems.Swap(&r.Problems) == nil; !first {
			return
		}
		s.cfg.Log.Info(
			"manifests loaded", "path", path, "objects", r.Objects, "passedOver", r.PassedOver, "problems",
			len(r.Problems),
		)
		if r.Objects == 0 {
			s.cfg.Log.Warn("no object that names depend on is in the manifests", "path", path)
		}
	})
}

// logLoaded logs the number of objects when all needed kinds are live.
func (s *Source) logLoaded(ctx context.Context) error {
	feed := s.cfg.Store.Subscribe()
	defer feed.Close()
	for !s.isLive() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-feed.Ready():
			feed.Pending()
		}
	}
	var counts []any
	var absent []string
	s.cfg.Store.View(func(v *cluster.View) {
		for _, k := range s.cfg.Needs() {
			counts = append(counts, strings.ToLower(k.Plural()), v.Len(k))
		}
		for _, name := range s.cfg.Settings.Kubernetes.Namespaces {
			if v.Namespace(name) == nil {
				absent = append(absent, name)
			}
		}
	})
	s.cfg.Log.Info("cluster loaded", counts...)
	for _, name := range absent {
		s.cfg.Log.Warn("a configured Namespace does not exist", "setting", "kubernetes.namespaces", "namespace", name)
	}
	return nil
}

// isLive reports whether all needed kinds are live.
func (s *Source) isLive() (live bool) {
	s.cfg.Store.View(func(v *cluster.View) { live = v.Freshness(s.cfg.Needs()...) == cluster.Live })
	return live
}

func (s *Source) newManifests() *manifest.Source {
	cfg := manifest.Config{
		Path:     s.cfg.Settings.Manifests,
		Whole:    s.cfg.Scope == Whole || len(s.cfg.Page) > 0,
		AllKinds: s.cfg.Scope == Proxy || s.cfg.Scope == Policy || s.cfg.Scope == Gateway,
		Stdin:    s.cfg.Stdin,
		Store:    s.cfg.Store,
		Log:      s.cfg.Log,
	}
	s.simulate(&cfg)
	return manifest.New(cfg)
}

// simulate sets the control plane that completes manifests, if there is one.
func (s *Source) simulate(cfg *manifest.Config) {
	if s.plane != nil {
		cfg.ControlPlane = s.plane
	}
}

// Plane returns the simulated control plane; nil if nothing is simulated.
func (s *Source) Plane() *simulate.ControlPlane { return s.plane }

// CheckAccess returns the error that prevents access to the API, as far as it is
// visible without a request. It returns nil for manifests or if no cluster is
// configured.
func (s *Source) CheckAccess() error {
	if s.cfg.Settings.Manifests != "" {
		return nil
	}
	if _, err := s.newAPI(); !errors.Is(err, api.ErrNoCluster) {
		return err
	}
	return nil
}

// absentPause is api.Config.AbsentPause.
const absentPause = 30 * time.Second

func (s *Source) newAPI() (*api.Source, error) {
	return s.apiOf(s.kinds(), s.cfg.Settings.Kubernetes.Namespaces)
}

// apiOf returns a source for kinds in namespaces, in all if there are none.
func (s *Source) apiOf(kinds []cluster.Kind, namespaces []string) (*api.Source, error) {
	settings := &s.cfg.Settings
	k := &settings.Kubernetes
	source, err := api.New(api.Config{
		Kubeconfig:      k.Kubeconfig,
		Context:         s.cfg.Context,
		Namespaces:      namespaces,
		ServiceSelector: k.ServiceSelector,
		Kinds:           kinds,
		Detail:          s.detail(),
		Node:            s.cfg.Node,
		External:        len(settings.DNS.External.Zones) > 0,
		Announce:        s.cfg.Announce,
		WatchList:       k.WatchList,
		QPS:             float32(k.QPS),
		Burst:           k.Burst,
		Silence:         time.Duration(k.Silence),
		Settle:          time.Duration(settings.Snapshot.Settle),
		AbsentPause:     absentPause,
		UserAgent:       "portolan/" + s.cfg.Version,
		Between:         s.cfg.Between,
		Store:           s.cfg.Store,
		Log:             s.cfg.Log,
	})
	if errors.Is(err, api.ErrSelector) {
		err = fmt.Errorf("kubernetes.serviceSelector: %w", err)
	}
	return source, err
}

// kinds returns the kinds that are read from the API.
func (s *Source) kinds() []cluster.Kind {
	if s.cfg.Scope == Whole {
		return append(s.kindsOfScope(), s.cfg.Also...)
	}
	kinds := s.cfg.Needs()
	for _, k := range s.cfg.Page {
		if !slices.Contains(kinds, k) {
			kinds = append(slices.Clip(kinds), k)
		}
	}
	return kinds
}

// kindsOfScope returns the kinds of the scope. Only a gateway reads Secrets.
func (s *Source) kindsOfScope() []cluster.Kind {
	if s.cfg.Scope == Gateway {
		return cluster.KindsOfGateway()
	}
	return slices.DeleteFunc(cluster.Kinds(), func(k cluster.Kind) bool {
		return slices.Contains(cluster.ReferencedKinds(), k)
	})
}

// detail returns how much of each object is kept.
func (s *Source) detail() api.Detail {
	switch {
	case s.cfg.Scope == Whole, len(s.cfg.Page) > 0:
		return api.All
	case s.cfg.Scope == Proxy:
		return api.ForProxy
	case s.cfg.Scope == Policy:
		return api.ForPolicy
	case s.cfg.Scope == Gateway:
		return api.ForGateway
	case s.cfg.Scope == Slices:
		return api.ForSlices
	case s.cfg.Scope == LoadBalancer:
		return api.ForLoadBalancer
	case s.cfg.Settings.DNS.EndpointPodNames:
		return api.ForPodNames
	}
	return api.ForNames
}

// recall fills the store from the snapshot file, if there is one. An unusable file does
// not prevent the start.
func (s *Source) recall() error {
	file := s.cfg.Settings.Snapshot.File
	if file == "" {
		return nil
	}
	log := s.cfg.Log
	s.saver = &snapshot.Saver{Path: file, Store: s.cfg.Store, Heard: s.heard, Serial: s.cfg.Serial, Log: log}
	snap, err := snapshot.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		log.Error("the snapshot cannot be used", "err", err)
		return nil
	}
	if s.cfg.Recalled != nil {
		if err := s.cfg.Recalled(snap.Serial); err != nil {
			return err
		}
	}
	if s.plane != nil {
		snap.Restore(s.cfg.Store, cluster.Kinds())
		s.cfg.Store.View(s.plane.Recall)
	} else {
		snap.Restore(s.cfg.Store, s.cfg.Needs())
	}
	if s.api != nil {
		s.api.HeardLast(snap.Heard)
	}
	log.Info("snapshot recalled", "file", file, "heard", snap.Heard.Format(time.RFC3339), "objects", snap.Len())
	return nil
}

// heard returns when the cluster was last heard of, for the kind that has been silent
// the longest.
func (s *Source) heard() time.Time {
	now := time.Now()
	at := now
	for _, st := range s.status() {
		if t := now.Add(-st.Staleness); t.Before(at) {
			at = t
		}
	}
	return at
}
