// Package corefile translates the configuration of other DNS servers: a Corefile of
// CoreDNS, and the ConfigMap of kube-dns. It notes every directive without an exact
// equivalent.
//
// It follows corefile(5) and the documentation of the plugins of CoreDNS 1.15.0, uses the
// parser of CoreDNS, and for kube-dns follows "Customizing DNS Service" of the Kubernetes
// documentation.
//
//	Corefile ─► parse: blocks, statements ─► translate: one function per plugin ─► Config
//	kube-dns ─► ParseKubeDNS: statements ──┘                                     └► Notes
package corefile

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"portolan.dev/portolan/internal/config"
)

// Translation is the result of translating a file.
type Translation struct {
	Config config.Config
	// Notes list the differences, in the order of the file.
	Notes []Note
	// Origins has the FILE:LINE from which a setting comes by its key, see
	// config.Config.Text.
	Origins map[string]string
}

// Complete reports whether every directive has an equivalent.
func (t *Translation) Complete() bool {
	return !slices.ContainsFunc(t.Notes, func(n Note) bool { return n.Kind == Missing })
}

// Note describes how a directive differs from its translation.
type Note struct {
	File string `json:"file"`
	Line int    `json:"line"` // from 1
	// Directive is the plugin, with its option if the note is about one, or the name of
	// a server block.
	Directive string   `json:"directive"`
	Kind      NoteKind `json:"kind"`
	Text      string   `json:"text"`
}

// String returns the note as one line in the form of compilers, with its kind.
func (n Note) String() string {
	return fmt.Sprintf("%s:%d: %s: %s: %s", n.File, n.Line, n.Kind, n.Directive, n.Text)
}

// NoteKind is the severity of a note. The zero value is the most severe one.
type NoteKind uint8

// The kinds.
const (
	Missing NoteKind = iota // no equivalent
	Differs                 // the equivalent behaves differently
	Done                    // always done, without a setting
)

var kindNames = [...]string{Missing: "missing", Differs: "differs", Done: "done"}

// String returns the kind as a word.
func (k NoteKind) String() string { return kindNames[k] }

// MarshalText returns the kind as a word.
func (k NoteKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Options has the flags of CoreDNS and the host's properties. The zero value is CoreDNS
// without flags.
type Options struct {
	// Port is the port of server blocks without one; "" is 53.
	Port string
	// IPv4Only omits the unspecified IPv6 address, for hosts without IPv6.
	IPv4Only bool
	// InterfaceAddrs returns the addresses of a network interface; nil if the host is not
	// known.
	InterfaceAddrs func(name string) ([]netip.Addr, error)
}

// Parse translates a Corefile. Its imports are relative to path. It returns an error where
// CoreDNS would not start, with the file and the line.
func Parse(path string, data []byte, o Options) (*Translation, error) {
	if _, err := strconv.ParseUint(cmp.Or(o.Port, "53"), 10, 16); err != nil {
		return nil, fmt.Errorf("corefile: %q is not a port", o.Port)
	}
	blocks, err := parse(path, data)
	if err != nil {
		return nil, err
	}
	t := newTranslator("corefile", path, o)
	t.Notes = emptyImports(path, data)
	t.translate(blocks)
	return t.finish()
}

// positionError is an error with its file and line.
type positionError struct {
	fileKind string // corefile or config map
	file     string
	line     int
	err      error
}

func (e *positionError) Error() string {
	return fmt.Sprintf("%s %s:%d: %s", e.fileKind, e.file, e.line, e.err)
}
func (e *positionError) Unwrap() error { return e.err }

// Text returns the configuration as a file: the settings that differ from the defaults,
// with their origins.
func (t *Translation) Text() ([]byte, error) { return t.Config.Text(t.Origins) }

// sortNotes sorts notes by file and line, with those of the main file first.
func sortNotes(path string, notes []Note) {
	slices.SortStableFunc(notes, func(a, b Note) int {
		if a.File != b.File && (a.File == path || b.File == path) {
			if a.File == path {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
}

// validate validates the configuration. It does not read the certificates of upstreams,
// which may be on another host.
func (t *translator) validate() error {
	checked := t.Config
	checked.DNS.Forward.Routes = slices.Clone(checked.DNS.Forward.Routes)
	for i := range checked.DNS.Forward.Routes {
		checked.DNS.Forward.Routes[i].CA = ""
	}
	if err := checked.Validate(); err != nil {
		return fmt.Errorf("%s %s: the translation is invalid: %w", t.fileKind, t.path, err)
	}
	return nil
}
