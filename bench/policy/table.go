package policy

import (
	"fmt"
	"strings"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// figure is a number that a part measured.
type figure struct {
	what   string
	number float64
	most   float64 // the goal: the highest allowed number; 0 is none
}

// section has the figures of a part, which are the same ones in each round.
type section struct {
	part
	rounds [][]figure
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantiles returns the p50 and the p99 of times in ms, with the goals of each; 0 is none.
func quantiles(what string, times []time.Duration, p50, p99 float64) []figure {
	return []figure{
		{what + ", p50, ms", milliseconds(rig.Quantile(times, .5)), p50},
		{what + ", p99, ms", milliseconds(rig.Quantile(times, .99)), p99},
	}
}

// markdown returns the table.
func (b *bench) markdown(sections []*section) string {
	var s strings.Builder
	fmt.Fprintf(&s, "Portolan at %s, %d rounds, medians (least to most). %s;", b.portolan.Version, b.rounds, b.machine)
	if len(b.others) > 0 {
		o := rig.Over(b.others)
		fmt.Fprintf(&s, " processors in use by others before each round: %.0f%% (%.0f%% to %.0f%%).",
			100*o.Median, 100*o.Least, 100*o.Most)
	}
	s.WriteString("\n\n| | | goal | |\n|---|---|---|---|\n")
	for _, part := range sections {
		fmt.Fprintf(&s, "| **%s** | | | |\n", part.title)
		if len(part.rounds) > 0 {
			part.write(&s)
		}
	}
	return s.String()
}

func (p *section) write(s *strings.Builder) {
	for i, f := range p.rounds[0] {
		nth := func(of func(figure) float64) rig.Spread {
			numbers := make([]float64, len(p.rounds))
			for round := range p.rounds {
				numbers[round] = of(p.rounds[round][i])
			}
			return rig.Over(numbers)
		}
		number, most := nth(func(f figure) float64 { return f.number }), nth(func(f figure) float64 { return f.most })
		goal := " | "
		if most.Median != 0 {
			goal = fmt.Sprintf("≤ %s | %s", short(most.Median), rig.Met(number.Median <= most.Median))
		}
		fmt.Fprintf(s, "| %s | %s (%s to %s) | %s |\n",
			f.what, short(number.Median), short(number.Least), short(number.Most), goal)
	}
}

// short returns a number with three digits, also a small one.
func short(f float64) string {
	if f > -10 && f < 10 {
		return fmt.Sprintf("%.3g", f)
	}
	return rig.Short(f)
}
