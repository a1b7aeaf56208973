package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/daemon"
)

func newServe() *cobra.Command {
	var flags serveFlags
	var check bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a cluster's names over DNS",
		Long: `Serve a cluster's names over DNS, on UDP and TCP, until it is told to stop.

The cluster is read from the Kubernetes API, or from manifests, and followed: a
change shows in answers at once. An object that can't be read costs that object,
and its last good version stays.

The configuration file is read again when it changes, and at SIGHUP; a bad one
leaves the one before.

With --check, nothing is served: the problems of the manifests are printed, one
line each, and the status is 1 when there are any.`,
		Example: `  portolan serve --manifests examples/shop --listen 127.0.0.1:1053
  dig @127.0.0.1 -p 1053 web.shop.svc.cluster.local
  portolan serve --kubeconfig ~/.kube/config --snapshot /var/lib/portolan/snapshot`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.read(cmd)
			if err != nil {
				return err
			}
			if check {
				return checkServe(cmd, c)
			}
			return serve(cmd, c, &flags)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&check, "check", false, "check the settings and the manifests, and end")
	return cmd
}

// serveFlags are the flags that override the configuration.
type serveFlags struct {
	sourceFlags
	listen   []string
	admin    string
	snapshot string
}

func (f *serveFlags) add(cmd *cobra.Command) {
	f.sourceFlags.add(cmd)
	cmd.Flags().StringArrayVar(&f.listen, "listen", nil, "serve UDP and TCP on `ADDR:PORT`, repeatable (default 127.0.0.1:1053)")
	cmd.Flags().StringVar(&f.admin, "admin", "", "serve health, metrics and dumps over HTTP on `ADDR:PORT`, or on none when empty (default 127.0.0.1:9153)")
	cmd.Flags().StringVar(&f.snapshot, "snapshot", "", "keep the cluster in this `FILE`, and begin with it")
	_ = cmd.RegisterFlagCompletionFunc("listen", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("admin", cobra.NoFileCompletions)
	_ = cmd.MarkFlagFilename("snapshot")
}

// read is the configuration that the flags make.
func (f *serveFlags) read(cmd *cobra.Command) (config.Config, error) {
	c, err := f.sourceFlags.read()
	if len(f.listen) > 0 {
		c.Listen = f.listen
	}
	if cmd.Flags().Changed("admin") {
		c.Admin.Listen = f.admin
	}
	if f.snapshot != "" {
		c.Snapshot.File = f.snapshot
	}
	return c, err
}

func serve(cmd *cobra.Command, c config.Config, flags *serveFlags) error {
	d, err := daemon.New(c)
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	level := new(slog.LevelVar)
	return d.Serve(cmd.Context(), daemon.Options{
		Version:    version(),
		Log:        newLogger(c.Log, level, cmd.ErrOrStderr()),
		Level:      level,
		Reread:     func() (config.Config, error) { return flags.read(cmd) },
		ConfigFile: flags.config,
		Reload:     hangup,
	})
}

// checkServe reports every problem; with any, the status is negative.
func checkServe(cmd *cobra.Command, c config.Config) error {
	if c.Manifests == "" {
		d, err := daemon.New(c)
		if err != nil {
			return err
		}
		if err := d.CheckAPI(version()); err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "ok: the settings; there are no manifests to check")
		return err
	}
	_, report, err := load(cmd.Context(), c, cmd.ErrOrStderr())
	switch {
	case err != nil:
		return err
	case len(report.Problems) > 0:
		return errNegative
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: %d objects, %d documents of other kinds\n", report.Objects, report.PassedOver)
	return err
}

// newLogger makes a logger as configured; level can be changed later.
func newLogger(c config.Log, level *slog.LevelVar, w io.Writer) *slog.Logger {
	var first slog.Level
	_ = first.UnmarshalText([]byte(c.Level)) // checked with the configuration
	level.Set(first)
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
