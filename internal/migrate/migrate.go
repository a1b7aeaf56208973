// Package migrate is what translations of other programs' settings have in common: the
// configuration that they become, and notes on what differs.
package migrate

import (
	"fmt"
	"slices"

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

// Text returns the configuration as a file: the settings that differ from the defaults,
// with their origins.
func (t *Translation) Text() ([]byte, error) { return t.Config.Text(t.Origins) }

// Note describes how a directive differs from its translation.
type Note struct {
	File string `json:"file"`
	Line int    `json:"line"` // from 1
	// Directive is what is translated: a plugin of CoreDNS with its option if the note is
	// about one, the name of a server block, or a field of kube-proxy's configuration.
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
