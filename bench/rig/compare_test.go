package rig_test

import (
	"slices"
	"testing"

	"portolan.dev/portolan/bench/rig"
)

func TestChoose(t *testing.T) {
	from := []string{"a", "b", "c"}
	for list, want := range map[string][]string{"": from, "c,a": {"c", "a"}, "b,d": nil} {
		got, err := rig.Choose(from, list)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("Choose(%q) = %v, %v; want %v", list, got, err, want)
		}
	}
}

func TestEachIsFirstInTurn(t *testing.T) {
	all := []string{"a", "b", "c"}
	first := make(map[string]int)
	for round := range 6 {
		order := rig.Turned(all, round)
		if len(order) != len(all) {
			t.Fatalf("round %d has %d contenders", round, len(order))
		}
		first[order[0]]++
	}
	for _, name := range all {
		if first[name] == 0 {
			t.Errorf("%s is never first: %v", name, first)
		}
	}
}

func TestLimitsAreWrittenAsTheyWereSet(t *testing.T) {
	for want, l := range map[string]rig.Limit{
		"≤ 1/2": rig.AtMost(1. / 2), "≤ 1/3": rig.AtMost(1. / 3), "≤ 1/6": rig.AtMost(1. / 6), "≤ 1/8": rig.AtMost(1. / 8),
		"≤ 0.90": rig.AtMost(.9), "≤ 1.00": rig.AtMost(1), "≥ 5.00": rig.AtLeast(5),
	} {
		if got := l.String(); got != want {
			t.Errorf("a limit is written %q, want %q", got, want)
		}
	}
}

// positive is a figure that is missing for numbers that are not positive.
func positive(n float64) (number float64, ok bool) { return n, n > 0 }

// TestRatio checks that figures of the same round are compared, so that what slows down
// both has no effect.
func TestRatio(t *testing.T) {
	ours, theirs := []float64{3, 30, 2}, []float64{6, 60, 2}
	spread, ok := rig.Ratio(ours, theirs, positive)
	if !ok || spread.Median != .5 || spread.Least != .5 || spread.Most != 1 {
		t.Errorf("Ratio = %v, %t", spread, ok)
	}
	ours[1] = 0
	if spread, ok := rig.Ratio(ours[:2], theirs[:2], positive); !ok || spread.Least != .5 || spread.Most != .5 {
		t.Errorf("of the one round that has both, Ratio = %v, %t", spread, ok)
	}
	if _, ok := rig.Ratio(nil, theirs, positive); ok {
		t.Error("nothing has a ratio")
	}
}
