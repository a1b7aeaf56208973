package rig

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Limit is the least or the most that a ratio may be.
type Limit struct {
	ratio   float64
	atLeast bool
}

// AtMost is a limit from above.
func AtMost(ratio float64) Limit { return Limit{ratio: ratio} }

// AtLeast is one from below.
func AtLeast(ratio float64) Limit { return Limit{ratio: ratio, atLeast: true} }

// Met reports whether a ratio is within the limit.
func (l Limit) Met(ratio float64) bool {
	if l.atLeast {
		return ratio >= l.ratio
	}
	return ratio <= l.ratio
}

// String writes parts of one as fractions.
func (l Limit) String() string {
	if l.atLeast {
		return "≥ " + shortRatio(l.ratio)
	}
	if parts := 1 / l.ratio; parts > 1 && parts == math.Trunc(parts) {
		return fmt.Sprintf("≤ 1/%.0f", parts)
	}
	return "≤ " + shortRatio(l.ratio)
}

// RatioCell writes two digits behind the point, for what is near 1.
func RatioCell(s Spread) string {
	return fmt.Sprintf("%s (%s to %s)", shortRatio(s.Median), shortRatio(s.Least), shortRatio(s.Most))
}

func shortRatio(ratio float64) string {
	const many = 20
	if ratio >= many {
		return Short(ratio)
	}
	return fmt.Sprintf("%.2f", ratio)
}

// OverAll is the spread of a figure over the samples that have one; ok is false
// when none has.
func OverAll[S any](samples []S, of func(S) (number float64, ok bool)) (spread Spread, ok bool) {
	var numbers []float64
	for _, s := range samples {
		if n, ok := of(s); ok {
			numbers = append(numbers, n)
		}
	}
	return overSome(numbers)
}

// Ratio is the spread over the rounds of one's figure divided by the other's in
// the same round, when the machine was the same; ok is false when no round has
// both.
func Ratio[S any](one, other []S, of func(S) (number float64, ok bool)) (spread Spread, ok bool) {
	var numbers []float64
	for i := range min(len(one), len(other)) {
		a, ours := of(one[i])
		b, theirs := of(other[i])
		if ours && theirs && b > 0 {
			numbers = append(numbers, a/b)
		}
	}
	return overSome(numbers)
}

// SpreadCell writes the spread of a figure; nothing when no sample has one.
func SpreadCell[S any](samples []S, of func(S) (number float64, ok bool)) string {
	spread, ok := OverAll(samples, of)
	if !ok {
		return ""
	}
	return spread.String()
}

// MedianCell writes its median.
func MedianCell[S any](samples []S, of func(S) (number float64, ok bool)) string {
	spread, ok := OverAll(samples, of)
	if !ok {
		return ""
	}
	return Short(spread.Median)
}

// MostCell writes the most, for what is whole, and best 0.
func MostCell[S any](samples []S, of func(S) (number float64, ok bool)) string {
	spread, ok := OverAll(samples, of)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%.0f", spread.Most)
}

func overSome(numbers []float64) (spread Spread, ok bool) {
	if len(numbers) == 0 {
		return Spread{}, false
	}
	return Over(numbers), true
}

// Choose picks names from a list with commas; all when that is empty.
func Choose(from []string, list string) ([]string, error) {
	if list == "" {
		return from, nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.Contains(from, name) {
			return nil, fmt.Errorf("no %q; there are %s", name, strings.Join(from, ", "))
		}
	}
	return names, nil
}

// Turned begins with the next one each round, and goes back and forth.
func Turned[T any](all []T, round int) []T {
	n := round % len(all)
	order := slices.Concat(all[n:], all[:n])
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}
