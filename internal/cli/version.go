package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/kubezone"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version := "unknown"
			if info, ok := debug.ReadBuildInfo(); ok {
				version = info.Main.Version
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "portolan %s, DNS schema %s, %s %s/%s\n",
				version, kubezone.SchemaVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
