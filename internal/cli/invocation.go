package cli

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// The names of the program's file as a plugin of kubectl, which runs kubectl-portolan for "kubectl portolan", and
// kubectl_complete-portolan to complete its arguments (Kubernetes documentation, "Extend kubectl with plugins").
const (
	pluginFile     = "kubectl-portolan"
	completionFile = "kubectl_complete-portolan"
)

// invocation is how the program was called.
type invocation struct {
	// name is what users type before the arguments.
	name string
	args []string
}

// invocationOf returns how a program's file was called with these arguments.
func invocationOf(file string, args []string) invocation {
	switch strings.TrimSuffix(filepath.Base(file), ".exe") {
	case pluginFile:
		return invocation{name: "kubectl portolan", args: args}
	case completionFile:
		return invocation{name: "kubectl portolan", args: append([]string{cobra.ShellCompRequestCmd}, args...)}
	}
	return invocation{name: "portolan", args: args}
}

// isPlugin reports whether kubectl calls the program.
func (i invocation) isPlugin() bool { return i.name != "portolan" }

// apply has the help of all commands name the program as users call it.
func (i invocation) apply(root *cobra.Command) {
	if !i.isPlugin() {
		return
	}
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: i.name}
	rename := i.renaming(root)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		text := cmd.Long
		if text == "" {
			text = cmd.Short
		}
		cmd.Print(rename(strings.TrimSpace(text) + "\n\n" + cmd.UsageString()))
	})
}

// renaming returns a function that replaces the program's name in a text where a command line begins: in an example,
// in quotes, after a pipe or a semicolon.
func (i invocation) renaming(root *cobra.Command) func(string) string {
	if !i.isPlugin() {
		return func(text string) string { return text }
	}
	names := []string{"--", "COMMAND"}
	for _, cmd := range root.Commands() {
		names = append(names, regexp.QuoteMeta(cmd.Name())+`\b`)
	}
	call := regexp.MustCompile(
		`(?m)(^  |["(]|\| |; |: )(?:kubectl )?portolan( (?:` + strings.Join(names, "|") + `))`,
	)
	return func(text string) string { return call.ReplaceAllString(text, "${1}"+i.name+"${2}") }
}
