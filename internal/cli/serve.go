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
can't be read costs that document, and its last good version stays.`,
		Example: "  portolan serve --manifests examples/shop --listen 127.0.0.1:1053",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check {
				return checkServe(cmd, &source, listen)
			}
			c, err := source.read()
			if err != nil {
				return err
			}
			d, err := newDaemon(c, listen)
			if err != nil {
				return err
			}
			return d.Serve(cmd.Context(), newLogger(c.Log, cmd.ErrOrStderr()))
		},
	}
	source.add(cmd)
	cmd.Flags().StringArrayVar(&listen, "listen", nil, "`ADDR:PORT` for UDP and TCP, repeatable (default 127.0.0.1:1053)")
	cmd.Flags().BoolVar(&check, "check", false, "check configuration and manifests, and end")
	return cmd
}

func newDaemon(c config.Config, listen []string) (*daemon.Daemon, error) {
	if len(listen) > 0 {
		c.Listen = listen
	}
	return daemon.New(c)
}

// checkServe reports every problem; with any, the status is negative.
func checkServe(cmd *cobra.Command, source *sourceFlags, listen []string) error {
	c, err := source.read()
	if err != nil {
		return err
	}
	if _, err := newDaemon(c, listen); err != nil {
		return err
	}
	_, problems, err := source.load(cmd.ErrOrStderr())
	switch {
	case err != nil:
		return err
	case problems > 0:
		return errNegative
	}
	fmt.Fprintln(cmd.OutOrStdout(), "ok")
	return nil
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
