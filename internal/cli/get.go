package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/explain"
	"portolan.dev/portolan/internal/filled"
)

func newGet() *cobra.Command {
	var flags getFlags
	cmd := &cobra.Command{
		Use:   "get KIND [NAME]",
		Short: "Show Services, EndpointSlices or Pods of manifests, as kubectl does",
		Long: `Show the services, endpointslices or pods of manifests, in kubectl's columns or as
YAML: as they are declared, with the API's defaults. With --simulate they have what
a cluster fills in, and those are there that a cluster makes.

A Pod that does not run has the STATUS Simulated, and in YAML the annotation
portolan.dev/simulated. The status is 1 when there is no object of that NAME.`,
		Example: `  portolan get services -A --manifests examples/shop
  portolan get svc web -n shop -o yaml --manifests examples/shop`,
		Args: arguments(1, 2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return getNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error { return flags.run(cmd, args) },
	}
	flags.add(cmd)
	return cmd
}

type getFlags struct {
	source    sourceFlags
	namespace string
	all       bool
	format    string
}

var getFormats = []cobra.Completion{"wide", "yaml", "json"}

func (f *getFlags) add(cmd *cobra.Command) {
	f.source.add(cmd)
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "those of this `NAMESPACE`")
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "those of all namespaces")
	cmd.Flags().StringVarP(&f.format, "output", "o", "", "print in this `FORMAT`: wide, yaml or json (default: a table)")
	_ = cmd.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(getFormats, cobra.ShellCompDirectiveNoFileComp))
}

// getKinds are the kinds by their names; the first of each is what messages
// call it.
var getKinds = map[cluster.Kind][]string{
	cluster.KindService:       {"services", "service", "svc"},
	cluster.KindEndpointSlice: {"endpointslices", "endpointslice", "endpointslices.discovery.k8s.io"},
	cluster.KindPod:           {"pods", "pod", "po"},
}

// getNames are the first names of all kinds.
func getNames() (names []string) {
	for _, k := range filled.Kinds() {
		names = append(names, getKinds[k][0])
	}
	return names
}

// choice is what the arguments and flags choose.
func (f *getFlags) choice(args []string) (c filled.Choice, err error) {
	i := slices.IndexFunc(filled.Kinds(), func(k cluster.Kind) bool {
		return slices.Contains(getKinds[k], strings.ToLower(args[0]))
	})
	switch {
	case i < 0:
		return c, fmt.Errorf("no kind %q to show; there are %s", args[0], strings.Join(getNames(), ", "))
	case f.format != "" && !slices.Contains(getFormats, f.format):
		return c, fmt.Errorf("output format %q is not wide, yaml or json", f.format)
	case f.all && len(args) > 1:
		return c, errors.New("NAME and --all-namespaces exclude each other")
	case f.namespace == "" && !f.all:
		return c, errors.New("--namespace is empty; -A shows all")
	}
	c.Kind = filled.Kinds()[i]
	if !f.all {
		c.Namespace = f.namespace
	}
	if len(args) > 1 {
		c.Name = args[1]
	}
	return c, nil
}

func (f *getFlags) run(cmd *cobra.Command, args []string) error {
	choice, err := f.choice(args)
	if err != nil {
		return err
	}
	settings, err := f.source.read()
	if err != nil {
		return err
	}
	d, err := newDaemon(cmd, settings)
	if err != nil {
		return err
	}
	objects, loaded, err := d.Get(cmd.Context(), version(), choice)
	if err != nil {
		return err
	}
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	printLoaded(loaded, stderr)
	if choice.Name != "" && len(objects) == 0 {
		fmt.Fprintf(stderr, "portolan: %s %q not found in the namespace %s\n", getKinds[choice.Kind][0], choice.Name, choice.Namespace)
		return errNegative
	}
	if f.format == "yaml" || f.format == "json" {
		return f.printObjects(stdout, objects, choice)
	}
	if len(objects) == 0 {
		where := fmt.Sprintf(" in %s namespace", choice.Namespace)
		if f.all {
			where = ""
		}
		fmt.Fprintf(stderr, "No resources found%s.\n", where)
		return nil
	}
	return printTable(stdout, filled.Table(choice.Kind, objects, filled.Columns{Namespace: f.all, Wide: f.format == "wide", Now: time.Now()}))
}

// printTable prints rows as kubectl does it.
func printTable(stdout io.Writer, rows [][]string) error {
	const width, tab, padding = 6, 4, 3
	w := tabwriter.NewWriter(stdout, width, tab, padding, ' ', 0)
	for _, row := range rows {
		var cells []string
		for _, cell := range row {
			cells = append(cells, explain.Plain(cell))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// printObjects prints an object that was asked for by name, or a List.
func (f *getFlags) printObjects(stdout io.Writer, objects []filled.Object, choice filled.Choice) error {
	var v any = listJSON{APIVersion: "v1", Kind: "List", Items: append([]filled.Object{}, objects...)}
	if choice.Name != "" {
		v = objects[0]
	}
	if f.format == "json" {
		return printJSON(stdout, v)
	}
	return printYAML(stdout, v)
}

// listJSON is a List of the API.
type listJSON struct {
	APIVersion string          `json:"apiVersion"`
	Items      []filled.Object `json:"items"`
	Kind       string          `json:"kind"`
	Metadata   struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
}

// printYAML prints what v is as JSON, its keys in order, as kubectl does it.
func printYAML(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var plain any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&plain); err != nil {
		return err
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err := enc.Encode(yamlValue(plain)); err != nil {
		return err
	}
	return enc.Close()
}

// yamlValue makes JSON's numbers such as YAML has.
func yamlValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = yamlValue(e)
		}
	case []any:
		for i, e := range v {
			v[i] = yamlValue(e)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return v
}
