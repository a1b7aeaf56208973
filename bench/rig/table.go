package rig

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Spread is the median of some numbers, and between what they are.
type Spread struct{ Median, Least, Most float64 }

// Over is the spread of at least one number.
func Over(numbers []float64) Spread {
	sorted := slices.Sorted(slices.Values(numbers))
	return Spread{sorted[len(sorted)/2], sorted[0], sorted[len(sorted)-1]}
}

// String writes the median, then the least and the most.
func (s Spread) String() string {
	return fmt.Sprintf("%s (%s to %s)", Short(s.Median), Short(s.Least), Short(s.Most))
}

// Short writes three digits or so.
func Short(f float64) string {
	switch {
	case f < 1:
		return fmt.Sprintf("%.2f", f)
	case f < 100:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.0f", f)
}

// Met says in a table whether a goal was met.
func Met(met bool) string {
	if met {
		return "met"
	}
	return "missed"
}

// Report prints text and, with a file, puts it there too, see WriteBetween.
func Report(text, file, part string) error {
	fmt.Print(text)
	if file == "" {
		return nil
	}
	return WriteBetween(file, part, text)
}

// WriteBetween puts text into a Markdown file, between the comments that say
// where the part of that name begins and ends.
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
