package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portolan.dev/portolan/internal/support/suggest"
)

// usage prints the help of a command after its description.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	line := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		line = cmd.CommandPath() + " COMMAND [flags]"
	}
	fmt.Fprintf(&b, "Usage:\n  %s\n", line)
	if cmd.HasAvailableSubCommands() {
		listCommands(&b, cmd)
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", cmd.LocalFlags().FlagUsages())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\"%s COMMAND --help\" prints the help of a command.\n", cmd.CommandPath())
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}

// listCommands lists the subcommands of a command, by group.
func listCommands(b *strings.Builder, cmd *cobra.Command) {
	groups := cmd.Groups()
	if len(groups) == 0 {
		groups = []*cobra.Group{{Title: "Commands:"}}
	}
	for _, g := range groups {
		fmt.Fprintf(b, "\n%s\n", g.Title)
		for _, c := range cmd.Commands() {
			if (c.IsAvailableCommand() || c.Name() == "help") && c.GroupID == g.ID {
				fmt.Fprintf(b, "  %-*s  %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
}

// group makes cmd a command that requires a subcommand.
func group(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
}

// unknownCommand returns the error for a subcommand that cmd does not have.
func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2 // edit distance
	if similar := cmd.SuggestionsFor(name); len(similar) > 0 {
		return fmt.Errorf("unknown command %q; did you mean %s", name, strings.Join(similar, " or "))
	}
	return fmt.Errorf("unknown command %q; \"%s --help\" lists them", name, cmd.CommandPath())
}

// flagError adds a hint to the error of a bad flag. If an unknown command comes
// before the flag, that is the error.
func flagError(cmd *cobra.Command, err error) error {
	if read := cmd.Flags().Args(); cmd.HasSubCommands() && len(read) > 0 {
		return unknownCommand(cmd, read[0])
	}
	if near := similarFlag(cmd, err); near != "" {
		return fmt.Errorf("%w; did you mean %s", err, near)
	}
	return fmt.Errorf("%w; \"%s --help\" lists the flags", err, cmd.CommandPath())
}

// similarFlag returns the flag that a misspelled one was probably meant to be, or "".
func similarFlag(cmd *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	near := suggest.Closest(unknown.GetSpecifiedName(), names)
	if near == "" {
		return ""
	}
	return "--" + near
}

// arguments requires between least and most arguments.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("missing argument; usage: %s", cmd.UseLine())
		case len(args) > most:
			return fmt.Errorf("unexpected argument %q; usage: %s", args[most], cmd.UseLine())
		}
		return nil
	}
}

// addCompletion adds the library's completion command with our help texts.
func addCompletion(root *cobra.Command) {
	root.SetCompletionCommandGroupID(otherCommands)
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Short = "Print a shell completion script"
		cmd.Long = cmd.Short + ". The help of each shell's\ncommand says how to install it."
		cmd.Example = "  source <(portolan completion bash)"
		group(cmd)
		for _, shell := range cmd.Commands() {
			shell.Short = "Print the completion script for " + shell.Name()
			shell.Args = arguments(0, 0)
		}
	}
}

// newPluginCompletion returns the completion command of a plugin: its arguments are completed by kubectl's own script,
// which runs a file of another name.
func newPluginCompletion() *cobra.Command {
	return &cobra.Command{
		Use:     "completion",
		GroupID: otherCommands,
		Short:   "Print the script with which kubectl completes arguments of this plugin",
		Long: `Print a script with which kubectl's own shell completion completes the arguments of
this plugin. Save it as an executable file ` + completionFile + ` in a directory
of PATH. A link of that name to the plugin does the same.`,
		Example: `  portolan completion > ~/.local/bin/` + completionFile + `
  chmod +x ~/.local/bin/` + completionFile,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "#!/bin/sh\nexec %s %s \"$@\"\n", pluginFile, cobra.ShellCompRequestCmd)
			return err
		},
	}
}

// unquoted removes the backquotes around placeholders from flag usages, which
// completions show unchanged.
type unquoted struct{ io.Writer }

func (u unquoted) Write(text []byte) (int, error) {
	if _, err := u.Writer.Write(bytes.ReplaceAll(text, []byte("`"), nil)); err != nil {
		return 0, err
	}
	return len(text), nil
}

func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Print the help of a command",
		Long:  "Print the help of a command, as COMMAND --help does.",
		ValidArgsFunction: func(
			cmd *cobra.Command, args []string, _ string,
		) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			if at, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, c := range at.Commands() {
					if !c.IsAvailableCommand() {
						continue
					}
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			at, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return unknownCommand(at, rest[0])
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}
