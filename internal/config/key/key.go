// Package key describes the keys of a configuration file. A Key holds what the checks,
// the documentation, the JSON schema and the chart need to know about one key. The
// packages settings use it to declare their sections.
package key

import (
	"fmt"
	"slices"
	"strings"
)

// Key describes one key.
type Key struct {
	// Path is the key with its sections, such as dns.forward.routes.upstreams. The
	// items of a list of sections have no separate part.
	Path string
	// Description is one or two sentences in Markdown.
	Description string
	// Values are the allowed values; nil if the key has no such list.
	Values []string
	// Min and Max are the bounds of a number, a duration or a size, as the file writes
	// them; "" is no bound.
	Min, Max string
	// Restart lists the conditions under which a change takes effect at the next start.
	// With nil, a running process applies it.
	Restart []Condition
}

// Condition describes in words when a change of a key needs a restart.
type Condition string

// The conditions.
const (
	// Always holds for every process.
	Always Condition = "always"
	// OnNode holds for the agent on a node, whose zones depend on the key.
	OnNode Condition = "on the node agent"
	// WithAPI holds if objects come from the API server, whose watches depend on the
	// key.
	WithAPI Condition = "with the Kubernetes API"
	// WithSimulation holds if addresses are allocated from the ranges of the key.
	WithSimulation Condition = "with `simulate.enabled`"
)

// NeedsRestart reports whether a change needs a restart. holds reports whether a
// condition applies.
func (k *Key) NeedsRestart(holds func(Condition) bool) bool {
	return slices.ContainsFunc(k.Restart, func(c Condition) bool { return c == Always || holds(c) })
}

// RestartText returns Restart in words: "yes", "no", or the conditions.
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

// RangeText returns the allowed values in words; "" if all are allowed.
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

// Table has the keys of a file in order. The Key of a section precedes those of its
// keys.
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

// Children returns the keys of a section, or those at the root for "", without the keys
// of subsections.
func (t Table) Children(section string) []*Key {
	var all []*Key
	for i := range t {
		if Section(t[i].Path) == section && t[i].Path != section {
			all = append(all, &t[i])
		}
	}
	return all
}

// IsSection reports whether a path has keys below it.
func (t Table) IsSection(path string) bool { return len(t.Children(path)) > 0 }

// Section returns the path of the section that contains a key; "" at the root.
func Section(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return ""
}

// Name returns the last part of a path.
func Name(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// Check returns an error if a path occurs twice, the section of a key is missing, or a
// key has no description.
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
