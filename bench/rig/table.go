package rig

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Spread is the median of numbers, with their minimum and maximum.
type Spread struct{ Median, Least, Most float64 }

// Over returns the spread of one or more numbers.
func Over(numbers []float64) Spread {
	sorted := slices.Sorted(slices.Values(numbers))
	return Spread{sorted[len(sorted)/2], sorted[0], sorted[len(sorted)-1]}
}

// String returns the median, then the minimum and the maximum.
func (s Spread) String() string {
	return fmt.Sprintf("%s (%s to %s)", Short(s.Median), Short(s.Least), Short(s.Most))
}

// Short returns a number with about three digits.
func Short(f float64) string {
	switch {
	case f < 1:
		return fmt.Sprintf("%.2f", f)
	case f < 100:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.0f", f)
}

// Met returns the text in a table for whether a goal was met.
func Met(met bool) string {
	if met {
		return "met"
	}
	return "missed"
}

// Report prints text and, if file is not "", also writes it there, see WriteBetween.
func Report(text, file, part string) error {
	fmt.Print(text)
	if file == "" {
		return nil
	}
	return WriteBetween(file, part, text)
}

// WriteBetween writes text into a Markdown file, between the comments that mark the
// part of that name.
func WriteBetween(file, part, text string) error {
	begin, end := fmt.Sprintf("<!-- %s: begin -->\n", part), fmt.Sprintf("<!-- %s: end -->\n", part)
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s: the marks %q and %q are not both there", file, begin, end)
	}
	return os.WriteFile(file, []byte(before+begin+text+end+after), 0o644)
}
