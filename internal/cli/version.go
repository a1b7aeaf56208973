package cli

import (
	"cmp"
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
		Args:  arguments(0, 0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return printVersion(cmd) },
	}
}

func printVersion(cmd *cobra.Command) error {
	_, err := fmt.Fprint(cmd.OutOrStdout(), versionLine())
	return err
}

// versionLine is the program's version, that of the names' schema, and the
// toolchain's.
func versionLine() string {
	return fmt.Sprintf("portolan %s, DNS schema %s, %s %s/%s\n", version(), kubezone.SchemaVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// version is the module's, as it was built.
func version() string {
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	return cmp.Or(version, "unknown")
}
