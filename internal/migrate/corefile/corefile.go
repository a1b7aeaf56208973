// Package corefile moves settings in from the servers that clusters have now: it
// turns a Corefile, which CoreDNS reads, and the ConfigMap of kube-dns into a
// configuration of ours, with a note on all that is not the same.
//
// It follows corefile(5) and the documentation of the plugins of CoreDNS 1.15.0,
// with the parser that CoreDNS itself uses, and "Customizing DNS Service" of the
// Kubernetes documentation for kube-dns.
package corefile

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"portolan.dev/portolan/internal/config"
)

// Translation is what became of a file.
type Translation struct {
	Config config.Config
	// Notes say what is not the same, in the order of the file.
	Notes []Note
	// Origins are where settings came from, as FILE:LINE, by key; see
	// config.Config.Text.
	Origins map[string]string
}

// Complete tells whether everything has a counterpart.
func (t *Translation) Complete() bool {
	return !slices.ContainsFunc(t.Notes, func(n Note) bool { return n.Kind == Missing })
}

// Note says what is the matter with a directive.
type Note struct {
	File string `json:"file"`
	Line int    `json:"line"` // from 1
	// Directive is the plugin and, where the note is about one, its option; or
	// the name of a server block.
	Directive string   `json:"directive"`
	Kind      NoteKind `json:"kind"`
	Text      string   `json:"text"`
}

// String is the note as one line, as compilers write theirs.
func (n Note) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", n.File, n.Line, n.Directive, n.Text)
}

// Kind is how much a note matters. The zero value matters most.
type NoteKind uint8

// The kinds.
const (
	Missing NoteKind = iota // there is no counterpart
	Differs                 // there is one, which is not quite the same
	Done                    // it is done anyway
)

var kindNames = [...]string{Missing: "missing", Differs: "differs", Done: "done"}

// String is the kind in a word.
func (k NoteKind) String() string { return kindNames[k] }

// MarshalText writes the kind as a word.
func (k NoteKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Options are what a Corefile is read with. The zero value is as CoreDNS is
// called without flags.
type Options struct {
	// Port is that of server blocks which name none; 53 when empty.
	Port string
	// IPv4Only leaves out IPv6's address of all interfaces, for hosts that have
	// no IPv6.
	IPv4Only bool
	// InterfaceAddrs gives the addresses of a network interface; nil where the
	// host that shall serve is not known.
	InterfaceAddrs func(name string) ([]netip.Addr, error)
}

// Parse translates a Corefile, whose path is what its imports are relative to. It
// fails where CoreDNS would not begin; its errors name the file and the line.
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

// errAt is an error on a line.
type errAt struct {
	what string // the file is: corefile, config map
	file string
	line int
	err  error
}

func (e *errAt) Error() string { return fmt.Sprintf("%s %s:%d: %s", e.what, e.file, e.line, e.err) }
func (e *errAt) Unwrap() error { return e.err }

// Text is the configuration of a translation as a file: what differs from the
// defaults, with where it came from.
func (t *Translation) Text() ([]byte, error) { return t.Config.Text(t.Origins) }

// sortNotes puts notes in the order of lines, those of the file itself first.
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

// validate checks what was translated. Certificates of upstreams are not read:
// they may be on another host.
func (t *translator) validate() error {
	checked := t.Config
	checked.DNS.Forward.Routes = slices.Clone(checked.DNS.Forward.Routes)
	for i := range checked.DNS.Forward.Routes {
		checked.DNS.Forward.Routes[i].CA = ""
	}
	if err := checked.Validate(); err != nil {
		return fmt.Errorf("%s %s: what becomes of it can't be: %w", t.what, t.path, err)
	}
	return nil
}
