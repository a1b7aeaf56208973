package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/explain"
)

// derivedKind is a kind of get that is no object, but what is made of objects: by a node's service proxy, or
// by a gateway.
type derivedKind struct {
	name string
	// others are further names of it.
	others []string
	// head is the column of names, and of what they are the names.
	head, of string
	// view reads the cluster, and table returns the rows of all namespaces.
	view  derivedView
	table func(*getFlags, *podapp.Inspector) derivedTable
}

// derivedView is who makes derivedKinds: those of one are printed together.
type derivedView string

// The views.
const (
	proxyView   derivedView = "proxy"
	gatewayView derivedView = "gateway"
)

// readView reads the cluster for a view.
func (f *getFlags) readView(cmd *cobra.Command, v derivedView) (*podapp.Inspector, error) {
	if v == proxyView {
		return f.readProxy(cmd)
	}
	return f.readGateway(cmd)
}

// derivedKinds are all of them.
func derivedKinds() []derivedKind { return slices.Concat(proxyKinds, gatewayViews) }

// derivedNames are the names of derivedKinds that are no names of objects.
func derivedNames() (names []string) {
	for _, k := range derivedKinds() {
		names = append(names, k.name)
	}
	return names
}

// findDerived returns the derivedKind with a name, nil if there is none.
func findDerived(name string) *derivedKind {
	name = strings.ToLower(name)
	all := derivedKinds()
	i := slices.IndexFunc(all, func(k derivedKind) bool { return k.name == name || slices.Contains(k.others, name) })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// derivedChoice is a derivedKind and the names to print; none are all.
type derivedChoice struct {
	*derivedKind
	names []string
}

// parseDerived parses the arguments of get as parseChoices does. It returns nothing if they are for objects: a list in
// which each kind is one of objects is, unless each is a derivedKind as well.
func parseDerived(args []string) ([]derivedChoice, error) {
	if strings.Contains(args[0], "/") {
		return parseDerivedNames(args)
	}
	var choices []derivedChoice
	var object string // the first kind that is no derivedKind
	alone := ""       // the first derivedKind that is no kind of objects
	for kind := range strings.SplitSeq(args[0], ",") {
		of := findDerived(kind)
		if _, err := parseKind(kind); err != nil && of != nil && alone == "" {
			alone = of.name
		}
		switch {
		case of == nil && object == "":
			object = kind
		case of != nil && !slices.ContainsFunc(choices, func(c derivedChoice) bool { return c.name == of.name }):
			choices = append(choices, derivedChoice{derivedKind: of, names: args[1:]})
		}
	}
	switch {
	case object != "" && alone == "":
		return nil, nil
	case object != "":
		return nil, fmt.Errorf("%s are not printed in one list with %s, which are objects", alone, object)
	}
	for _, c := range choices {
		if c.view != choices[0].view {
			return nil, fmt.Errorf("%s and %s are not printed in one list", choices[0].name, c.name)
		}
	}
	return choices, nil
}

// parseDerivedNames parses KIND/NAME in every argument.
func parseDerivedNames(args []string) (choices []derivedChoice, err error) {
	for i, arg := range args {
		kind, name, _ := strings.Cut(arg, "/")
		of := findDerived(kind)
		switch {
		case of == nil && i == 0:
			return nil, nil
		case name == "":
			return nil, fmt.Errorf("%q is not KIND/NAME, unlike the first argument", arg)
		case of == nil || len(choices) > 0 && of.view != choices[0].view:
			return nil, fmt.Errorf("%q is not printed in one list with %s", arg, choices[0].name)
		}
		at := slices.IndexFunc(choices, func(c derivedChoice) bool { return c.name == of.name })
		if at < 0 {
			at, choices = len(choices), append(choices, derivedChoice{derivedKind: of})
		}
		choices[at].names = append(choices[at].names, name)
	}
	return choices, nil
}

// derivedRow is a row as it is printed.
type derivedRow struct {
	namespace, name string
	id              string   // for -o name
	cells, wide     []string // after namespace and name; those of -o wide
	json            any
}

// derivedTable has the columns of a kind.
type derivedTable struct {
	head          string // the column of names
	columns, wide []string
	rows          []derivedRow
}

// orNone returns what kubectl prints for an empty cell.
func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

// runDerived prints the rows of derivedKinds of one view.
func (f *getFlags) runDerived(cmd *cobra.Command, choices []derivedChoice) error {
	first := choices[0]
	switch {
	case f.format != "" && !slices.Contains(getFormats, f.format):
		return fmt.Errorf("output format %q is not name, wide, yaml or json", f.format)
	case f.selector != "":
		return fmt.Errorf("--selector is not for %s; name %s instead", first.name, first.of)
	case f.all && len(first.names) > 0:
		return errors.New("NAME and --all-namespaces exclude each other")
	case f.namespace == "" && !f.all:
		return errors.New("--namespace is empty; use -A for all namespaces")
	}
	pods, err := f.readView(cmd, first.view)
	if err != nil {
		return err
	}
	absent := false
	var tables []derivedTable
	for _, c := range choices {
		t := c.table(f, pods)
		t.head = c.head
		t.rows = slices.DeleteFunc(t.rows, func(r derivedRow) bool {
			return !f.all && r.namespace != f.namespace || len(c.names) > 0 && !slices.Contains(c.names, r.name)
		})
		for _, name := range c.names {
			if !slices.ContainsFunc(t.rows, func(r derivedRow) bool { return r.name == name }) {
				absent = true
				fmt.Fprintf(cmd.ErrOrStderr(), "portolan: %s\n", c.absent(name, f.namespace))
			}
		}
		tables = append(tables, t)
	}
	if err := f.printDerived(cmd, tables); err != nil || !absent {
		return err
	}
	return errNegative
}

// absent says that there is no row with a name.
func (k *derivedKind) absent(name, namespace string) string {
	if k.of == "Services" {
		return fmt.Sprintf("Service %q has no %s in the namespace %s", name, k.name, namespace)
	}
	return fmt.Sprintf("%s %q not found in the namespace %s", k.name, name, namespace)
}

// printDerived prints tables in the format of the flags.
func (f *getFlags) printDerived(cmd *cobra.Command, tables []derivedTable) error {
	out := cmd.OutOrStdout()
	var rows []derivedRow
	for _, t := range tables {
		rows = append(rows, t.rows...)
	}
	switch f.format {
	case "json", "yaml":
		list := struct {
			Items []any `json:"items"`
		}{Items: []any{}}
		for _, r := range rows {
			list.Items = append(list.Items, r.json)
		}
		if f.format == "json" {
			return printJSON(out, list)
		}
		return printYAML(out, list)
	case "name":
		for _, r := range rows {
			if _, err := fmt.Fprintln(out, explain.Plain(r.id)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(rows) == 0 {
		f.printNone(cmd.ErrOrStderr(), false)
		return nil
	}
	return f.printDerivedTables(out, tables)
}

// printDerivedTables prints the tables that have rows. With several tables, names are prefixed with their kind.
func (f *getFlags) printDerivedTables(out io.Writer, tables []derivedTable) error {
	printed := false
	for _, t := range tables {
		if len(t.rows) == 0 {
			continue
		}
		if printed {
			fmt.Fprintln(out)
		}
		printed = true
		for i := range t.rows {
			if r := &t.rows[i]; len(tables) > 1 {
				kind, _, _ := strings.Cut(r.id, "/")
				r.name = kind + "/" + r.name
			}
		}
		if err := printTable(out, t.text(f)); err != nil {
			return err
		}
	}
	return nil
}

// text returns the header and the rows.
func (t *derivedTable) text(f *getFlags) (rows [][]string) {
	line := func(namespace, name string, cells, wide []string) {
		var row []string
		if f.all {
			row = append(row, namespace)
		}
		row = append(append(row, name), cells...)
		if f.format == "wide" {
			row = append(row, wide...)
		}
		rows = append(rows, row)
	}
	line("NAMESPACE", t.head, t.columns, t.wide)
	for _, r := range t.rows {
		line(r.namespace, r.name, r.cells, r.wide)
	}
	return rows
}
