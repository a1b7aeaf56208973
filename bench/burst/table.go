package burst

import (
	"fmt"
	"strings"
	"time"

	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
)

// figure is one number of a run.
type figure func(*load.Result) float64

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// rows are the lines of the table for each cluster.
var rows = []struct {
	what string
	of   figure
	goal float64 // highest allowed ratio of the burst's number to the quiet one; 0 is none
}{
	{"p50, ms", func(r *load.Result) float64 { return milliseconds(r.P50) }, 0},
	{"p99, ms", func(r *load.Result) float64 { return milliseconds(r.P99) }, 1.5},
	{"p99.9, ms", func(r *load.Result) float64 { return milliseconds(r.P999) }, 0},
	{"lost", func(r *load.Result) float64 { return float64(r.Lost) }, 0},
	{"processor time, part of one",
		func(r *load.Result) float64 { return r.ServerTime.Seconds() / r.Elapsed.Seconds() }, 0},
	{"processors in use by others, the API server among them", func(r *load.Result) float64 { return r.Others }, 0},
}

func (b *bench) markdown(results [][]*round) string {
	var text strings.Builder
	fmt.Fprintf(&text, "Portolan at %s, %d rounds, %d queries/s, medians (least to most). %s.\n\n", b.portolan.Version,
		b.rounds, b.rate, b.machine)
	text.WriteString("| | echo | quiet | in the burst | burst/quiet | goal | |\n|---|---|---|---|---|---|---|\n")
	for i, rounds := range results {
		fmt.Fprintf(&text, "| **%d Services, %s changes/s** | | | | | | |\n", cases[i].cluster.Services[synthetic.ClusterIP],
			over(rounds, func(r *round) float64 { return r.changes }))
		for _, row := range rows {
			echo := over(rounds, func(r *round) float64 { return row.of(r.echo) })
			quiet := over(rounds, func(r *round) float64 { return row.of(r.quiet) })
			burst := over(rounds, func(r *round) float64 { return row.of(r.burst) })
			ratio, goal, met := "", "", ""
			if row.goal > 0 {
				ratio = fmt.Sprintf("%.2f", burst.Median/quiet.Median)
				goal, met = fmt.Sprintf("≤ %.1f", row.goal), rig.Met(burst.Median <= row.goal*quiet.Median)
			}
			fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s | %s |\n", row.what, echo, quiet, burst, ratio, goal, met)
		}
	}
	return text.String()
}

func over(rounds []*round, of func(*round) float64) rig.Spread {
	var numbers []float64
	for _, r := range rounds {
		numbers = append(numbers, of(r))
	}
	return rig.Over(numbers)
}
