// Package cli is the commands: it reads flags and prints; it decides nothing.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/source"
	"portolan.dev/portolan/internal/pod/explain"
)

// Exit statuses.
const (
	exitDone     = 0
	exitNegative = 1 // the answer is negative, or a problem was found
	exitUsage    = 2 // wrong use: flags, files, addresses
)

// errNegative ends a command with exitNegative and prints nothing more.
var errNegative = errors.New("negative")

// Run runs the command that args name and gives the exit status. Errors are
// one line on stderr.
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
	fmt.Fprintf(stderr, "portolan: %s\n", explain.Plain(err.Error()))
	return exitUsage
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "portolan",
		Short: "Names for a Kubernetes cluster",
		Long: `Portolan reads a Kubernetes cluster and makes it reachable by name: it is the
DNS server for the cluster's Services and Pods. It reads the cluster from the
Kubernetes API, or from a directory of manifests.`,
		Example: `  portolan serve --manifests examples/shop
  portolan query web.shop.svc.cluster.local --manifests examples/shop`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newServe(), newZone(), newQuery(), newResolvConf(), newEnv(), newExplain(), newGet(), newCheck(), newConfig(), newNode(), newWebhook(), newController(), newProbe(), newVersion())
	root.Version = versions()     // without a template: those keep more of the program than is used, see architecture
	root.InitDefaultVersionFlag() // the help command shows it, too
	root.SetHelpCommand(newHelp())
	addCompletion(root)
	group(root)
	root.SetUsageFunc(usage)
	root.SetFlagErrorFunc(flagError)
	return root
}

// sourceFlags are those of every command that reads a cluster.
type sourceFlags struct {
	text      []byte // of the file config; nil before it is read
	config    string
	manifests string
	simulate  bool
	kubeconf  string
	zones     []string
}

func (f *sourceFlags) add(cmd *cobra.Command) {
	f.addAPI(cmd)
	cmd.Flags().Var(&manifestsFlag{path: &f.manifests}, "manifests", "read the cluster from this `DIR` of manifests, or from standard input (-)")
	cmd.Flags().BoolVar(&f.simulate, "simulate", false, "complete the manifests as a cluster would: Pods of workloads, addresses, EndpointSlices")
	_ = cmd.MarkFlagDirname("manifests") // fails for flags that are not there only
}

// manifestsFlag is the flag --manifests. Of two, one would be read only.
type manifestsFlag struct {
	path  *string
	given bool
}

// String is the path.
func (f *manifestsFlag) String() string {
	if f.path == nil { // of a zero value, which the library compares with
		return ""
	}
	return *f.path
}

// Set sets the path, once.
func (f *manifestsFlag) Set(path string) error {
	if f.given {
		return errors.New("given twice, and one is read only: name a directory that has both")
	}
	*f.path, f.given = path, true
	return nil
}

// Type is what help and completion call it.
func (f *manifestsFlag) Type() string { return "string" }

// addAPI adds them without manifests.
func (f *sourceFlags) addAPI(cmd *cobra.Command) {
	f.addSettings(cmd)
	f.addKubeconfig(cmd)
}

// addCluster adds them without manifests, and without names.
func (f *sourceFlags) addCluster(cmd *cobra.Command) {
	f.addConfig(cmd)
	f.addKubeconfig(cmd)
}

func (f *sourceFlags) addKubeconfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconf, "kubeconfig", "", "read the cluster from the Kubernetes API that this `FILE` names (default: the Pod's account)")
	_ = cmd.MarkFlagFilename("kubeconfig") // fails for flags that are not there only
}

// addSettings adds them without the cluster.
func (f *sourceFlags) addSettings(cmd *cobra.Command) {
	f.addConfig(cmd)
	cmd.Flags().StringArrayVar(&f.zones, "zone", nil, "the cluster's domain `NAME`, repeatable (default cluster.local)")
	_ = cmd.RegisterFlagCompletionFunc("zone", cobra.NoFileCompletions) // fails for flags that are not there only
}

func (f *sourceFlags) addConfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.config, "config", "", "read the settings in this `FILE` (YAML); flags override it")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml") // fails for flags that are not there only
}

// content is the text of the file that the configuration is read from.
func (f *sourceFlags) content() ([]byte, error) {
	if f.config == "" {
		return nil, nil
	}
	return os.ReadFile(f.config)
}

// read is the configuration that the flags make.
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
		var err error
		if c, err = config.Parse(f.config, f.text); err != nil {
			return c, err
		}
	}
	f.override(&c)
	return c, nil
}

// check refuses flags that exclude each other.
func (f *sourceFlags) check() error {
	if f.manifests != "" && f.kubeconf != "" {
		return exclusive("manifests", "kubeconfig")
	}
	return nil
}

func exclusive(one, other string) error {
	return fmt.Errorf("--%s and --%s exclude each other", one, other)
}

// override puts what the flags say in the place of what c says.
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

// printLoaded prints what is wrong with what was read.
func printLoaded(l source.Loaded, stderr io.Writer) {
	printProblems(l.Problems, stderr)
	printUnread(l.Unread, stderr)
	printNothing(l, stderr)
}

// printNothing says that manifests have no names in them: what was to write them
// may have failed.
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
	fmt.Fprintf(stderr, "portolan: warning: no object that names depend on in %s\n", explain.Plain(strings.Join(names, ", ")))
}

func printUnread(unread []error, stderr io.Writer) {
	for _, err := range unread {
		fmt.Fprintf(stderr, "portolan: warning: %s; what depends on it is not known\n", explain.Plain(err.Error()))
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

// output is the flag -o.
type output string

func (o *output) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", "text", "print in this `FORMAT`: text or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
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
