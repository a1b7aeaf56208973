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

	"portolan.dev/portolan/internal/migrate"
)

type (
	// Translation is the result of translating a file.
	Translation = migrate.Translation
	// Note describes how a directive differs from its translation.
	Note = migrate.Note
	// NoteKind is the severity of a note.
	NoteKind = migrate.NoteKind
)

// The kinds of notes.
const (
	Missing = migrate.Missing
	Differs = migrate.Differs
	Done    = migrate.Done
)

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
