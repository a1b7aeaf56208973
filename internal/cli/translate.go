package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/translate"
	"portolan.dev/portolan/internal/kube/source"
)

// translateFlags are the flags of gateway translate.
type translateFlags struct {
	source  sourceFlags
	format  output
	class   string
	gateway string
	of      string // the GatewayClass
}

func newGatewayTranslate() *cobra.Command {
	var flags translateFlags
	cmd := &cobra.Command{
		Use:   "translate",
		Short: "Translate Ingresses of ingress-nginx into routes",
		Long: `Print a Gateway, listeners, HTTPRoutes and policies that do what Ingresses with the
annotations of ingress-nginx do, as YAML, and on standard error what becomes of each
annotation: done, differs or missing. Nothing is written to the cluster. Of Secrets
only the names are used.

The exit status is 1 if something is missing. Rules that would be open, or get
another path, without it have no backends: they answer with 500.`,
		Example: `  portolan gateway translate --manifests deploy > routes.yaml
  portolan gateway translate --kubeconfig ~/.kube/config --gateway edge/public > routes.yaml`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return flags.run(cmd) },
	}
	flags.source.addRead(cmd)
	flags.format.add(cmd)
	cmd.Flags().StringVar(&flags.class, "ingress-class", "nginx", "translate Ingresses of this class, and those of none")
	cmd.Flags().StringVar(&flags.gateway, "gateway", "default/gateway", "the `NAMESPACE/NAME` of the Gateway to print")
	cmd.Flags().StringVar(&flags.of, "gateway-class", "portolan", "the `NAME` of its GatewayClass")
	for _, flag := range []string{"ingress-class", "gateway", "gateway-class"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	return cmd
}

func (f *translateFlags) run(cmd *cobra.Command) error {
	if err := f.format.check(); err != nil {
		return err
	}
	namespace, name, _ := strings.Cut(f.gateway, "/")
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("--gateway %q is not NAMESPACE/NAME", f.gateway)
	}
	f.source.matters = []cluster.Kind{cluster.KindIngress, cluster.KindService}
	l, err := load(cmd, &f.source, source.Whole)
	if err != nil {
		return err
	}
	made := translateAll(l.store, translate.Config{
		Class: f.class, Gateway: cluster.Key{Namespace: namespace, Name: name}, GatewayClass: f.of,
		Namespace: f.source.access.namespace,
	})
	if f.format == "json" {
		err = printJSON(cmd.OutOrStdout(), struct {
			Objects []translate.Object `json:"objects"`
			Notes   []translate.Note   `json:"notes"`
		}{made.Objects, append([]translate.Note{}, made.Notes...)})
	} else {
		printNotes(cmd.ErrOrStderr(), made.Notes)
		err = printObjects(cmd.OutOrStdout(), made.Objects)
	}
	if err == nil && !made.Complete() {
		return errNegative
	}
	return err
}

// translateAll translates the Ingresses of a store.
func translateAll(store *cluster.Store, cfg translate.Config) (made *translate.Result) {
	store.View(func(v *cluster.View) { made = translate.Ingresses(v, cfg) })
	return made
}

// printNotes prints what becomes of annotations, a line for each.
func printNotes(w io.Writer, notes []translate.Note) {
	for _, n := range notes {
		fmt.Fprintln(w, n)
	}
}

// printObjects prints objects as documents of YAML.
func printObjects(w io.Writer, objects []translate.Object) error {
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	for _, o := range objects {
		if err := e.Encode(o); err != nil {
			return err
		}
	}
	return e.Close()
}

// printMigration prints what becomes of the annotations of a cluster that was read for check --migrate.
func (f *checkFlags) printMigration(cmd *cobra.Command) error {
	c, _, err := f.load(cmd)
	if err != nil {
		return err
	}
	made := translateAll(c.store, translate.Config{
		Class: "nginx", Gateway: cluster.Key{Namespace: "default", Name: "gateway"}, GatewayClass: "portolan",
		Namespace: f.source.access.namespace,
	})
	if f.format == "json" {
		err = printJSON(cmd.OutOrStdout(), append([]translate.Note{}, made.Notes...))
	} else {
		printNotes(cmd.OutOrStdout(), made.Notes)
		counts := make(map[string]int)
		for _, n := range made.Notes {
			counts[n.Outcome.String()]++
		}
		_, err = fmt.Fprintf(
			cmd.OutOrStdout(), "%d done, %d differ, %d missing\n", counts["done"], counts["differs"], counts["missing"],
		)
	}
	if err == nil && !made.Complete() {
		return errNegative
	}
	return err
}

// migrates reports whether an output format is one of check --migrate.
func migrates(format string) bool { return slices.Contains([]string{"text", "json"}, format) }
