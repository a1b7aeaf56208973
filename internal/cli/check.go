package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/lint"
)

// checkFlags are the flags of the command check.
type checkFlags struct {
	source   sourceFlags
	node     nodeFlags
	paths    []string // arguments
	exclude  []string
	format   string
	color    colorFlag
	rules    []string
	skip     []string
	severity string
	failOn   string
	least    lint.Severity // the lowest severity to print
	fatal    lint.Severity // the lowest severity with exit status 1
	explain  bool
	migrate  bool
}

// printers has the function that prints findings in each output format.
var printers = map[string]func(io.Writer, findings) error{
	"text":   printFindings,
	"json":   func(w io.Writer, f findings) error { return printJSON(w, append([]podapp.Found{}, f.shown...)) },
	"sarif":  printSARIF,
	"github": printGitHub,
}

// formats has the names of printers, in the order of the help.
var formats = []string{"text", "json", "sarif", "github"}

// severities has the values of --severity and --fail-on, in descending order.
var severities = []cobra.Completion{"error", "warning", "note"}

// findings is what the command prints.
type findings struct {
	shown []podapp.Found
	all   map[lint.Severity]int // the number of findings, shown or not
	// passedOver and notObjects are the counts of manifest.Report.
	passedOver, notObjects int
	// rules are those that found them; nil are those of package lint.
	rules []lint.Rule
	color bool // use colors in text output
}

// from returns the number of findings of a severity or a higher one.
func (f *findings) from(s lint.Severity) (n int) {
	for ; s <= lint.Error; s++ {
		n += f.all[s]
	}
	return n
}

func newCheck() *cobra.Command {
	var flags checkFlags
	cmd := &cobra.Command{
		Use:   "check [PATH]...",
		Short: "Find problems with names and routes in manifests or a cluster",
		Long: `Find names that do not resolve, or not to what is expected, and Ingresses and
HTTPRoutes that do not serve what they say, in a cluster or in manifests: what is
wrong, why, and the cure. Each PATH is a file, a directory, or - for standard input;
together they describe one cluster.

With --explain, the arguments are rules, and the command describes them, each
with an example and its cure; without a rule it lists all of them.

With --migrate it prints instead what becomes of each annotation of ingress-nginx
when Ingresses are translated into routes, see "portolan gateway translate"; the exit
status is 1 if something is missing.

The exit status is 1 if there is an error; a rejected document is one. Use
--fail-on to include warnings or notes.`,
		Example: `  portolan check examples/shop
  helm template shop ./chart | portolan check -
  portolan check --kubeconfig ~/.kube/config --severity warning
  portolan check deploy -o sarif > portolan.sarif
  portolan check --explain service-selects-no-pod`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if flags.explain {
				return ruleCompletions(), cobra.ShellCompDirectiveNoFileComp
			}
			return []cobra.Completion{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.explain {
				return explainRules(cmd.OutOrStdout(), args)
			}
			flags.paths = args
			if err := flags.check(); err != nil {
				return err
			}
			if flags.migrate {
				return flags.printMigration(cmd)
			}
			found, err := flags.find(cmd)
			if err != nil {
				return err
			}
			if err := printers[flags.format](cmd.OutOrStdout(), found); err != nil {
				return err
			}
			if found.from(flags.fatal) > 0 {
				return errNegative
			}
			return nil
		},
	}
	flags.add(cmd)
	return cmd
}

func (f *checkFlags) add(cmd *cobra.Command) {
	f.source.addRead(cmd)
	f.node.add(cmd)
	cmd.Flags().StringVarP(&f.format, "output", "o", "text", "print in this `FORMAT`: "+orList(formats))
	cmd.Flags().StringArrayVar(&f.rules, "rule", nil, "check only the rule with this `ID`, repeatable")
	cmd.Flags().StringArrayVar(&f.skip, "skip", nil, "skip the rule with this `ID`, repeatable")
	cmd.Flags().StringVar(
		&f.severity, "severity", "note", "print findings of at least this `SEVERITY`: error, warning or note",
	)
	cmd.Flags().StringVar(
		&f.failOn, "fail-on", "error",
		"exit with status 1 if there is a finding of at least this `SEVERITY`: error, warning or note",
	)
	cmd.Flags().StringArrayVar(
		&f.exclude, "exclude", nil,
		"skip files and directories with this `NAME`, or path below PATH, such as '*.json'; repeatable",
	)
	cmd.Flags().BoolVar(&f.explain, "explain", false, "describe the rules that the arguments name, or list all rules")
	cmd.Flags().BoolVar(
		&f.migrate, "migrate", false, "print what becomes of annotations of ingress-nginx when Ingresses are translated",
	)
	f.color.add(cmd)
	fixed := func(flag string, values []cobra.Completion) {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	fixed("output", formats)
	fixed("rule", ruleCompletions())
	fixed("skip", ruleCompletions())
	fixed("severity", severities)
	fixed("fail-on", severities)
	fixed("exclude", nil)
}

// orList joins words: "a, b or c".
func orList(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// check validates the flags.
func (f *checkFlags) check() (err error) {
	if len(f.paths) > 0 {
		switch {
		case f.source.manifests != "":
			return errors.New("PATH and --manifests exclude each other")
		case f.source.kubeconf != "":
			return errors.New("PATH and --kubeconfig exclude each other")
		}
		f.source.manifests = f.paths[0]
	}
	if printers[f.format] == nil {
		return fmt.Errorf("output format %q is not %s", f.format, orList(formats))
	}
	if f.migrate && !migrates(f.format) {
		return fmt.Errorf("output format %q is not text or json, which --migrate has", f.format)
	}
	for _, id := range append(slices.Clone(f.rules), f.skip...) {
		if _, err := findRule(id); err != nil {
			return err
		}
	}
	if err := f.color.check(); err != nil {
		return err
	}
	for _, pattern := range f.exclude {
		if _, err := filepath.Match(pattern, ""); err != nil {
			return fmt.Errorf("--exclude %q: %w", pattern, err)
		}
	}
	if f.least, err = lint.ParseSeverity(f.severity); err != nil {
		return fmt.Errorf("--severity: %w", err)
	}
	if f.fatal, err = lint.ParseSeverity(f.failOn); err != nil {
		return fmt.Errorf("--fail-on: %w", err)
	}
	return nil
}

// wanted reports whether to check a rule.
func (f *checkFlags) wanted(rule string) bool {
	return (len(f.rules) == 0 || slices.Contains(f.rules, rule)) && !slices.Contains(f.skip, rule)
}

// find reads the cluster and checks the wanted rules.
func (f *checkFlags) find(cmd *cobra.Command) (found findings, err error) {
	stderr := cmd.ErrOrStderr()
	node, err := f.node.read(stderr)
	if err != nil {
		return found, err
	}
	c, l, err := f.load(cmd)
	if err != nil {
		return found, err
	}
	printPartial(l, stderr)
	printUnread(l.Unread, stderr)
	noteAssumed(c.pods, node, stderr)
	all := c.pods.Findings(l, node, f.wanted)
	if namespace := f.source.access.namespace; namespace != "" {
		all = slices.DeleteFunc(all, func(one podapp.Found) bool { return !concerns(one.Object, namespace) })
	}
	found = findings{
		all: make(map[lint.Severity]int), passedOver: l.PassedOver, notObjects: l.NotObjects, color: f.color.on(cmd),
	}
	for _, one := range all {
		found.all[one.Severity]++
		if one.Severity >= f.least {
			found.shown = append(found.shown, one)
		}
	}
	return found, nil
}

// concerns reports whether an object, as kind and key, is a namespace or in it.
func concerns(object, namespace string) bool {
	_, key, _ := strings.Cut(object, " ")
	in, _, namespaced := strings.Cut(key, "/")
	return in == namespace && (namespaced || strings.HasPrefix(object, "namespace "))
}

// load reads the cluster.
func (f *checkFlags) load(cmd *cobra.Command) (c *onceCluster, l source.Loaded, err error) {
	settings, err := f.source.readOnce()
	if err != nil {
		return c, l, err
	}
	paths := f.paths
	if len(paths) > 0 && settings.Simulate.Enabled {
		settings.Manifests = paths[0] // the configuration requires manifests with simulate
	}
	if settings.Manifests == "" && len(paths) == 0 && len(f.exclude) > 0 {
		return c, l, errors.New("--exclude goes with manifests")
	}
	f.source.also = gatewayKinds
	r, err := f.source.reading(settings, source.Whole)
	if err != nil {
		return c, l, err
	}
	if c, err = openCluster(cmd, r); err != nil {
		return c, l, err
	}
	switch {
	case len(paths) > 0:
	case settings.Manifests != "":
		paths = []string{settings.Manifests}
	default:
		l, err = c.load(cmd.Context())
		return c, l, err
	}
	l, err = c.loadFiles(source.Files{Paths: paths, Exclude: f.exclude, Stdin: cmd.InOrStdin()})
	if err == nil {
		err = nothingToCheck(&l)
	}
	if err == nil {
		printNothing(l, cmd.ErrOrStderr())
	}
	return c, l, err
}

// nothingToCheck returns an error if manifests have no Kubernetes object: what should have
// written or rendered them has probably failed. A rejected object is a finding.
func nothingToCheck(l *source.Loaded) error {
	rejected := slices.ContainsFunc(l.Problems, func(p manifest.Problem) bool { return p.Rejected && p.Object != "" })
	if l.Objects > 0 || l.PassedOver > 0 || rejected {
		return nil
	}
	var paths []string
	for _, path := range l.From {
		if path == "-" {
			path = manifest.Stdin
		}
		paths = append(paths, path)
	}
	err := fmt.Errorf("nothing to check: no Kubernetes object in %s", strings.Join(paths, ", "))
	if len(l.Problems) > 0 {
		return fmt.Errorf("%w; %w", err, l.Problems[0])
	}
	return err
}

// colorCodes has the color of each severity (ECMA-48, section 8.3.117).
var colorCodes = map[lint.Severity]int{lint.Error: 31, lint.Warning: 33, lint.Note: 2}

// printFindings prints one line per finding, in the form of compilers, and the counts.
func printFindings(w io.Writer, f findings) error {
	var b strings.Builder
	for i := range f.shown {
		one := &f.shown[i]
		severity := one.Severity.String()
		if f.color {
			severity = fmt.Sprintf("\x1b[%dm%s\x1b[0m", colorCodes[one.Severity], severity)
		}
		b.WriteString(line(one, severity) + "\n")
	}
	total := 0
	var counts []string
	for s := lint.Error; s >= lint.Note; s-- {
		n := f.all[s]
		total += n
		counts = append(counts, fmt.Sprintf("%d %s%s", n, s, plural(n)))
	}
	b.WriteString(strings.Join(counts, ", "))
	if hidden := total - len(f.shown); hidden > 0 {
		fmt.Fprintf(&b, "; %d not shown", hidden)
	}
	b.WriteString("\n")
	var ignored []string
	if f.passedOver > 0 {
		ignored = append(ignored, many(f.passedOver, "document of another kind", "documents of other kinds"))
	}
	if f.notObjects > 0 {
		ignored = append(
			ignored,
			many(f.notObjects, "document that is no Kubernetes object", "documents that are no Kubernetes objects"),
		)
	}
	if len(ignored) > 0 {
		fmt.Fprintf(&b, "ignored: %s\n", strings.Join(ignored, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// many returns a number with the noun in singular or plural.
func many(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// line returns a finding as one line, which begins with the file and line, or with the
// object if these are not known.
func line(f *podapp.Found, severity string) string {
	parts := []string{severity, explain.Plain(f.Object), explain.Plain(f.Field), explain.Plain(sentence(f))}
	if f.File != "" {
		parts = append([]string{fmt.Sprintf("%s:%d", explain.Plain(f.File), f.Line)}, parts...)
	} else if f.Object != "" {
		parts[0], parts[1] = parts[1], parts[0]
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ") + " [" + f.Rule + "]"
}

// sentence returns what is wrong, and the cure if there is one.
func sentence(f *podapp.Found) string {
	if f.Fix == "" {
		return f.Message
	}
	return f.Message + "; " + f.Fix
}

// withoutPlace returns a finding as text, without file and line.
func withoutPlace(f *podapp.Found) string {
	parts := slices.DeleteFunc([]string{f.Object, f.Field, sentence(f)}, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// printGitHub prints GitHub workflow commands, which become annotations
// (GitHub Docs, "Workflow commands for GitHub Actions").
func printGitHub(w io.Writer, f findings) error {
	var b strings.Builder
	for i := range f.shown {
		one := &f.shown[i]
		command := one.Severity.String()
		if one.Severity == lint.Note {
			command = "notice"
		}
		properties := []string{"title=" + inProperty(one.Rule)}
		if one.File != "" && one.File != manifest.Stdin {
			properties = append([]string{"file=" + inProperty(one.File), fmt.Sprintf("line=%d", one.Line)}, properties...)
		}
		fmt.Fprintf(&b, "::%s %s::%s\n", command, strings.Join(properties, ","), explain.Plain(inData(withoutPlace(one))))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// inData and inProperty escape the message and a property of a workflow command as
// GitHub's toolkit does (actions/toolkit, packages/core, command.ts).
func inData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

func inProperty(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(inData(s))
}
