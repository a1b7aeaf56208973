package cli

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
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
	format  string
	color   colorFlag
}

// tested is what became of the files of assertions.
type tested struct {
	results []suite.Result
	took    time.Duration
	flags   *testFlags
	color   bool
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

With --apply they are judged as if manifests were applied to the cluster, and
--with-policy-diff prints which connections these open or close.

The exit status is 1 if an assertion does not hold.`,
		Example: `  portolan test examples/tests/shop.yaml --manifests examples/shop
  portolan test network.yaml --apply deploy/ --with-policy-diff
  portolan test network.yaml --manifests deploy -o junit > report.xml
  portolan test init --manifests deploy > network.yaml`,
		Args: cobra.MinimumNArgs(1),
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
	cmd.Flags().BoolVar(&flags.explain, "explain", false, "explain all layers of what does not hold")
	cmd.Flags().StringArrayVar(
		&flags.apply.files, "apply", nil, "as if the manifests in this file or directory `PATH` were applied, repeatable",
	)
	cmd.Flags().BoolVar(&flags.apply.prune, "prune", false,
		"with --apply, as if the policies that the manifests do not have were deleted")
	cmd.Flags().BoolVar(&flags.diff, "with-policy-diff", false, "with --apply, print which connections open or close")
	cmd.Flags().BoolVar(&flags.watch, "watch", false, "test again when a file changes, until interrupted")
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
	}
	return f.color.check()
}

// run tests the files once.
func (f *testFlags) run(cmd *cobra.Command, files []string) error {
	suites, err := readSuites(files)
	if err != nil {
		return err
	}
	t, err := f.test(cmd, suites)
	if err != nil && (t == nil || len(t.results) == 0) {
		return err
	}
	if err := testPrinters[f.format](cmd.OutOrStdout(), t); err != nil {
		return err
	}
	if err != nil { // of assertions that name nothing
		return err
	}
	if slices.ContainsFunc(t.results, func(r suite.Result) bool { return !r.Passed() }) {
		return errNegative
	}
	return nil
}

// readSuites reads the files of assertions.
func readSuites(files []string) (all []*suite.Suite, err error) {
	var errs []error
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s, err := suite.Read(file, text)
		errs = append(errs, err)
		all = append(all, s)
	}
	return all, joined(errs)
}

// joined returns errors as those of a file, one line each; nil if there are none.
func joined(errs []error) error {
	if all := config.Flat(errors.Join(errs...)); len(all) > 0 {
		return config.Errors(all)
	}
	return nil
}

// test judges suites by the cluster, with manifests applied.
func (f *testFlags) test(cmd *cobra.Command, suites []*suite.Suite) (*tested, error) {
	begin := time.Now()
	node, err := f.node.read(cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	f.source.also = append([]cluster.Kind{cluster.KindClusterNetworkPolicy}, gatewayKinds...)
	l, err := load(cmd, &f.source, source.Whole)
	if err != nil {
		return nil, err
	}
	t := &tested{flags: f, color: f.color.on(cmd)}
	if len(f.apply.files) > 0 {
		if t.changes, err = f.applied(cmd, l); err != nil {
			return nil, err
		}
	}
	noteAssumed(l.pods, node, cmd.ErrOrStderr())
	var errs []error
	for _, s := range suites {
		results, err := l.pods.Test(cmd.Context(), s, node)
		t.results = append(t.results, results...)
		errs = append(errs, err)
	}
	t.took = time.Since(begin)
	return t, joined(errs)
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
	l.apply(manifests)
	return changes, nil
}

// follow tests the files again whenever one changes, until the context ends.
func (f *testFlags) follow(cmd *cobra.Command, files []string) error {
	watched := append(slices.Clone(files), f.apply.files...)
	if f.source.manifests != "" && f.source.manifests != "-" {
		watched = append(watched, f.source.manifests)
	}
	return follow.Each(cmd.Context(), watched, func(context.Context) error {
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
	if t.flags.diff {
		if err := diff.WriteText(w, t.changes); err != nil {
			return err
		}
	}
	failed := 0
	for i := range t.results {
		r := &t.results[i]
		if r.Passed() {
			if t.flags.verbose {
				fmt.Fprintf(w, "ok    %s → %s: %s\n", explain.Plain(r.From), explain.Plain(r.To), r.Got)
			}
			continue
		}
		failed++
		mark := "FAIL"
		if t.color {
			mark = "\x1b[31mFAIL\x1b[0m"
		}
		fmt.Fprintf(w, "%s  %s\n", mark, explain.Plain(r.Message()))
		if t.flags.explain && r.Explanation != nil {
			if err := r.Explanation.WriteText(w, explain.Style{Color: t.color}); err != nil {
				return err
			}
			fmt.Fprintln(w)
		}
	}
	_, err := fmt.Fprintf(
		w,
		"%d passed, %d failed, in %s\n",
		len(t.results)-failed,
		failed,
		t.took.Round(time.Millisecond),
	)
	return err
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
	// Explanation is that of an assertion that does not hold.
	Explanation any `json:"explanation,omitempty"`
}

func (t *tested) json() []testedJSON {
	all := []testedJSON{}
	for i := range t.results {
		r := &t.results[i]
		one := testedJSON{
			File: r.Test.File, Line: r.Test.Line, Name: r.Test.Name, From: r.From, To: r.To, Passed: r.Passed(), Got: r.Got,
			Why: r.Why,
		}
		if r.Explanation != nil {
			one.Explanation = r.Explanation
		}
		all = append(all, one)
	}
	return all
}

// assertion is the rule of findings that are assertions that do not hold.
var assertion = lint.Rule{
	ID: "assertion", Title: "an assertion of a suite does not hold", Severity: lint.Error,
	Description: "The suite expects another outcome of a connection, a lookup or a request than the cluster gives",
	Cure:        "mend the cluster or the suite; portolan explain says why", Source: "docs/test.md",
}

// findings returns the assertions that do not hold as findings.
func (t *tested) findings() findings {
	f := findings{rules: []lint.Rule{assertion}}
	for i := range t.results {
		if r := &t.results[i]; !r.Passed() {
			f.shown = append(f.shown, podapp.Found{
				Rule: assertion.ID, Severity: lint.Error, File: r.Test.File, Line: r.Test.Line, Message: r.Sentence(),
			})
		}
	}
	return f
}

// The parts of a report of JUnit, as CI systems read it.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		File    string        `xml:"file,attr"`
		Line    int           `xml:"line,attr"`
		Failure *junitFailure `xml:"failure"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// printJUnit prints a report of JUnit.
func printJUnit(w io.Writer, t *tested) error {
	report := junitSuites{Name: "portolan test", Tests: len(t.results), Time: fmt.Sprintf("%.3f", t.took.Seconds())}
	for i := range t.results {
		r := &t.results[i]
		if n := len(report.Suites); n == 0 || report.Suites[n-1].Name != r.Test.File {
			report.Suites = append(report.Suites, junitSuite{Name: r.Test.File})
		}
		s := &report.Suites[len(report.Suites)-1]
		c := junitCase{Name: r.Title(), Class: r.Test.File, File: r.Test.File, Line: r.Test.Line}
		s.Tests++
		if !r.Passed() {
			s.Failures++
			report.Failures++
			c.Failure = &junitFailure{Message: explain.Plain(r.Why)}
			if r.Explanation != nil {
				var b strings.Builder
				if err := r.Explanation.WriteText(&b, explain.Style{}); err != nil {
					return err
				}
				c.Failure.Text = b.String()
			}
		}
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(report); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
