package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/policy/diff"
)

func newPolicy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Find out what NetworkPolicies change, and what they deny",
		Long:  `Find out what NetworkPolicies and ClusterNetworkPolicies change, and what they deny.`,
		Example: `  portolan policy diff policies --manifests examples/shop
  portolan policy diff -f policies`,
	}
	group(cmd)
	cmd.AddCommand(newPolicyDiff(), newPolicyLog())
	return cmd
}

// policyDiffFlags are the flags of the command policy diff.
type policyDiffFlags struct {
	source sourceFlags
	files  []string
	prune  bool
	format output
}

func newPolicyDiff() *cobra.Command {
	var flags policyDiffFlags
	cmd := &cobra.Command{
		Use:   "diff PATH...",
		Short: "Print which connections open or close if manifests are applied",
		Long: `Print which connections between Pods, nodes and addresses outside the cluster open
or close if manifests are applied to the cluster, or to the manifests that
--manifests names. Each PATH is a file, a directory, or - for standard input.

Each line has connections that a policy opens or closes: from which Pods, by their
labels, to which, at which ports, and what decides after the change. NetworkPolicies,
ClusterNetworkPolicies, labels of Namespaces and Pods, and templates of workloads
count. Pods that are new are compared as if they had been there before.

Like kubectl diff, it deletes nothing, and the exit status is 0 without a
difference, 1 with one, and 2 after an error.`,
		Example: `  portolan policy diff policies --manifests examples/shop
  kubectl kustomize overlays/prod | portolan policy diff -
  portolan policy diff -f policies --prune -o json`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return []cobra.Completion{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) error { return flags.run(cmd, args) },
	}
	flags.source.addRead(cmd)
	cmd.Flags().StringArrayVarP(
		&flags.files,
		"filename",
		"f",
		nil,
		"apply the manifests in this file or directory `PATH`, repeatable; - is standard input",
	)
	cmd.Flags().BoolVar(&flags.prune, "prune", false, "as if the policies that the manifests do not have were deleted")
	flags.format.add(cmd)
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return cmd
}

func (f *policyDiffFlags) run(cmd *cobra.Command, args []string) error {
	paths := append(f.files, args...)
	if len(paths) == 0 {
		return fmt.Errorf("missing argument; usage: %s", cmd.UseLine())
	}
	if err := f.format.check(); err != nil {
		return err
	}
	f.source.also = []cluster.Kind{cluster.KindClusterNetworkPolicy}
	settings, err := f.source.readOnce()
	if err != nil {
		return err
	}
	namespace, err := f.source.defaultNamespace(settings)
	if err != nil {
		return err
	}
	if f.source.manifests == "-" && slices.Contains(paths, "-") {
		return errors.New("standard input is read once: give either a PATH or --manifests as a file")
	}
	manifests, err := f.readManifests(cmd, paths, namespace)
	if err != nil {
		return err
	}
	l, err := load(cmd, &f.source, source.Whole)
	if err != nil {
		return err
	}
	changes, err := l.compare(manifests)
	switch {
	case err != nil:
		return err
	case f.format == "json":
		err = printJSON(cmd.OutOrStdout(), changes)
	default:
		err = diff.WriteText(cmd.OutOrStdout(), changes)
	}
	if err == nil && len(changes) > 0 {
		return errNegative
	}
	return err
}

// compare returns the connections that open or close if manifests are applied to the cluster.
func (l *onceCluster) compare(m diff.Manifests) (changes []diff.Change, err error) {
	l.store.View(func(v *cluster.View) {
		if !v.Loaded(cluster.KindNetworkPolicy) {
			err = errPoliciesUnread
			return
		}
		diff.Apply(v, m).View(func(applied *cluster.View) { changes = diff.Compare(v, applied) })
	})
	return changes, err
}

// errPoliciesUnread is the error of commands that depend on NetworkPolicies.
var errPoliciesUnread = errors.New("the NetworkPolicies of the cluster could not be read")

// readManifests reads the objects that manifests declare. Those without a namespace are in the given one.
// Without any object it fails, unless Prune is set.
func (f *policyDiffFlags) readManifests(
	cmd *cobra.Command, paths []string, namespace string,
) (m diff.Manifests, err error) {
	m.Prune = f.prune
	store := cluster.NewStore()
	s, err := source.New(source.Config{
		Settings: config.Default(), Scope: source.Whole, Store: store, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return m, err
	}
	loaded, err := s.LoadFiles(source.Files{Paths: paths, Stdin: cmd.InOrStdin()})
	if err != nil {
		return m, err
	}
	printProblems(loaded.Problems, cmd.ErrOrStderr())
	if found := podapp.Misread(loaded.Problems); len(found) > 0 {
		return m, &misreadError{found}
	}
	if loaded.Objects+loaded.PassedOver == 0 && !f.prune {
		return m, fmt.Errorf("no Kubernetes objects in %s", strings.Join(paths, ", "))
	}
	store.View(func(v *cluster.View) {
		for _, k := range cluster.Kinds() {
			for o := range v.Objects(k) {
				declared := loaded.Declared(k, o.Ref().Key)
				if declared == nil {
					continue // a Namespace that only its objects name
				}
				if !namesNamespace(declared) {
					o = movedTo(o, namespace)
				}
				m.Objects = append(m.Objects, o)
			}
		}
	})
	return m, nil
}

// misreadError is the error of manifests whose documents are not read as they are written; these are printed before.
type misreadError struct{ documents []podapp.Found }

func (*misreadError) Error() string {
	return "the manifests have objects that cannot be read as they are written"
}

// namesNamespace reports whether an object, in JSON, has a namespace.
func namesNamespace(object []byte) bool {
	var o struct {
		Metadata struct {
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	return json.Unmarshal(object, &o) == nil && o.Metadata.Namespace != ""
}

// movedTo returns an object in another namespace, if it is of a kind that policies depend on.
func movedTo(o cluster.Object, namespace string) cluster.Object {
	switch o := o.(type) {
	case *cluster.NetworkPolicy:
		moved := *o
		moved.Namespace = namespace
		return &moved
	case *cluster.Pod:
		moved := *o
		moved.Namespace = namespace
		return &moved
	case *cluster.Workload:
		moved := *o
		moved.Namespace = namespace
		return &moved
	}
	return o
}
