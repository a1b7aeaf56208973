package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/support/suggest"
)

// newConfigExplain returns the command that describes a key.
func newConfigExplain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [KEY]",
		Short: "Describe a key of the configuration file",
		Long: `Describe a key of the configuration file: its type, default and allowed values,
and whether a change needs a restart. Of a section, the keys are listed; without
KEY, the sections. Keys are written with their sections, as in dns.cache.size.`,
		Example: "  portolan config explain dns.cache.size",
		Args:    arguments(0, 1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return keyPaths(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				for _, k := range config.Keys().Children("") {
					fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", k.Path, k.Description)
				}
				return nil
			}
			k, ok := config.Keys().Find(args[0])
			if !ok {
				return unknownKey(args[0])
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), config.Explain(k))
			return err
		},
	}
}

// unknownKey is the error for a key that does not exist, with a suggestion: a key
// that is spelled alike, or one of the same name in a section.
func unknownKey(path string) error {
	meant := suggest.Closest(path, keyPaths())
	for _, p := range keyPaths() {
		if meant == "" && key.Name(p) == path {
			meant = p
		}
	}
	if meant == "" {
		return fmt.Errorf("unknown key %s", path)
	}
	return fmt.Errorf("unknown key %s; did you mean %s?", path, meant)
}

func keyPaths() (all []string) {
	for _, k := range config.Keys() {
		all = append(all, k.Path)
	}
	return all
}

// newConfigSchema returns the command that prints the JSON schema.
func newConfigSchema() *cobra.Command {
	return &cobra.Command{
		Use:               "schema",
		Short:             "Print the JSON schema of the configuration file",
		Long:              "Print the JSON schema of the configuration file, with which editors check and\ncomplete it.",
		Example:           "  portolan config schema > portolan.schema.json",
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printJSON(cmd.OutOrStdout(), config.Schema())
		},
	}
}
