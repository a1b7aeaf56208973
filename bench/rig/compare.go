package rig

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Limit is the lowest or the highest allowed value of a ratio.
type Limit struct {
	ratio   float64
	atLeast bool
}

// AtMost returns an upper limit.
func AtMost(ratio float64) Limit { return Limit{ratio: ratio} }

// AtLeast returns a lower limit.
func AtLeast(ratio float64) Limit { return Limit{ratio: ratio, atLeast: true} }

// Met reports whether a ratio is within the limit.
func (l Limit) Met(ratio float64) bool {
	if l.atLeast {
		return ratio >= l.ratio
	}
	return ratio <= l.ratio
}

// String returns the limit, with ratios below one as fractions.
func (l Limit) String() string {
	if l.atLeast {
		return "≥ " + shortRatio(l.ratio)
	}
	if parts := 1 / l.ratio; parts > 1 && parts == math.Trunc(parts) {
		return fmt.Sprintf("≤ 1/%.0f", parts)
	}
	return "≤ " + shortRatio(l.ratio)
}

// RatioCell returns a ratio with two decimals near 1.
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

// OverAll returns the spread of a figure over the samples that have one; ok is false if
// none has.
func OverAll[S any](samples []S, of func(S) (number float64, ok bool)) (spread Spread, ok bool) {
	var numbers []float64
	for _, s := range samples {
		if n, ok := of(s); ok {
			numbers = append(numbers, n)
		}
	}
	return overSome(numbers)
}

// Ratio returns the spread, over the rounds, of one's figure divided by the other's in
// the same round, when the machine was in the same state; ok is false if no round has
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

// SpreadCell returns the spread of a figure, or "" if no sample has one.
func SpreadCell[S any](samples []S, of func(S) (number float64, ok bool)) string {
	spread, ok := OverAll(samples, of)
	if !ok {
		return ""
	}
	return spread.String()
}

// MedianCell returns the median of a figure, or "" if no sample has one.
func MedianCell[S any](samples []S, of func(S) (number float64, ok bool)) string {
	spread, ok := OverAll(samples, of)
	if !ok {
		return ""
	}
	return Short(spread.Median)
}

// MostCell returns the maximum of a figure that is an integer and ideally 0, or "" if
// no sample has one.
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

// Choose returns the names in a comma-separated list, or all if the list is empty.
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

// Turned returns all in the order for a round. Each round starts with the next element,
// and every second round is reversed.
func Turned[T any](all []T, round int) []T {
	n := round % len(all)
	order := slices.Concat(all[n:], all[:n])
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}
