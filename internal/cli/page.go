package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/daemon"
	"portolan.dev/portolan/internal/kube/source"
)

func newPage() *cobra.Command {
	var flags pageFlags
	cmd := &cobra.Command{
		Use:   "page",
		Short: "Serve a page about a cluster, or about manifests",
		Long: `Serve a page about a cluster, or about manifests, until SIGINT or SIGTERM, and print its
URL: what has a name or an address, Services with their names, endpoints, policies and
routes, Gateways with their certificates, and explanations as "portolan explain" gives
them. It follows changes.

The page is served on loopback, without a password. Other addresses need a token or
client certificates: the keys admin.tokenFile and admin.tls of the configuration file.
Running servers have the same page at their admin address.`,
		Example: `  portolan page
  portolan page --manifests examples/shop
  portolan page --context staging --listen 127.0.0.1:8000`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.read()
			if err != nil {
				return err
			}
			return process{assemble: func(a assembly) (*daemon.Config, error) { return a.page(&flags) }}.run(cmd, c)
		},
	}
	flags.source.addRead(cmd)
	cmd.Flags().StringVar(&flags.listen, "listen", "127.0.0.1:9155", "serve the page at `ADDR:PORT`")
	_ = cmd.RegisterFlagCompletionFunc("listen", cobra.NoFileCompletions)
	return cmd
}

// pageFlags are the flags of page; they override the configuration.
type pageFlags struct {
	source sourceFlags
	listen string
}

// read returns the configuration. What is for servers does not hold.
func (f *pageFlags) read() (config.Config, error) {
	c, err := f.source.readOnce()
	if err != nil {
		return c, err
	}
	at, err := netip.ParseAddrPort(f.listen)
	if err != nil {
		return c, fmt.Errorf("--listen: %q is not an address and port, such as 127.0.0.1:9155", f.listen)
	}
	c.Admin.Listen, c.Admin.Probes, c.Admin.Page = f.listen, nil, config.PageCluster
	c.Snapshot.File, c.Lameduck = "", 0
	if !at.Addr().IsLoopback() && c.Admin.TokenFile == "" && c.Admin.TLS.ClientCA == "" {
		return c, errors.New("--listen: addresses other than loopback need admin.tokenFile or admin.tls.clientCA in --config")
	}
	return c, nil
}

// page returns the process of `portolan page`.
func (a assembly) page(f *pageFlags) (*daemon.Config, error) {
	store := cluster.NewStore()
	none := func() []cluster.Kind { return nil }
	src, err := source.New(source.Config{
		Settings: a.settings, Version: version(), Store: store, Stdin: a.stdin, Log: a.log, Needs: none,
		Context: f.source.access.context, Page: slices.Concat(pageKinds, cluster.ReferencedKinds()),
	})
	if err != nil {
		return nil, err
	}
	cfg := &daemon.Config{
		Source: noCluster{src}, AdminFlag: "--listen",
		Bound: func(admin string) { fmt.Fprintf(a.stdout, "http://%s/\n", admin) },
	}
	return cfg, a.addPage(cfg, pageOf{command: "page", store: store, source: src, alone: true})
}

// noCluster is a source of a command that reads a cluster as kubectl does.
type noCluster struct{ *source.Source }

// Open says what to do if there is no cluster.
func (s noCluster) Open() error {
	err := s.Source.Open()
	if errors.Is(err, source.ErrNoCluster) {
		return errNoCluster
	}
	return err
}
