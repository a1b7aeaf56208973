package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// colorFlag is the value of the flag --color.
type colorFlag string

func (f *colorFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(f), "color", "auto", "use colors: `WHEN` is auto, always or never")
	_ = cmd.RegisterFlagCompletionFunc(
		"color",
		cobra.FixedCompletions([]cobra.Completion{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp),
	)
}

func (f colorFlag) check() error {
	switch f {
	case "auto", "always", "never":
		return nil
	}
	return fmt.Errorf("--color %q is not auto, always or never", string(f))
}

// on reports whether to use colors (https://no-color.org for NO_COLOR).
func (f colorFlag) on(cmd *cobra.Command) bool {
	out, ok := cmd.OutOrStdout().(*os.File)
	return f == "always" ||
		f == "auto" && ok && term.IsTerminal(int(out.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
