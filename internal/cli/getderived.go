package cli

import (
	"errors"
	"fmt"
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
	// read reads the cluster, and table returns the rows of all namespaces.
	read  func(*getFlags, *cobra.Command) (*podapp.Inspector, error)
	table func(*getFlags, *podapp.Inspector) derivedTable
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

// parseDerived parses the arguments of get, and reports whether they name a derivedKind.
func parseDerived(args []string) (c derivedChoice, ok bool, err error) {
	kind, name, slash := strings.Cut(args[0], "/")
	if strings.Contains(kind, ",") {
		for part := range strings.SplitSeq(kind, ",") {
			if _, noObject := parseKind(part); noObject != nil && findDerived(part) != nil {
				return c, true, fmt.Errorf("%s are printed alone: name no other kind", findDerived(part).name)
			}
		}
		return c, false, nil
	}
	if c.derivedKind = findDerived(kind); c.derivedKind == nil {
		return c, false, nil
	}
	if !slash {
		c.names = args[1:]
		return c, true, nil
	}
	c.names = []string{name}
	for _, arg := range args[1:] {
		other, name, _ := strings.Cut(arg, "/")
		if of := findDerived(other); of == nil || of.name != c.name || name == "" {
			return c, true, fmt.Errorf("%q is not %s/%s, unlike the first argument", arg, c.name, c.head)
		}
		c.names = append(c.names, name)
	}
	return c, true, nil
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

// runDerived prints the rows of a derivedKind.
func (f *getFlags) runDerived(cmd *cobra.Command, c derivedChoice) error {
	switch {
	case f.format != "" && !slices.Contains(getFormats, f.format):
		return fmt.Errorf("output format %q is not name, wide, yaml or json", f.format)
	case f.selector != "":
		return fmt.Errorf("--selector is not for %s; name %s instead", c.name, c.of)
	case f.all && len(c.names) > 0:
		return errors.New("NAME and --all-namespaces exclude each other")
	case f.namespace == "" && !f.all:
		return errors.New("--namespace is empty; use -A for all namespaces")
	}
	pods, err := c.read(f, cmd)
	if err != nil {
		return err
	}
	t := c.table(f, pods)
	t.rows = slices.DeleteFunc(t.rows, func(r derivedRow) bool {
		return !f.all && r.namespace != f.namespace || len(c.names) > 0 && !slices.Contains(c.names, r.name)
	})
	absent := false
	for _, name := range c.names {
		if !slices.ContainsFunc(t.rows, func(r derivedRow) bool { return r.name == name }) {
			absent = true
			fmt.Fprintf(cmd.ErrOrStderr(), "portolan: %s\n", c.absent(name, f.namespace))
		}
	}
	if err := f.printDerived(cmd, &t, c.head); err != nil || !absent {
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

// printDerived prints a table in the format of the flags.
func (f *getFlags) printDerived(cmd *cobra.Command, t *derivedTable, head string) error {
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
		f.printNone(cmd.ErrOrStderr(), false)
		return nil
	}
	return printTable(out, t.text(f, head))
}

// text returns the header and the rows.
func (t *derivedTable) text(f *getFlags, head string) (rows [][]string) {
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
	line("NAMESPACE", head, t.columns, t.wide)
	for _, r := range t.rows {
		line(r.namespace, r.name, r.cells, r.wide)
	}
	return rows
}
