// Package cli holds the commands. Each parses its flags, calls one function of
// package daemon and prints the result.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/source"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/support/deadline"
)

// Exit statuses.
const (
	exitDone     = 0
	exitNegative = 1 // a negative answer, or a problem was found
	exitUsage    = 2 // wrong flags, arguments, files or addresses
	// exitLayer is that of the first layer on a way that is broken, and the next ones are those of the layers after it.
	exitLayer = 10
)

// brokenError makes Run return the status of a layer without printing an error.
type brokenError path.Layer

func (e brokenError) Error() string { return "broken at " + string(e) }

// errNegative makes Run return exitNegative without printing an error.
var errNegative = errors.New("negative")

// Run runs the command named in args and returns the exit status. An error is one
// line on stderr, and those of a configuration one line each.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	if isCoreDNS(args) {
		root = newCoreDNS()
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		root.SetOut(unquoted{stdout})
	}
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errNegative):
		return exitNegative
	}
	if layer, ok := errors.AsType[brokenError](err); ok {
		return exitLayer + slices.Index(path.Layers(), path.Layer(layer))
	}
	all := config.Errors{err}
	if several, ok := errors.AsType[config.Errors](err); ok && several.Error() == err.Error() {
		all = several
	}
	for _, each := range all {
		fmt.Fprintf(stderr, "portolan: %s\n", explain.Plain(each.Error()))
	}
	return exitUsage
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "portolan",
		Short: "Cluster DNS for Kubernetes",
		Long: `Portolan is a DNS server for the Services and Pods of a Kubernetes cluster, with
tools that explain why names do not resolve. It reads the cluster from the
Kubernetes API or from a directory of manifests.`,
		Example: `  portolan serve --manifests examples/shop
  portolan query web.shop.svc.cluster.local --manifests examples/shop`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(
		newServe(),
		newZone(),
		newQuery(),
		newResolvConf(),
		newEnv(),
		newExplain(), newTest(),
		newGet(),
		newCheck(),
		newConfig(),
		newNode(),
		newPolicy(),
		newProxy(),
		newGateway(),
		newCleanup(),
		newWebhook(),
		newController(),
		newProbe(),
		newCache(),
		newTrace(),
		newVersion(),
		newCNI(),
	)
	root.Version = versions()     // without a template: those keep more of the program than is used, see architecture
	root.InitDefaultVersionFlag() // the help command shows it, too
	root.SetHelpCommand(newHelp())
	addCompletion(root)
	group(root)
	root.SetUsageFunc(usage)
	root.SetFlagErrorFunc(flagError)
	return root
}

// sourceFlags are the flags of every command that reads a cluster.
type sourceFlags struct {
	text      []byte // of the file config; nil before it is read
	config    string
	manifests string
	simulate  bool
	kubeconf  string
	zones     []string
	access    accessFlags // of commands that read a cluster once
	// also are kinds of custom resources that a command reads, if the cluster has them.
	also []cluster.Kind
	// matters are the kinds of which a warning says that they could not be read; nil is all.
	matters []cluster.Kind
	// parse parses the file config; nil is config.Parse.
	parse func(path string, text []byte) (config.Config, error)
}

func (f *sourceFlags) add(cmd *cobra.Command) {
	f.addAPI(cmd)
	f.addManifests(cmd)
}

// addManifests adds the flags of manifests.
func (f *sourceFlags) addManifests(cmd *cobra.Command) {
	cmd.Flags().Var(
		&manifestsFlag{path: &f.manifests}, "manifests",
		"read the cluster from the manifests in `DIR`, or from standard input (-)",
	)
	cmd.Flags().BoolVar(
		&f.simulate, "simulate", false,
		"complete the manifests as a control plane would: Pods, addresses, EndpointSlices",
	)
	_ = cmd.MarkFlagDirname("manifests") // fails only for unknown flags
}

// manifestsFlag is the flag --manifests, which may be given once.
type manifestsFlag struct {
	path  *string
	given bool
}

// String returns the path.
func (f *manifestsFlag) String() string {
	if f.path == nil { // the flag library compares with a zero value
		return ""
	}
	return *f.path
}

// Set sets the path. A second call with another one is an error; completion sets each flag
// twice.
func (f *manifestsFlag) Set(path string) error {
	if f.given && path != *f.path {
		return errors.New("given more than once; name one directory that contains all manifests")
	}
	*f.path, f.given = path, true
	return nil
}

// Type returns the name that help and completion show.
func (f *manifestsFlag) Type() string { return "string" }

// addAPI adds the flags without those of manifests.
func (f *sourceFlags) addAPI(cmd *cobra.Command) {
	f.addSettings(cmd)
	f.addKubeconfig(cmd)
}

// addCluster adds the flags without those of manifests and zones.
func (f *sourceFlags) addCluster(cmd *cobra.Command) {
	f.addConfig(cmd)
	f.addKubeconfig(cmd)
}

func (f *sourceFlags) addKubeconfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(
		&f.kubeconf, "kubeconfig", "",
		"read the cluster from the Kubernetes API of this kubeconfig `FILE` (default: the Pod's service account)",
	)
	_ = cmd.MarkFlagFilename("kubeconfig") // fails only for unknown flags
}

// addSettings adds the flags that say nothing about the cluster's source.
func (f *sourceFlags) addSettings(cmd *cobra.Command) {
	f.addConfig(cmd)
	cmd.Flags().StringArrayVar(&f.zones, "zone", nil, "the cluster domain `NAME`, repeatable (default cluster.local)")
	_ = cmd.RegisterFlagCompletionFunc("zone", cobra.NoFileCompletions) // fails only for unknown flags
}

func (f *sourceFlags) addConfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.config, "config", "", "read the configuration from this YAML `FILE`; flags override it")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml") // fails only for unknown flags
}

// content returns the text of the configuration file, nil without one.
func (f *sourceFlags) content() ([]byte, error) {
	if f.config == "" {
		return nil, nil
	}
	return deadline.ReadFile(f.config, deadline.File, deadline.Small)
}

// read returns the configuration: the defaults, the file, then the flags.
func (f *sourceFlags) read() (config.Config, error) {
	c := config.Default()
	if err := f.check(); err != nil {
		return c, err
	}
	if f.config != "" {
		if f.text == nil {
			var err error
			if f.text, err = config.ReadFile(f.config); err != nil {
				return c, err
			}
		}
		parse := config.Parse
		if f.parse != nil {
			parse = f.parse
		}
		var err error
		if c, err = parse(f.config, f.text); err != nil {
			return c, err
		}
	}
	f.override(&c)
	return c, nil
}

// check rejects flags that exclude each other.
func (f *sourceFlags) check() error {
	if f.manifests != "" && f.kubeconf != "" {
		return exclusive("manifests", "kubeconfig")
	}
	return f.access.check(f)
}

func exclusive(one, other string) error {
	return fmt.Errorf("--%s and --%s exclude each other", one, other)
}

// override sets in c what the flags set.
func (f *sourceFlags) override(c *config.Config) {
	switch {
	case f.manifests != "":
		c.Manifests, c.Kubernetes.Kubeconfig = f.manifests, ""
	case f.kubeconf != "":
		c.Manifests, c.Kubernetes.Kubeconfig = "", f.kubeconf
	}
	c.Simulate.Enabled = c.Simulate.Enabled || f.simulate
	if len(f.zones) > 0 {
		c.DNS.Zones = f.zones
	}
}

// printLoaded prints the problems of what was read.
func printLoaded(l source.Loaded, stderr io.Writer) {
	printProblems(l.Problems, stderr)
	printPartial(l, stderr)
	printUnread(l.Unread, stderr)
	printNothing(l, stderr)
}

// printNothing warns that the manifests have no object that names depend on: the
// program that should have written them may have failed.
func printNothing(l source.Loaded, stderr io.Writer) {
	if len(l.From) == 0 || l.Objects > 0 {
		return
	}
	var names []string
	for _, path := range l.From {
		if path == "-" {
			path = manifest.Stdin
		}
		names = append(names, path)
	}
	fmt.Fprintf(
		stderr, "portolan: warning: no object that names depend on in %s\n", explain.Plain(strings.Join(names, ", ")),
	)
}

func printUnread(unread []source.Unread, stderr io.Writer) {
	for _, u := range unread {
		fmt.Fprintf(stderr, "portolan: warning: %s; what depends on it is unknown\n", explain.Plain(u.Err.Error()))
	}
}

func printProblems(problems []manifest.Problem, stderr io.Writer) {
	for _, p := range problems {
		kind := "warning: "
		if p.Rejected {
			kind = ""
		}
		fmt.Fprintf(stderr, "portolan: %s%s\n", kind, explain.Plain(p.Error()))
	}
}

// output is the value of the flag -o.
type output string

func (o *output) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", "text", "output `FORMAT`: text or json")
	_ = cmd.RegisterFlagCompletionFunc(
		"output", cobra.FixedCompletions([]cobra.Completion{"text", "json"}, cobra.ShellCompDirectiveNoFileComp),
	)
}

func (o output) check() error {
	if o != "text" && o != "json" {
		return fmt.Errorf("output format %q is not text or json", string(o))
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
