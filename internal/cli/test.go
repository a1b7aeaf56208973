package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/suite"
	"portolan.dev/portolan/internal/policy/diff"
	"portolan.dev/portolan/internal/support/follow"
)

// testFlags are the flags of the command test.
type testFlags struct {
	source  sourceFlags
	node    nodeFlags
	apply   policyDiffFlags // of which files and prune are set
	diff    bool
	explain bool
	watch   bool
	verbose bool
	live    bool
	wait    time.Duration
	send    bool
	format  string
	color   colorFlag
}

// tested is what became of the files of assertions.
type tested struct {
	results []suite.Result
	// faults are what of the files and of the manifests could not be read, or names nothing.
	faults []podapp.Found
	took   time.Duration
	flags  *testFlags
	color  bool
	// changes are the connections that open or close with the manifests that are applied.
	changes []diff.Change
}

func newTest() *cobra.Command {
	var flags testFlags
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Test who reaches what, by assertions on a cluster or manifests",
		Long: `Test assertions in YAML on who reaches what: from a Pod, a node or outside, to a name,
an address, a Service or a URL, and what is expected: that it resolves, connects, is
refused or dropped, or which backend serves it, and which policy or route decides.
They are judged by the model, and no packet is sent. docs/test.md has the fields.

With --live, as root on the nodes of the clients, each is compared with packets, as
portolan explain --live does it: an assertion holds if packets agree, too. Clients
that are on another node are judged by the model alone, and counted; with --verbose
each assertion says what packets saw, or why none were sent.

With --apply they are judged as if manifests were applied to the cluster, and
--with-policy-diff prints which connections these open or close.

The exit status is 1 if an assertion does not hold, and 2 if something cannot be
judged: a file is wrong, an assertion names what does not exist, or manifests cannot be
read as they are written. The rest is judged nevertheless.`,
		Example: `  portolan test examples/tests/shop.yaml --manifests examples/shop
  portolan test network.yaml --apply deploy/ --with-policy-diff
  portolan test network.yaml --manifests deploy -o junit > report.xml
  portolan test init --manifests deploy > network.yaml`,
		Args: arguments(1, math.MaxInt),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return []cobra.Completion{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			if flags.watch {
				return flags.follow(cmd, args)
			}
			return flags.run(cmd, args)
		},
	}
	flags.source.addRead(cmd)
	flags.node.add(cmd)
	cmd.Flags().StringVarP(&flags.format, "output", "o", "text", "print in this `FORMAT`: "+orList(testFormats))
	cmd.Flags().BoolVarP(&flags.verbose, "verbose", "v", false, "print assertions that hold, too")
	cmd.Flags().BoolVar(&flags.live, "live", false, "compare each assertion with packets, sent from where the client is")
	cmd.Flags().DurationVar(&flags.wait, "wait", 0,
		"with --live, wait this long for each answer (default 3s, and 5s for a query)")
	cmd.Flags().BoolVar(&flags.send, "send", false,
		"with --live, send requests that may change something: POST, PUT, PATCH, DELETE and the like")
	cmd.Flags().BoolVar(&flags.explain, "explain", false, "explain all layers of what does not hold")
	cmd.Flags().StringArrayVar(
		&flags.apply.files, "apply", nil, "as if the manifests in this file or directory `PATH` were applied, repeatable",
	)
	cmd.Flags().BoolVar(&flags.apply.prune, "prune", false,
		"with --apply, as if the policies that the manifests do not have were deleted")
	cmd.Flags().BoolVar(&flags.diff, "with-policy-diff", false,
		"with --apply, print which connections open or close; on standard error unless -o is text")
	cmd.Flags().BoolVar(
		&flags.watch,
		"watch",
		false,
		"test again when a suite, a manifest or the configuration changes, until interrupted",
	)
	flags.color.add(cmd)
	_ = cmd.MarkFlagFilename("apply", "yaml", "yml", "json")
	_ = cmd.RegisterFlagCompletionFunc(
		"output", cobra.FixedCompletions(testFormats, cobra.ShellCompDirectiveNoFileComp),
	)
	cmd.AddCommand(newTestInit())
	return cmd
}

// testFormats are the output formats, in the order of the help.
var testFormats = []string{"text", "json", "junit", "sarif", "github"}

// testPrinters has the function that prints results in each format.
var testPrinters = map[string]func(io.Writer, *tested) error{
	"text":  printTested,
	"json":  func(w io.Writer, t *tested) error { return printJSON(w, t.json()) },
	"junit": printJUnit,
	"sarif": func(w io.Writer, t *tested) error { return printSARIF(w, t.findings()) },
	"github": func(w io.Writer, t *tested) error {
		return printGitHub(w, t.findings())
	},
}

// check validates the flags.
func (f *testFlags) check() error {
	switch {
	case testPrinters[f.format] == nil:
		return fmt.Errorf("output format %q is not %s", f.format, orList(testFormats))
	case f.diff && len(f.apply.files) == 0:
		return errors.New("--with-policy-diff goes with --apply")
	case f.apply.prune && len(f.apply.files) == 0:
		return errors.New("--prune goes with --apply")
	case f.live && len(f.apply.files) > 0:
		return errors.New("--live and --apply exclude each other: packets see what is applied already")
	case !f.live && (f.wait != 0 || f.send):
		return errors.New("--wait and --send go with --live")
	case f.wait < 0:
		return errors.New("--wait is less than 0")
	case f.watch && f.format != "text":
		return fmt.Errorf("--watch goes with -o text: a report as %s is of one run", f.format)
	case f.watch && (f.source.manifests == "-" || slices.Contains(f.apply.files, "-")):
		return errors.New("--watch goes with files: standard input is read once")
	}
	return f.color.check()
}

// run tests the files once.
func (f *testFlags) run(cmd *cobra.Command, files []string) error {
	t, err := f.test(cmd, files)
	if t == nil || f.format == "text" && len(t.results) == 0 && err != nil {
		return err
	}
	if err := f.printChanges(cmd, t.changes); err != nil {
		return err
	}
	if err := testPrinters[f.format](cmd.OutOrStdout(), t); err != nil {
		return err
	}
	if err != nil { // of what could not be judged
		return err
	}
	if slices.ContainsFunc(t.results, func(r suite.Result) bool { return !r.Passed() }) {
		return errNegative
	}
	return nil
}

// printChanges prints which connections open or close, if that is wanted: before the results, or on standard error if
// standard output is a report for programs.
func (f *testFlags) printChanges(cmd *cobra.Command, changes []diff.Change) error {
	switch {
	case !f.diff:
		return nil
	case f.format == "text":
		return diff.WriteText(cmd.OutOrStdout(), changes)
	}
	return diff.WriteText(cmd.ErrOrStderr(), changes)
}

// test judges files of assertions by the cluster, with manifests applied. Of what cannot be judged the error is
// returned with the results of the rest. Tested is nil if nothing can be judged, such as without a cluster.
func (f *testFlags) test(cmd *cobra.Command, files []string) (*tested, error) {
	begin := time.Now()
	node, err := f.node.read(cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	t := &tested{flags: f, color: f.color.on(cmd)}
	suites, errs := readSuites(files)
	if len(suites) == 0 {
		return t, t.blame(errs, nil)
	}
	f.source.also = append([]cluster.Kind{cluster.KindClusterNetworkPolicy}, gatewayKinds...)
	l, err := load(cmd, &f.source, source.Whole)
	if err == nil && len(f.apply.files) > 0 {
		t.changes, err = f.applied(cmd, l)
	}
	if err != nil {
		return t.unjudged(append(errs, err))
	}
	noteAssumed(l.pods, node, cmd.ErrOrStderr())
	judge := l.pods.Test
	if f.live {
		judge = f.withPackets(l.pods)
	}
	for _, s := range suites {
		results, err := judge(cmd.Context(), s, node)
		t.results = append(t.results, results...)
		errs = append(errs, err)
	}
	t.took = time.Since(begin)
	return t, t.blame(errs, l.pods.Misread())
}

// withPackets returns the function that judges a suite with packets.
func (f *testFlags) withPackets(
	pods *podapp.Inspector,
) func(context.Context, *suite.Suite, podapp.NodeSettings) ([]suite.Result, error) {
	how := podapp.Packets{Unsafe: f.send}
	how.Wait = f.wait
	return func(ctx context.Context, s *suite.Suite, n podapp.NodeSettings) ([]suite.Result, error) {
		return pods.TestLive(ctx, s, n, how)
	}
}

// applied applies manifests to the cluster, and returns the connections that open or close.
func (f *testFlags) applied(cmd *cobra.Command, l *onceCluster) (changes []diff.Change, err error) {
	settings, err := f.source.readOnce()
	if err != nil {
		return nil, err
	}
	namespace, err := f.source.defaultNamespace(settings)
	if err != nil {
		return nil, err
	}
	manifests, err := f.apply.readManifests(cmd, f.apply.files, namespace)
	if err != nil {
		return nil, err
	}
	if f.diff {
		if changes, err = l.compare(manifests); err != nil {
			return nil, err
		}
	}
	return changes, l.apply(manifests)
}

// follow tests the files again whenever one changes, until the context ends.
func (f *testFlags) follow(cmd *cobra.Command, files []string) error {
	settings, err := f.source.readOnce()
	if err != nil {
		return err
	}
	watched := append(slices.Clone(files), f.apply.files...)
	for _, path := range []string{settings.Manifests, f.source.config} {
		if path != "" {
			watched = append(watched, path)
		}
	}
	return follow.Each(cmd.Context(), watched, manifest.IsManifest, func(context.Context) error {
		fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", time.Now().Format(time.TimeOnly))
		err := f.run(cmd, files)
		if err != nil && !errors.Is(err, errNegative) {
			fmt.Fprintf(cmd.ErrOrStderr(), "portolan: %s\n", explain.Plain(err.Error()))
		}
		return nil
	})
}

// printTested prints the assertions that do not hold, in the form of compilers, and the counts.
func printTested(w io.Writer, t *tested) error {
	failed := 0
	for i := range t.results {
		r := &t.results[i]
		if r.Passed() {
			if t.flags.verbose {
				fmt.Fprintf(w, "ok    %s%s\n", explain.Plain(r.Message()), t.packets(r))
			}
			continue
		}
		failed++
		mark := "FAIL"
		if t.color {
			mark = "\x1b[31mFAIL\x1b[0m"
		}
		fmt.Fprintf(w, "%s  %s%s\n", mark, explain.Plain(r.Message()), t.packets(r))
		if t.flags.explain && r.Explanation != nil {
			if err := r.Explanation.WriteText(w, explain.Style{Color: t.color}); err != nil {
				return err
			}
			fmt.Fprintln(w)
		}
	}
	_, err := fmt.Fprintf(w, "%d passed, %d failed%s, in %s\n", len(t.results)-failed, failed, t.notSent(),
		t.took.Round(time.Millisecond))
	return err
}

// packets says which layers of an assertion were compared with packets, or why none was; empty if it is not to be said,
// or if packets saw something else, which the assertion says.
func (t *tested) packets(r *suite.Result) string {
	switch {
	case !t.flags.verbose:
		return ""
	case r.NotSent != "":
		return explain.Plain(fmt.Sprintf(", not compared with packets (%s)", r.NotSent))
	case r.Seen != "" && r.Passed():
		return explain.Plain(fmt.Sprintf(", as packets see it (%s)", r.Seen))
	}
	return ""
}

// notSent says how many assertions were not compared with packets, and why the first was not; empty if all were, or
// none was to be.
func (t *tested) notSent() string {
	n, why := 0, ""
	for i := range t.results {
		if r := &t.results[i]; r.NotSent != "" {
			n++
			why = cmp.Or(why, r.NotSent)
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d not compared with packets (%s)", n, explain.Plain(why))
}

// testedJSON is a result for programs.
type testedJSON struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Name   string `json:"name,omitempty"`
	From   string `json:"from"`
	To     string `json:"to"`
	Passed bool   `json:"passed"`
	Got    string `json:"got"`
	Why    string `json:"why,omitempty"`
	// Seen is what packets saw, and NotSent why that is not known.
	Seen    string `json:"seen,omitempty"`
	NotSent string `json:"notSent,omitempty"`
	// Explanation is that of an assertion that does not hold.
	Explanation any `json:"explanation,omitempty"`
	// Error is why something could not be judged, and is all that is known of it besides file and line.
	Error string `json:"error,omitempty"`
}

func (t *tested) json() []testedJSON {
	all := []testedJSON{}
	for i := range t.results {
		r := &t.results[i]
		one := testedJSON{
			File: r.Test.File, Line: r.Test.Line, Name: r.Test.Name, From: r.From, To: r.To, Passed: r.Passed(), Got: r.Got,
			Why: r.Why, Seen: r.Seen, NotSent: r.NotSent,
		}
		if r.Explanation != nil {
			one.Explanation = r.Explanation
		}
		all = append(all, one)
	}
	for i := range t.faults {
		fault := &t.faults[i]
		all = append(all, testedJSON{File: fault.File, Line: fault.Line, Error: withoutPlace(fault)})
	}
	return all
}

// assertion is the rule of findings that are assertions that do not hold.
var assertion = lint.Rule{
	ID: "assertion", Title: "an assertion of a suite does not hold", Severity: lint.Error,
	Description: "The suite expects another outcome of a connection, a lookup or a request than the cluster gives",
	Cure:        "mend the cluster or the suite; portolan explain says why", Source: suiteSource,
}

// findings returns the assertions that do not hold, and what could not be judged, as findings.
func (t *tested) findings() findings {
	f := findings{rules: append([]lint.Rule{assertion, suiteInvalid}, lint.ManifestRules()...)}
	for i := range t.results {
		if r := &t.results[i]; !r.Passed() {
			f.shown = append(f.shown, podapp.Found{
				Rule: assertion.ID, Severity: lint.Error, File: r.Test.File, Line: r.Test.Line, Message: r.Sentence(),
			})
		}
	}
	f.shown = append(f.shown, t.faults...)
	return f
}
