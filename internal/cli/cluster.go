package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	dnsapp "portolan.dev/portolan/internal/dns/app"
	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/policy/diff"
)

// onceCluster is a cluster that a command reads once, with its DNS and the inspector of
// its Pods.
type onceCluster struct {
	store  *cluster.Store
	source *source.Source
	dns    *dnsapp.DNS
	pods   *podapp.Inspector
}

// openCluster returns an onceCluster. It reads nothing yet.
func openCluster(cmd *cobra.Command, r source.Config) (l *onceCluster, err error) {
	log := slog.New(slog.DiscardHandler)
	l = &onceCluster{store: cluster.NewStore()}
	if l.dns, err = dnsapp.New(dnsapp.Config{Settings: r.Settings, Store: l.store, Log: log}); err != nil {
		return nil, err
	}
	r.Version, r.Store, r.Stdin, r.Log, r.Needs = version(), l.store, cmd.InOrStdin(), log, l.dns.Needs
	if l.source, err = source.New(r); err != nil {
		return nil, err
	}
	return l, l.inspect(r.Settings)
}

// inspect makes the inspector of Pods, given the settings of the server that they query.
func (l *onceCluster) inspect(settings config.Config) (err error) {
	if l.pods, err = podapp.New(settings, l.store, l.dns.Responder()); err == nil {
		l.pods.Zones(l.dns.ZoneProblems())
	}
	return err
}

// warnOfZones warns on stderr of local zones whose files cannot be used.
func (l *onceCluster) warnOfZones(stderr io.Writer) {
	for _, p := range l.dns.ZoneProblems() {
		fmt.Fprintf(stderr, "portolan: warning: %s\n", explain.Plain(p.Error()))
	}
}

// errNoCluster is the error of a command that reads a cluster as kubectl does, if there is
// none.
var errNoCluster = errors.New(
	"no cluster to read: not running in a Pod; set KUBECONFIG, or give --kubeconfig FILE or --manifests DIR")

// load reads the cluster and compiles its zones.
func (l *onceCluster) load(ctx context.Context) (source.Loaded, error) {
	loaded, err := l.source.Load(ctx)
	if errors.Is(err, source.ErrNoCluster) {
		return loaded, errNoCluster
	}
	if err == nil {
		l.dns.Compile()
		l.pods.Loaded(loaded)
	}
	return loaded, err
}

// loadFiles is like load, but reads files instead of the configured cluster.
func (l *onceCluster) loadFiles(f source.Files) (source.Loaded, error) {
	loaded, err := l.source.LoadFiles(f)
	if err == nil {
		l.dns.Compile()
		l.pods.Loaded(loaded)
	}
	return loaded, err
}

// apply applies manifests to the cluster that was read. It returns an error if a simulated control plane rejects one.
func (l *onceCluster) apply(m diff.Manifests) (err error) {
	l.store.Update(func(tx *cluster.Tx) {
		if !l.source.Simulates() {
			diff.ApplyTo(tx, m)
			return
		}
		diff.Declare(tx, m)
		for _, r := range l.source.Complete(tx) {
			if !declares(m.Objects, r) {
				continue // printed when it was read
			}
			err = errors.Join(err, fmt.Errorf("%s %s: %s: %w", strings.ToLower(r.Kind.String()), r.Key, r.Field, r.Err))
		}
	})
	l.dns.Compile()
	return err
}

// declares reports whether a refused object is among those of manifests.
func declares(all []cluster.Object, refused cluster.Refusal) bool {
	return slices.ContainsFunc(all, func(o cluster.Object) bool {
		ref := o.Ref()
		return ref.Kind == refused.Kind && ref.Key == refused.Key
	})
}

// load reads a part of the cluster once. It prints the problems of what was read on stderr.
func load(cmd *cobra.Command, f *sourceFlags, scope source.Scope) (*onceCluster, error) {
	c, err := f.readOnce()
	if err != nil {
		return nil, err
	}
	r, err := f.reading(c, scope)
	if err != nil {
		return nil, err
	}
	l, err := openCluster(cmd, r)
	if err != nil {
		return nil, err
	}
	loaded, err := l.load(cmd.Context())
	if err != nil {
		return nil, err
	}
	printLoaded(f.relevant(loaded), cmd.ErrOrStderr())
	return l, nil
}
