// Package cli holds the commands. Each parses its flags, calls one function of
// package daemon and prints the result.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/source"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/support/deadline"
)

// Exit statuses.
const (
	exitDone     = 0
	exitNegative = 1 // a negative answer, or a problem was found
	exitUsage    = 2 // wrong flags, arguments, files or addresses
)

// statusError makes Run return an exit status without printing an error.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// errNegative makes Run return exitNegative.
const errNegative = statusError(exitNegative)

// ended returns the error for an exit status.
func ended(status int) error {
	if status == exitDone {
		return nil
	}
	return statusError(status)
}

// Run runs the command named in args and returns the exit status. The first of args is the file of the program: as
// kubectl-portolan, it is a plugin of kubectl. An error is one line on stderr, and those of a configuration one line
// each.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	called := invocationOf(args[0], args[1:])
	args = called.args
	root := newRoot(called)
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
	if err == nil {
		return exitDone
	}
	if status, ok := errors.AsType[statusError](err); ok {
		return int(status)
	}
	all := config.Errors{err}
	if several, ok := errors.AsType[config.Errors](err); ok && several.Error() == err.Error() {
		all = several
	}
	for _, each := range all {
		fmt.Fprintf(stderr, "portolan: %s\n", explain.Plain(called.renaming(root)(each.Error())))
	}
	return exitUsage
}

// Command returns the tree of all commands, for their manual pages. It is not to be run.
func Command() *cobra.Command {
	root := newRoot(invocation{name: "portolan"})
	root.InitDefaultHelpCmd()
	return root
}

// commandGroup is a paragraph in the list of commands.
type commandGroup struct {
	title    string
	commands []func() *cobra.Command
}

// commandGroups are the commands in the order of the help. A newcomer's are first.
func commandGroups() []commandGroup {
	return []commandGroup{
		{"Find out what works, and why it does not", []func() *cobra.Command{
			newExplain, newTest, newCheck, newGet, newPage, newPolicy, newTrace, newTail, newTop, newReport,
		}},
		{"See what a server answers and what a Pod gets", []func() *cobra.Command{
			newQuery, newZone, newResolvConf, newEnv,
		}},
		{"Serve a cluster", []func() *cobra.Command{
			newServe, newNode, newProxy, newGateway, newController, newWebhook,
		}},
		{"Operate", []func() *cobra.Command{newConfig, newCache, newProbe, newCNI, newCleanup}},
		{otherCommands, []func() *cobra.Command{newVersion}},
	}
}

// otherCommands is the title of the last group, which has the commands help and completion, too.
const otherCommands = "Other"

func newRoot(called invocation) *cobra.Command {
	root := &cobra.Command{
		Use:   "portolan",
		Short: "Names, addresses, policies and routes of a Kubernetes cluster",
		Long: `Portolan makes a Kubernetes cluster reachable: it is the cluster's DNS server, its
service proxy, its Pod network with network policies, and its gateway for Ingresses
and Gateway API. Each part runs alone or beside the others, in place of CoreDNS,
kube-proxy, a network plugin or an ingress controller.

Since one program knows all layers, it explains a whole way: why a Pod cannot
resolve a name, reach an address or get an answer from a URL, and what mends that. It
reads a cluster from the Kubernetes API, as kubectl does, or from a directory of
manifests, and then needs no cluster.`,
		Example: `  portolan explain http://web.shop --from shop/client
  portolan explain web.shop --from shop/client --manifests examples/shop
  portolan check examples/shop
  portolan serve --manifests examples/shop`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	for _, g := range commandGroups() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, create := range g.commands {
			cmd := create()
			cmd.GroupID = g.title
			root.AddCommand(cmd)
		}
	}
	root.Version = versions()     // without a template: those keep more of the program than is used, see architecture
	root.InitDefaultVersionFlag() // the help command shows it, too
	root.SetHelpCommand(newHelp())
	root.SetHelpCommandGroupID(otherCommands)
	if called.isPlugin() {
		root.AddCommand(newPluginCompletion())
	} else {
		addCompletion(root)
	}
	group(root)
	root.SetUsageFunc(usage)
	root.SetFlagErrorFunc(flagError)
	called.apply(root)
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
