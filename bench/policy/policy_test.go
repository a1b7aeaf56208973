package policy

import (
	"strings"
	"testing"

	"portolan.dev/portolan/bench/rig"
)

// TestGoalsAreOfMedians has three rounds, of which one is far off.
func TestGoalsAreOfMedians(t *testing.T) {
	t.Parallel()
	s := &section{part: part{title: "Part"}}
	for _, number := range []float64{4, 90, 2} {
		s.rounds = append(s.rounds, []figure{{"good", number, 5}, {"bad", number, 3}, {"without", number, 0}})
	}
	b := &bench{settings: &settings{rounds: 3}, portolan: new(rig.Program)}
	text := b.markdown([]*section{s})
	for _, line := range []string{
		"| **Part** | | | |", "| good | 4 (2 to 90.0) | ≤ 5 | met |", "| bad | 4 (2 to 90.0) | ≤ 3 | missed |",
		"| without | 4 (2 to 90.0) |  |  |",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the table lacks %q:\n%s", line, text)
		}
	}
}

func TestNoise(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		ratios []float64
		want   float64
	}{
		"the third quartile":        {[]float64{1.25, 1, 1.5, 1}, 1.5},
		"of slower batches as well": {[]float64{.5, .5, 1, 1, .5}, 2},
		"none":                      {[]float64{1, 1, 1, 1}, 1},
	} {
		if got := noise(test.ratios); got != test.want {
			t.Errorf("%s: noise(%v) = %v, want %v", claim, test.ratios, got, test.want)
		}
	}
}

// TestChangesChangeOneLabel compares each Pod with the one that it replaces.
func TestChangesChangeOneLabel(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	byName := make(map[string]map[string]string)
	for i := range pods {
		p := large.newPod(i)
		byName[p.Name] = p.Labels
	}
	for i := range pods {
		p, changed := large.relabeled(i), 0
		for label, value := range p.Labels {
			if byName[p.Name][label] != value {
				changed++
			}
		}
		if changed != 1 || seen[p.Name] {
			t.Fatalf("relabeled(%d) is Pod %s with %d other labels, and was there before: %t", i, p.Name, changed, seen[p.Name])
		}
		seen[p.Name] = true
	}
}
