package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/explain"
)

// proxyKind is a kind of get that is no object: what a node's service proxy makes of Services.
type proxyKind string

const (
	vips     proxyKind = "vips"
	backends proxyKind = "backends"
)

// proxyKinds are the names by which they are known.
var proxyKinds = map[string]proxyKind{"vip": vips, "vips": vips, "backend": backends, "backends": backends}

// proxyChoice is a proxyKind and the names of Services; none are all.
type proxyChoice struct {
	kind  proxyKind
	names []string
}

// parseProxyChoice parses the arguments of get, and reports whether they name a proxyKind.
func parseProxyChoice(args []string) (c proxyChoice, ok bool, err error) {
	kind, name, slash := strings.Cut(args[0], "/")
	for part := range strings.SplitSeq(strings.ToLower(kind), ",") {
		c.kind, ok = proxyKinds[part], ok || proxyKinds[part] != ""
	}
	switch {
	case !ok:
		return c, false, nil
	case strings.Contains(kind, ","):
		return c, true, errors.New("vips and backends are printed alone: name one of them, and no other kind")
	case !slash:
		c.names = args[1:]
		return c, true, nil
	}
	c.names = []string{name}
	for _, arg := range args[1:] {
		other, name, _ := strings.Cut(arg, "/")
		if proxyKinds[strings.ToLower(other)] != c.kind || name == "" {
			return c, true, fmt.Errorf("%q is not %s/SERVICE, unlike the first argument", arg, c.kind)
		}
		c.names = append(c.names, name)
	}
	return c, true, nil
}

// proxyRow is a VIP or a Backend as it is printed.
type proxyRow struct {
	namespace, service string
	id                 string   // for -o name
	cells, wide        []string // after namespace and service; those of -o wide
	json               any
}

// proxyTable has the columns of a kind.
type proxyTable struct {
	columns, wide []string
	rows          []proxyRow
}

func vipTable(all []connection.VIP) proxyTable {
	t := proxyTable{
		columns: []string{"PORT", "ADDRESS", "PROTOCOL", "KIND", "POLICY", "ENDPOINTS", "LOCAL"}, wide: []string{"NOTE"},
	}
	for _, v := range all {
		t.rows = append(t.rows, proxyRow{
			namespace: v.Namespace, service: v.Service, id: "vip/" + v.Address + "/" + strings.ToLower(v.Protocol), json: v,
			cells: []string{
				orNone(v.Port), v.Address, v.Protocol, v.Kind, v.Policy, strconv.Itoa(v.Endpoints), strconv.Itoa(v.Local),
			},
			wide: []string{orNone(v.Note)},
		})
	}
	return t
}

func backendTable(all []connection.Backend) proxyTable {
	t := proxyTable{columns: []string{"PORT", "ENDPOINT", "PROTOCOL", "USED-BY", "WHY-NOT"}, wide: []string{"POD", "NODE"}}
	for _, b := range all {
		t.rows = append(t.rows, proxyRow{
			namespace: b.Namespace, service: b.Service, id: "backend/" + b.Endpoint + "/" + strings.ToLower(b.Protocol), json: b,
			cells: []string{orNone(b.Port), b.Endpoint, b.Protocol, b.Used, orNone(b.Why)},
			wide:  []string{orNone(b.Pod), orNone(b.Node)},
		})
	}
	return t
}

// orNone returns what kubectl prints for an empty cell.
func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

// runProxy prints what the service proxy of a node makes of Services.
func (f *getFlags) runProxy(cmd *cobra.Command, c proxyChoice) error {
	switch {
	case f.format != "" && !slices.Contains(getFormats, f.format):
		return fmt.Errorf("output format %q is not name, wide, yaml or json", f.format)
	case f.selector != "":
		return fmt.Errorf("--selector is not for %s; name Services instead", c.kind)
	case f.all && len(c.names) > 0:
		return errors.New("NAME and --all-namespaces exclude each other")
	case f.namespace == "" && !f.all:
		return errors.New("--namespace is empty; use -A for all namespaces")
	}
	pods, err := f.readProxy(cmd)
	if err != nil {
		return err
	}
	var t proxyTable
	if c.kind == vips {
		t = vipTable(pods.VIPs(f.node))
	} else {
		t = backendTable(pods.Backends(f.node))
	}
	t.rows = slices.DeleteFunc(t.rows, func(r proxyRow) bool {
		return !f.all && r.namespace != f.namespace || len(c.names) > 0 && !slices.Contains(c.names, r.service)
	})
	absent := false
	for _, name := range c.names {
		if !slices.ContainsFunc(t.rows, func(r proxyRow) bool { return r.service == name }) {
			absent = true
			fmt.Fprintf(cmd.ErrOrStderr(), "portolan: Service %q has no %s in the namespace %s\n", name, c.kind, f.namespace)
		}
	}
	if err := f.printProxy(cmd, &t); err != nil || !absent {
		return err
	}
	return errNegative
}

// readProxy reads the cluster, as a service proxy does.
func (f *getFlags) readProxy(cmd *cobra.Command) (*podapp.Inspector, error) {
	l, err := load(cmd, &f.source, source.Whole)
	if err != nil {
		return nil, err
	}
	stderr := cmd.ErrOrStderr()
	switch {
	case f.node == "":
		fmt.Fprintln(stderr, "portolan: note: without --node NAME there are no node ports, and no endpoint is local")
	case !l.pods.HasNode(f.node):
		fmt.Fprintf(
			stderr, "portolan: warning: there is no Node %q: its zone and addresses are not known\n", explain.Plain(f.node),
		)
	}
	return l.pods, nil
}

// printProxy prints a table in the format of the flags.
func (f *getFlags) printProxy(cmd *cobra.Command, t *proxyTable) error {
	out := cmd.OutOrStdout()
	switch f.format {
	case "json", "yaml":
		list := struct {
			Items []any `json:"items"`
		}{Items: []any{}}
		for _, r := range t.rows {
			list.Items = append(list.Items, r.json)
		}
		if f.format == "json" {
			return printJSON(out, list)
		}
		return printYAML(out, list)
	case "name":
		for _, r := range t.rows {
			if _, err := fmt.Fprintln(out, explain.Plain(r.id)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(t.rows) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "No resources found") // these are kubectl's words
		return nil
	}
	return printTable(out, t.text(f))
}

// text returns the header and the rows.
func (t *proxyTable) text(f *getFlags) (rows [][]string) {
	line := func(namespace, service string, cells, wide []string) {
		var row []string
		if f.all {
			row = append(row, namespace)
		}
		row = append(append(row, service), cells...)
		if f.format == "wide" {
			row = append(row, wide...)
		}
		rows = append(rows, row)
	}
	line("NAMESPACE", "SERVICE", t.columns, t.wide)
	for _, r := range t.rows {
		line(r.namespace, r.service, r.cells, r.wide)
	}
	return rows
}
