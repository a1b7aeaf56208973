package path

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/pod/explain"
)

// WriteText prints the causes with their cures, the layers in a line each, and then each layer in full.
func (e *Explanation) WriteText(w io.Writer, style explain.Style) error {
	if e.Connection == nil && e.Request == nil {
		return e.writeName(w, style)
	}
	var b strings.Builder
	e.writeDifferences(&b)
	b.WriteString(e.Target)
	if e.From != "" {
		b.WriteString(" from " + e.From)
	}
	b.WriteString("\n" + e.Outcome + "\n")
	for _, state := range []State{Broken, NotKnown} {
		for i := range e.Steps {
			if s := &e.Steps[i]; s.State == state {
				if state == Broken && s.Assumed && len(s.causes()) > 0 {
					b.WriteString("  once that is mended:\n")
				}
				s.writeCauses(&b)
			}
		}
	}
	for i := range e.Steps {
		if s := &e.Steps[i]; s.State != OK { // those of layers that are OK are told with them
			s.write(&b, s.notes(), "note")
		}
	}
	b.WriteString("\n")
	for i := range e.Steps {
		s := &e.Steps[i]
		state := string(s.State)
		if s.Assumed {
			state += "*"
		}
		fmt.Fprintf(&b, "  %-8s %-10s %s\n", s.Layer, state, s.Says)
	}
	if slices.ContainsFunc(e.Steps, func(s Step) bool { return s.Assumed }) {
		fmt.Fprintf(&b, "  * judged as if what comes before it were mended\n")
	}
	e.writeLive(&b)
	if err := explain.WritePlain(w, b.String()); err != nil {
		return err
	}
	return e.writeLayers(w, style)
}

// writeName prints a lookup, compared with that of packets.
func (e *Explanation) writeName(w io.Writer, style explain.Style) error {
	var before, after strings.Builder
	e.writeDifferences(&before)
	e.writeLive(&after)
	return errors.Join(
		explain.WritePlain(w, before.String()), e.Name.WriteText(w, style), explain.WritePlain(w, after.String()),
	)
}

// writeCauses prints why a layer that is not OK is not.
func (s *Step) writeCauses(b *strings.Builder) {
	causes := s.causes()
	if len(causes) == 0 && !s.Assumed {
		fmt.Fprintf(b, "  %s: %s\n", s.Layer, s.Says)
	}
	s.write(b, causes, string(s.Layer))
}

func (s *Step) write(b *strings.Builder, all []explain.Diagnosis, of string) {
	for _, d := range all {
		fmt.Fprintf(b, "  %s: %s\n    cure: %s\n", of, d.Why, d.Cure)
	}
}

// causes returns the diagnoses without notes, which say what is wasteful.
func (s *Step) causes() []explain.Diagnosis {
	return slices.DeleteFunc(slices.Clone(s.Diagnoses), explain.Diagnosis.IsNote)
}

func (s *Step) notes() []explain.Diagnosis {
	return slices.DeleteFunc(slices.Clone(s.Diagnoses), func(d explain.Diagnosis) bool { return !d.IsNote() })
}

// writeLayers prints each layer in full.
func (e *Explanation) writeLayers(w io.Writer, style explain.Style) error {
	var parts []func() error
	if e.Name != nil {
		write := e.Name.WriteDetails
		if e.Name.Found() {
			write = e.Name.WriteText // what is wasteful is told, too
		}
		parts = append(parts, func() error { return write(w, style) })
	}
	if e.Connection != nil && len(e.Connection.Attempts) > 0 {
		parts = append(parts, func() error { return e.Connection.WriteDetails(w) })
	}
	if e.Request != nil {
		parts = append(parts, func() error { return e.Request.WriteDetails(w) })
	}
	for _, part := range parts {
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}
