package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/dns/kubezone"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  arguments(0, 0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return printVersion(cmd) },
	}
}

func printVersion(cmd *cobra.Command) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "portolan version %s\n", versions()) // the format of cobra's --version
	return err
}

// versions returns the versions of the program, the DNS schema and Go, and the
// platform.
func versions() string {
	return fmt.Sprintf(
		"%s, DNS schema %s, %s %s/%s", version(), kubezone.SchemaVersion, runtime.Version(), runtime.GOOS,
		runtime.GOARCH,
	)
}

// version returns the version of the main module.
func version() string {
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	return cmp.Or(version, "unknown")
}
