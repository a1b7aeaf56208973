package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/check"
	"portolan.dev/portolan/internal/daemon"
)

// checkFlags are those of check.
type checkFlags struct {
	source     sourceFlags
	node       nodeFlags
	format     string
	rules      []string
	skip       []string
	severity   string
	least      check.Severity
	positional string // DIR
}

// printers print what was found in the format of that name.
var printers = map[string]func(io.Writer, findings) error{
	"text":   printFindings,
	"json":   func(w io.Writer, f findings) error { return printJSON(w, append([]daemon.Found{}, f.shown...)) },
	"sarif":  printSARIF,
	"github": printGitHub,
}

// formats are the names of printers, as they are told.
var formats = []string{"text", "json", "sarif", "github"}

// findings are what a command is to print.
type findings struct {
	shown   []daemon.Found
	all     map[check.Severity]int // how many there are, shown or not
	objects int                    // that were read from manifests
}

func newCheck() *cobra.Command {
	var flags checkFlags
	cmd := &cobra.Command{
		Use:   "check [DIR]",
		Short: "Find what users of the cluster's DNS will stumble over",
		Long: `Find names that will not resolve, or not as they are meant, in a directory of
manifests or in a cluster: what is wrong, why, and what to do. docs/rules.md
describes each rule.

The status is 1 when there is an error, which rejected documents are, too;
warnings and notes don't count.`,
		Example: `  portolan check examples/shop
  portolan check --kubeconfig ~/.kube/config --severity warning
  portolan check deploy -o sarif > portolan.sarif`,
		Args: arguments(0, 1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				flags.positional = args[0]
			}
			if err := flags.check(); err != nil {
				return err
			}
			found, err := flags.find(cmd)
			if err != nil {
				return err
			}
			if err := printers[flags.format](cmd.OutOrStdout(), found); err != nil {
				return err
			}
			if found.all[check.Error] > 0 {
				return errNegative
			}
			return nil
		},
	}
	flags.add(cmd)
	return cmd
}

func (f *checkFlags) add(cmd *cobra.Command) {
	f.source.add(cmd)
	f.node.add(cmd)
	cmd.Flags().StringVarP(&f.format, "output", "o", "text", "print in this `FORMAT`: "+orList(formats))
	cmd.Flags().StringArrayVar(&f.rules, "rule", nil, "look by the rule of this `ID` only, repeatable")
	cmd.Flags().StringArrayVar(&f.skip, "skip", nil, "do not look by the rule of this `ID`, repeatable")
	cmd.Flags().StringVar(&f.severity, "severity", "note", "print what is at least this `SEVERITY`: error, warning or note")
	fixed := func(flag string, values []cobra.Completion) {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	var ids []cobra.Completion
	for _, r := range everyRule() {
		ids = append(ids, cobra.CompletionWithDesc(r.ID, r.Title))
	}
	fixed("output", formats)
	fixed("rule", ids)
	fixed("skip", ids)
	fixed("severity", []cobra.Completion{"error", "warning", "note"})
}

// orList is a list in words: "a, b or c".
func orList(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// everyRule is what may be found.
func everyRule() []check.Rule { return append(check.Rules(), check.ManifestRules()...) }

// check refuses what the flags may not be.
func (f *checkFlags) check() (err error) {
	if f.positional != "" {
		switch {
		case f.source.manifests != "":
			return fmt.Errorf("DIR and --manifests exclude each other")
		case f.source.kubeconf != "":
			return fmt.Errorf("DIR and --kubeconfig exclude each other")
		}
		f.source.manifests = f.positional
	}
	if printers[f.format] == nil {
		return fmt.Errorf("output format %q is not %s", f.format, orList(formats))
	}
	for _, id := range append(slices.Clone(f.rules), f.skip...) {
		if !slices.ContainsFunc(everyRule(), func(r check.Rule) bool { return r.ID == id }) {
			return fmt.Errorf("there is no rule %q; docs/rules.md lists them", id)
		}
	}
	if f.least, err = check.ParseSeverity(f.severity); err != nil {
		return fmt.Errorf("--severity: %w", err)
	}
	return nil
}

// wanted tells whether to look by a rule.
func (f *checkFlags) wanted(rule string) bool {
	return (len(f.rules) == 0 || slices.Contains(f.rules, rule)) && !slices.Contains(f.skip, rule)
}

// find reads the cluster and looks by the rules that are wanted.
func (f *checkFlags) find(cmd *cobra.Command) (found findings, err error) {
	stderr := cmd.ErrOrStderr()
	node, err := f.node.read(stderr)
	if err != nil {
		return found, err
	}
	c, err := f.source.read()
	if err != nil {
		return found, err
	}
	d, err := daemon.New(c)
	if err != nil {
		return found, err
	}
	l, err := d.Load(cmd.Context(), version(), true)
	if err != nil {
		return found, err
	}
	printUnread(l.Unread, stderr)
	noteAssumed(d, node, stderr)
	all := d.Findings(l, node, f.wanted)
	found.all, found.objects = make(map[check.Severity]int), l.Objects
	for _, one := range all {
		found.all[one.Severity]++
		if one.Severity >= f.least {
			found.shown = append(found.shown, one)
		}
	}
	return found, nil
}

// printFindings prints a line for each, as compilers do, and how many there are.
func printFindings(w io.Writer, f findings) error {
	var b strings.Builder
	for i := range f.shown {
		b.WriteString(line(&f.shown[i]) + "\n")
	}
	total := 0
	var counts []string
	for s := check.Error; s >= check.Note; s-- {
		n := f.all[s]
		total += n
		counts = append(counts, fmt.Sprintf("%d %s%s", n, s, plural(n)))
	}
	b.WriteString(strings.Join(counts, ", "))
	if hidden := total - len(f.shown); hidden > 0 {
		fmt.Fprintf(&b, "; %d not shown", hidden)
	}
	_, err := io.WriteString(w, b.String()+"\n")
	return err
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// line is a finding in one line: where it stands, if that is known, or else the
// object first.
func line(f *daemon.Found) string {
	parts := []string{f.Severity.String(), f.Object, f.Field, sentence(f)}
	if f.File != "" {
		parts = append([]string{fmt.Sprintf("%s:%d", f.File, f.Line)}, parts...)
	} else if f.Object != "" {
		parts[0], parts[1] = parts[1], parts[0]
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ") + " [" + f.Rule + "]"
}

// sentence is what is wrong, and the cure where there is a known one.
func sentence(f *daemon.Found) string {
	if f.Fix == "" {
		return f.Message
	}
	return f.Message + "; " + f.Fix
}

// whole is a finding in words, without where it stands.
func whole(f *daemon.Found) string {
	parts := slices.DeleteFunc([]string{f.Object, f.Field, sentence(f)}, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// printGitHub prints commands of GitHub's workflows, which become annotations
// (GitHub Docs, "Workflow commands for GitHub Actions").
func printGitHub(w io.Writer, f findings) error {
	var b strings.Builder
	for i := range f.shown {
		one := &f.shown[i]
		command := one.Severity.String()
		if one.Severity == check.Note {
			command = "notice"
		}
		properties := []string{"title=" + inProperty(one.Rule)}
		if one.File != "" {
			properties = append([]string{"file=" + inProperty(one.File), fmt.Sprintf("line=%d", one.Line)}, properties...)
		}
		fmt.Fprintf(&b, "::%s %s::%s\n", command, strings.Join(properties, ","), inData(whole(one)))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// inData and inProperty escape what ends a command's message or property, as
// GitHub's toolkit does (actions/toolkit, packages/core, command.ts).
func inData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

func inProperty(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(inData(s))
}
