package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/simulate/apiobject"
	"portolan.dev/portolan/internal/kube/source"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/support/suggest"
)

func newGet() *cobra.Command {
	var flags getFlags
	cmd := &cobra.Command{
		Use:   "get KIND[,KIND]... [NAME]... | KIND/NAME...",
		Short: "Print objects of manifests, as kubectl does",
		Long: `Print the objects of manifests that names depend on: Services, EndpointSlices and
Pods in kubectl's columns or as YAML with the API's defaults; Namespaces, Nodes,
workloads and NetworkPolicies as they are declared. With --simulate the output
includes the fields and objects that a control plane would add.

The kinds vips and backends are what a node's service proxy makes of Services: the
addresses at which it serves them, and their endpoints, with why some are not used.
They need --node for node ports and for endpoints on the node, and are also printed
of a cluster that is read from the API.

The kinds routes, gateways and ingresses are what a gateway makes of HTTPRoutes,
Gateways and Ingresses: whether it accepts them, how many of their backends have
endpoints and, with -o wide, what does not work. They are also printed of a cluster
that is read from the API, and in one list. The objects themselves are printed by
httproutes, and by the names with their groups, such as ingresses.networking.k8s.io.

A simulated Pod has the STATUS Simulated and, in YAML, the annotation
portolan.dev/simulated. The exit status is 1 if a NAME does not exist.`,
		Example: `  portolan get services -A --manifests examples/shop
  portolan get svc,endpointslices,pods -A --manifests examples/charts --simulate
  portolan get svc/web -n shop -o yaml --manifests examples/shop
  portolan get vips -A --node node-1 --manifests examples/shop
  portolan get gateways,routes -A -o wide --manifests examples/gateway-trouble`,
		Args: arguments(1, math.MaxInt),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completionsOfKinds(), cobra.ShellCompDirectiveNoFileComp
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
	selector  string
	node      string // for vips and backends
}

var getFormats = []cobra.Completion{"name", "wide", "yaml", "json"}

func (f *getFlags) add(cmd *cobra.Command) {
	f.source.add(cmd)
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "print objects of this `NAMESPACE`")
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "print objects of all namespaces")
	cmd.Flags().StringVarP(&f.format, "output", "o", "", "output `FORMAT`: name, wide, yaml or json (default: a table)")
	cmd.Flags().StringVarP(
		&f.selector, "selector", "l", "", "print objects with labels that match this `SELECTOR`, such as app=web,tier!=test",
	)
	cmd.Flags().StringVar(&f.node, "node", "", "print the vips and backends of the node `NAME`")
	_ = cmd.RegisterFlagCompletionFunc("node", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("selector", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(getFormats, cobra.ShellCompDirectiveNoFileComp))
}

// getNames returns the plural of each kind.
func getNames() (names []string) {
	for _, k := range cluster.Kinds() {
		names = append(names, apiobject.Resource(k))
	}
	return names
}

// completionsOfKinds returns the names of all kinds.
func completionsOfKinds() []cobra.Completion {
	names := append(getNames(), derivedNames()...)
	slices.Sort(names)
	return slices.Compact(names)
}

// parseKind returns the kind with the given name: short, singular or plural, without or with
// its API group.
func parseKind(text string) (cluster.Kind, error) {
	name := strings.ToLower(text)
	for _, k := range cluster.Kinds() {
		_, group, _ := strings.Cut(apiobject.Prefix(k), ".")
		for _, of := range []string{strings.ToLower(k.String()), apiobject.Resource(k), apiobject.ShortName(k)} {
			if of == "" {
				continue
			}
			if name == of || group != "" && name == of+"."+group {
				return k, nil
			}
		}
	}
	if near := suggest.Closest(name, getNames()); near != "" {
		return 0, fmt.Errorf("unknown kind %q; did you mean %s", text, near)
	}
	return 0, fmt.Errorf("unknown kind %q; there are %s", text, strings.Join(getNames(), ", "))
}

// parseChoices parses the arguments as kubectl does: KIND,... and names that apply
// to each kind, or KIND/NAME in every argument.
func parseChoices(args []string) (choices []apiobject.Choice, err error) {
	add := func(kind, name string) {
		k, bad := parseKind(kind)
		if c := (apiobject.Choice{Kind: k, Name: name}); bad == nil && !slices.Contains(choices, c) {
			choices = append(choices, c)
		}
		err = cmp.Or(err, bad)
	}
	if strings.Contains(args[0], "/") {
		for _, arg := range args {
			kind, name, ok := strings.Cut(arg, "/")
			if !ok || name == "" || strings.Contains(name, "/") {
				return nil, fmt.Errorf("%q is not KIND/NAME, unlike the first argument", arg)
			}
			add(kind, name)
		}
		return choices, err
	}
	names := args[1:]
	if len(names) == 0 {
		names = []string{""}
	}
	for kind := range strings.SplitSeq(args[0], ",") {
		for _, name := range names {
			if strings.Contains(name, "/") {
				return nil, fmt.Errorf("%q is not a NAME; use either KIND NAME or KIND/NAME", name)
			}
			add(kind, name)
		}
	}
	return choices, err
}

// choices returns what the arguments and flags select.
func (f *getFlags) choices(args []string) ([]apiobject.Choice, error) {
	choices, err := parseChoices(args)
	switch {
	case err != nil:
		return nil, err
	case f.format != "" && !slices.Contains(getFormats, f.format):
		return nil, fmt.Errorf("output format %q is not name, wide, yaml or json", f.format)
	case f.selector != "" && choices[0].Name != "":
		return nil, errors.New("NAME and --selector exclude each other")
	case f.all && choices[0].Name != "":
		return nil, errors.New("NAME and --all-namespaces exclude each other")
	case f.namespace == "" && !f.all:
		return nil, errors.New("--namespace is empty; use -A for all namespaces")
	}
	if !f.all {
		for i := range choices {
			choices[i].Namespace = f.namespace
		}
	}
	return choices, nil
}

// errAskKubectl is the error of readObjects for a cluster that has an API server.
var errAskKubectl = errors.New(
	"only manifests are shown (--manifests DIR); of a cluster that has an API server, kubectl get shows the same and more",
)

// readObjects reads manifests once and returns the objects of each choice.
func readObjects(
	cmd *cobra.Command, settings config.Config, choices []apiobject.Choice,
) ([][]apiobject.Object, source.Loaded, error) {
	if settings.Manifests == "" {
		return nil, source.Loaded{}, errAskKubectl
	}
	l, err := openCluster(cmd, source.Config{Settings: settings, Scope: source.Whole})
	if err != nil {
		return nil, source.Loaded{}, err
	}
	loaded, err := l.load(cmd.Context())
	if err != nil {
		return nil, loaded, err
	}
	c := apiobject.Builder{Store: l.store, Declared: loaded.Declared}
	if plane := l.source.Plane(); plane != nil {
		c.Slices = plane.Slices
	}
	objects := make([][]apiobject.Object, len(choices))
	for i, choice := range choices {
		if objects[i], err = c.Objects(choice); err != nil {
			return nil, loaded, err
		}
	}
	return objects, loaded, nil
}

func (f *getFlags) run(cmd *cobra.Command, args []string) error {
	switch choices, err := parseDerived(args); {
	case err != nil:
		return err
	case len(choices) > 0:
		return f.runDerived(cmd, choices)
	case f.node != "":
		return errors.New("--node goes with vips and backends")
	}
	choices, err := f.choices(args)
	if err != nil {
		return err
	}
	settings, err := f.source.read()
	if err != nil {
		return err
	}
	chosen, loaded, err := readObjects(cmd, settings, choices)
	if err != nil {
		return err
	}
	selected, err := apiobject.ParseSelector(f.selector)
	if err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	for i := range chosen {
		chosen[i] = slices.DeleteFunc(chosen[i], func(o apiobject.Object) bool { return !selected(o) })
	}
	stderr := cmd.ErrOrStderr()
	printLoaded(loaded, stderr)
	absent := false
	for i, c := range choices {
		if c.Name != "" && len(chosen[i]) == 0 {
			absent = true
			fmt.Fprintf(stderr, "portolan: %s %q not found%s\n", apiobject.Resource(c.Kind), c.Name, inNamespace(c))
		}
	}
	objects := slices.Concat(chosen...)
	switch {
	case absent && len(objects) == 0:
	case f.format == "yaml" || f.format == "json":
		err = f.printObjects(cmd.OutOrStdout(), objects, choices)
	case f.format == "name":
		err = printNames(cmd.OutOrStdout(), chosen, choices)
	case len(objects) == 0:
		everywhere := slices.ContainsFunc(choices, func(c apiobject.Choice) bool { return !c.Kind.Namespaced() })
		f.printNone(stderr, everywhere)
	default:
		err = f.printTables(cmd.OutOrStdout(), chosen, choices)
	}
	if err == nil && absent {
		return errNegative
	}
	return err
}

// inNamespace returns where an object was looked for.
func inNamespace(c apiobject.Choice) string {
	if !c.Kind.Namespaced() {
		return ""
	}
	return " in the namespace " + c.Namespace
}

// printNames prints a line for each object, such as service/web.
func printNames(stdout io.Writer, chosen [][]apiobject.Object, choices []apiobject.Choice) error {
	var b strings.Builder
	for i, objects := range chosen {
		for _, o := range objects {
			fmt.Fprintf(&b, "%s/%s\n", apiobject.Prefix(choices[i].Kind), explain.Plain(o.GetName()))
		}
	}
	_, err := io.WriteString(stdout, b.String())
	return err
}

// printTables prints one table for each kind with objects, in the order of the
// arguments. With several kinds, names are prefixed with their kind.
func (f *getFlags) printTables(stdout io.Writer, chosen [][]apiobject.Object, choices []apiobject.Choice) error {
	var kinds []cluster.Kind
	of := make(map[cluster.Kind][]apiobject.Object)
	for i, c := range choices {
		if !slices.Contains(kinds, c.Kind) {
			kinds = append(kinds, c.Kind)
		}
		of[c.Kind] = append(of[c.Kind], chosen[i]...)
	}
	columns := apiobject.Columns{Namespace: f.all, Kind: len(kinds) > 1, Wide: f.format == "wide", Now: time.Now()}
	printed := false
	for _, k := range kinds {
		if len(of[k]) == 0 {
			continue
		}
		if printed {
			fmt.Fprintln(stdout)
		}
		printed = true
		if err := printTable(stdout, apiobject.Table(k, of[k], columns)); err != nil {
			return err
		}
	}
	return nil
}

// printTable prints rows as kubectl does.
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

// printObjects prints the one object that was named, or a List.
func (f *getFlags) printObjects(stdout io.Writer, objects []apiobject.Object, choices []apiobject.Choice) error {
	var v any = listJSON{APIVersion: "v1", Kind: "List", Items: append([]apiobject.Object{}, objects...)}
	if len(choices) == 1 && choices[0].Name != "" {
		v = objects[0]
	}
	if f.format == "json" {
		return printJSON(stdout, v)
	}
	return printYAML(stdout, v)
}

// listJSON is a List object of the API.
type listJSON struct {
	APIVersion string             `json:"apiVersion"`
	Items      []apiobject.Object `json:"items"`
	Kind       string             `json:"kind"`
	Metadata   struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
}

// printYAML prints v's JSON form as YAML with sorted keys, as kubectl does.
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

// yamlValue converts JSON numbers to those of YAML.
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

// printNone says that there is nothing, in kubectl's words: in the namespace that was read, or at all.
func (f *getFlags) printNone(stderr io.Writer, everywhere bool) {
	if f.all || everywhere {
		fmt.Fprintln(stderr, "No resources found")
	} else {
		fmt.Fprintf(stderr, "No resources found in %s namespace.\n", f.namespace)
	}
}
