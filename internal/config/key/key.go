// Package key describes the keys of a configuration file: a Key holds what the checks,
// the documentation, the JSON schema and the chart need to know of one key. The wings
// declare their sections with it.
package key

import (
	"fmt"
	"slices"
	"strings"
)

// Key describes one key.
type Key struct {
	// Path is the key with its sections, such as dns.forward.routes.upstreams. An
	// item of a list of sections has no part of its own.
	Path string
	// Description is one or two sentences in Markdown.
	Description string
	// Values are the values that the key can have; nil where there is no such list.
	Values []string
	// Min and Max bound a number, a duration or a size, as the file writes them; ""
	// is no bound.
	Min, Max string
	// Restart are the conditions under any of which a change takes effect at the
	// next start; nil where a running process applies it.
	Restart []Condition
}

// Condition is when a change of a key needs a restart, in words.
type Condition string

// The conditions.
const (
	// Always holds for every process.
	Always Condition = "always"
	// OnNode holds for the agent on a node, whose zones depend on the key.
	OnNode Condition = "on the node agent"
	// WithAPI holds where objects come from the API server, whose watches depend on the
	// key.
	WithAPI Condition = "with the Kubernetes API"
	// WithSimulation holds where addresses are allocated from the ranges of the key.
	WithSimulation Condition = "with `simulate.enabled`"
)

// NeedsRestart reports whether a change needs a restart where the conditions hold
// for which holds is true.
func (k *Key) NeedsRestart(holds func(Condition) bool) bool {
	return slices.ContainsFunc(k.Restart, func(c Condition) bool { return c == Always || holds(c) })
}

// RestartText is Restart in words: "yes", "no", or when.
func (k *Key) RestartText() string {
	switch {
	case len(k.Restart) == 0:
		return "no"
	case slices.Contains(k.Restart, Always):
		return "yes"
	}
	var all []string
	for _, c := range k.Restart {
		all = append(all, string(c))
	}
	return strings.Join(all, ", or ")
}

// RangeText is the values that the key can have, in words; "" where any is good.
func (k *Key) RangeText() string {
	switch {
	case len(k.Values) > 0:
		return strings.Join(k.Values, ", ")
	case k.Min != "" && k.Max != "":
		return k.Min + " to " + k.Max
	case k.Min != "":
		return k.Min + " or more"
	case k.Max != "":
		return k.Max + " or less"
	}
	return ""
}

// Table is the keys of a file, in its order. A section's Key stands before those of
// its keys.
type Table []Key

// Find returns the key of a path.
func (t Table) Find(path string) (*Key, bool) {
	for i := range t {
		if t[i].Path == path {
			return &t[i], true
		}
	}
	return nil, false
}

// Children returns the keys of a section, without those of its sections; those at
// the root for "".
func (t Table) Children(section string) []*Key {
	var all []*Key
	for i := range t {
		if Section(t[i].Path) == section && t[i].Path != section {
			all = append(all, &t[i])
		}
	}
	return all
}

// IsSection reports whether there are keys in a path.
func (t Table) IsSection(path string) bool { return len(t.Children(path)) > 0 }

// Section is the path of the section that a key is in; "" at the root.
func Section(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return ""
}

// Name is the last part of a path.
func Name(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// Check reports a table that is not in order: a path twice, a key whose section is
// missing, or one without a description.
func (t Table) Check() error {
	seen := map[string]bool{"": true}
	for _, k := range t {
		switch {
		case seen[k.Path]:
			return fmt.Errorf("key %s is described twice", k.Path)
		case !seen[Section(k.Path)]:
			return fmt.Errorf("key %s comes before its section", k.Path)
		case k.Description == "":
			return fmt.Errorf("key %s has no description", k.Path)
		}
		seen[k.Path] = true
	}
	return nil
}
