package cli

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/daemon"
)

func newServe() *cobra.Command {
	var source sourceFlags
	var listen []string
	var check bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a cluster's names over DNS",
		Long: `Serve a cluster's names over DNS, on UDP and TCP, until it is told to stop.

The manifests are watched: a change shows in answers at once. A document that
can't be read costs that document, and its last good version stays.

With --check, nothing is served: the problems of the manifests are printed, one
line each, and the status is 1 when there are any.`,
		Example: `  portolan serve --manifests examples/shop --listen 127.0.0.1:1053
  dig @127.0.0.1 -p 1053 web.shop.svc.cluster.local`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := source.read()
			if err != nil {
				return err
			}
			if len(listen) > 0 {
				c.Listen = listen
			}
			if check {
				return checkServe(cmd, c)
			}
			d, err := daemon.New(c)
			if err != nil {
				return err
			}
			return d.Serve(cmd.Context(), newLogger(c.Log, cmd.ErrOrStderr()))
		},
	}
	source.add(cmd)
	cmd.Flags().StringArrayVar(&listen, "listen", nil, "serve UDP and TCP on `ADDR:PORT`, repeatable (default 127.0.0.1:1053)")
	cmd.Flags().BoolVar(&check, "check", false, "check the settings and the manifests, and end")
	_ = cmd.RegisterFlagCompletionFunc("listen", cobra.NoFileCompletions)
	return cmd
}

// checkServe reports every problem; with any, the status is negative.
func checkServe(cmd *cobra.Command, c config.Config) error {
	_, report, err := load(c, cmd.ErrOrStderr())
	switch {
	case err != nil:
		return err
	case len(report.Problems) > 0:
		return errNegative
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: %d objects, %d documents of other kinds\n", report.Objects, report.PassedOver)
	return err
}

func newLogger(c config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // checked with the configuration
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
