package cli

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	dnsapp "portolan.dev/portolan/internal/dns/app"
	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
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
func openCluster(cmd *cobra.Command, c config.Config, scope source.Scope) (l *onceCluster, err error) {
	log := slog.New(slog.DiscardHandler)
	l = &onceCluster{store: cluster.NewStore()}
	if l.dns, err = dnsapp.New(dnsapp.Config{Settings: c, Store: l.store, Log: log}); err != nil {
		return nil, err
	}
	l.source, err = source.New(source.Config{
		Settings: c, Scope: scope, Version: version(), Store: l.store, Stdin: cmd.InOrStdin(), Log: log, Needs: l.dns.Needs,
	})
	if err != nil {
		return nil, err
	}
	l.pods, err = podapp.New(c, l.store, l.dns.Responder())
	return l, err
}

// load reads the cluster and compiles its zones.
func (l *onceCluster) load(ctx context.Context) (source.Loaded, error) {
	loaded, err := l.source.Load(ctx)
	if err == nil {
		l.dns.Compile()
	}
	return loaded, err
}

// loadFiles is like load, but reads files instead of the configured cluster.
func (l *onceCluster) loadFiles(f source.Files) (source.Loaded, error) {
	loaded, err := l.source.LoadFiles(f)
	if err == nil {
		l.dns.Compile()
	}
	return loaded, err
}

// load reads the objects that names depend on. It prints the problems of what was read
// on stderr.
func load(cmd *cobra.Command, c config.Config) (*onceCluster, error) {
	l, err := openCluster(cmd, c, source.Names)
	if err != nil {
		return nil, err
	}
	loaded, err := l.load(cmd.Context())
	if err != nil {
		return nil, err
	}
	printLoaded(loaded, cmd.ErrOrStderr())
	return l, nil
}
