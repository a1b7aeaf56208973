package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/simulate/apiobject"
	"portolan.dev/portolan/internal/kube/source"
)

// accessFlags say how a command that reads a cluster once reaches its API. They are those
// of kubectl.
type accessFlags struct {
	context   string
	namespace string
	patience  timeoutFlag
}

// timeoutFlag is the flag --request-timeout. Its zero value leaves the default.
type timeoutFlag time.Duration

// String returns the duration, "" for the default.
func (f *timeoutFlag) String() string {
	if *f == 0 {
		return ""
	}
	return time.Duration(*f).String()
}

// Set parses the text as kubectl does: an integer is a number of seconds, and 0 is no timeout.
func (f *timeoutFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if _, bad := strconv.ParseInt(text, 10, 64); bad == nil {
		d, err = time.ParseDuration(text + "s")
	}
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a number of seconds, or a duration such as 5s", text)
	case d < 0:
		return fmt.Errorf("%s is negative", text)
	case d == 0:
		d = source.Forever
	}
	*f = timeoutFlag(d)
	return nil
}

// Type returns the name that help and completion show.
func (f *timeoutFlag) Type() string { return "duration" }

// addRead adds the flags of a command that reads a cluster once.
func (f *sourceFlags) addRead(cmd *cobra.Command) {
	f.add(cmd)
	cmd.Flags().StringVar(&f.access.context, "context", "", "use the context `NAME` of the kubeconfig")
	cmd.Flags().Var(
		&f.access.patience, "request-timeout",
		"give up after this `DURATION`, such as 5s or a number of seconds; 0 never does (default 30s)",
	)
	cmd.Flags().StringVarP(
		&f.access.namespace, "namespace", "n", "",
		"the `NAMESPACE` of what is named without one, and the one to read if the API refuses to list all (default: that of "+
			"the kubeconfig's context, or of the Pod's service account)",
	)
	cmd.Flags().Lookup("kubeconfig").Usage = "read the cluster from the Kubernetes API of this kubeconfig `FILE` " +
		"(default: $KUBECONFIG, ~/.kube/config, the Pod's service account)"
	_ = cmd.RegisterFlagCompletionFunc("context", f.completeContext)
	_ = cmd.RegisterFlagCompletionFunc("namespace", f.completeNamespace)
	_ = cmd.RegisterFlagCompletionFunc("request-timeout", cobra.NoFileCompletions)
}

// check rejects flags that exclude each other.
func (a *accessFlags) check(f *sourceFlags) error {
	if a.context != "" && f.manifests != "" {
		return exclusive("manifests", "context")
	}
	return nil
}

// readOnce returns the configuration of a command that reads a cluster once: if no cluster
// is named, it is that of kubectl.
func (f *sourceFlags) readOnce() (config.Config, error) {
	c, err := f.read()
	if err == nil && c.Manifests == "" && c.Kubernetes.Kubeconfig == "" {
		c.Kubernetes.Kubeconfig = usualKubeconfig()
	}
	return c, err
}

// usualKubeconfig returns the kubeconfig of kubectl: the files in KUBECONFIG or, if it is
// not set, ~/.kube/config; "" if there is none.
func usualKubeconfig() string {
	if list := os.Getenv("KUBECONFIG"); list != "" {
		return list
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	file := filepath.Join(home, ".kube", "config")
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}

// defaultNamespace returns the namespace of objects that are named without one.
func (f *sourceFlags) defaultNamespace(c config.Config) (string, error) {
	if f.access.namespace != "" || c.Manifests != "" {
		return orDefault(f.access.namespace), nil
	}
	return api.DefaultNamespace(c.Kubernetes.Kubeconfig, f.access.context)
}

func orDefault(namespace string) string {
	if namespace == "" {
		return "default"
	}
	return namespace
}

// reading returns how to read the cluster. If the account may not read all namespaces, that
// of the flag or of the kubeconfig's context is read.
func (f *sourceFlags) reading(c config.Config, scope source.Scope) (source.Config, error) {
	namespace, err := f.defaultNamespace(c)
	return source.Config{
		Settings: c, Scope: scope, Context: f.access.context, Patience: time.Duration(f.access.patience),
		Fallback: []string{namespace}, Also: f.also,
	}, err
}

// relevant returns l without the unread kinds that do not matter.
func (f *sourceFlags) relevant(l source.Loaded) source.Loaded {
	if f.matters != nil {
		l.Unread = slices.DeleteFunc(slices.Clone(l.Unread), func(u source.Unread) bool {
			return !slices.Contains(f.matters, u.Kind)
		})
	}
	return l
}

// printPartial notes which kinds were read in some namespaces only.
func printPartial(l source.Loaded, stderr io.Writer) {
	if len(l.Partial) == 0 {
		return
	}
	fmt.Fprintf(
		stderr,
		"portolan: note: the account may not list %s in all namespaces; read in namespace %s only, and unknown in others "+
			"(--namespace names another)\n",
		joinKinds(l.Partial), strings.Join(l.Namespaces, ", "),
	)
}

// joinKinds lists kinds as resources of the API.
func joinKinds(kinds []cluster.Kind) string {
	var names []string
	for _, k := range kinds {
		names = append(names, apiobject.Resource(k))
	}
	return strings.Join(names, ", ")
}

// completeContext completes the contexts of the kubeconfig.
func (f *sourceFlags) completeContext(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, err := f.readOnce()
	if err != nil || c.Kubernetes.Kubeconfig == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, _ := api.Contexts(c.Kubernetes.Kubeconfig) // a completion has no place for an error
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completionTime is how long a completion waits for the API.
const completionTime = 3 * time.Second

// errNoCompletion is the error of a cluster that a completion does not read.
var errNoCompletion = errors.New("standard input is not read for a completion")

// completing calls list with the cluster of the flags, to complete the names of objects.
func (f *sourceFlags) completing(
	cmd *cobra.Command, list func(*cluster.View) []cobra.Completion,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	l, err := f.openToComplete(cmd)
	if err != nil {
		return nil, directive
	}
	var names []cobra.Completion
	l.store.View(func(v *cluster.View) { names = list(v) })
	slices.Sort(names)
	return slices.Compact(names), directive
}

// openToComplete reads the cluster for a completion.
func (f *sourceFlags) openToComplete(cmd *cobra.Command) (*onceCluster, error) {
	c, err := f.readOnce()
	if err != nil {
		return nil, err
	}
	if c.Manifests == "-" {
		return nil, errNoCompletion
	}
	r, err := f.reading(c, source.Whole)
	if err != nil {
		return nil, err
	}
	if r.Patience == 0 || r.Patience == source.Forever {
		r.Patience = completionTime
	}
	l, err := openCluster(cmd, r)
	if err == nil {
		_, err = l.load(cmd.Context())
	}
	return l, err
}

// completeNamespace completes the names of namespaces.
func (f *sourceFlags) completeNamespace(
	cmd *cobra.Command, _ []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.completing(cmd, func(v *cluster.View) (names []cobra.Completion) {
		for n := range v.Namespaces() {
			names = append(names, n.Name)
		}
		return names
	})
}
