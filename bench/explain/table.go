package explain

import (
	"fmt"
	"strings"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// The goals: the time of a command, and of an explanation on a running process.
const (
	commandGoal = 1500 * time.Millisecond
	runningGoal = 100 * time.Millisecond
)

func (s *settings) markdown(version string, results []*result) string {
	var b strings.Builder
	fmt.Fprintf(
		&b,
		"Portolan at %s, %d rounds, medians (least to most). %d Services with a Pod each, %d policies, %d routes, "+
			"100 nodes. %s.\n\n",
		version,
		s.rounds,
		s.services,
		s.services/10,
		s.services/10,
		rig.DescribeMachine(),
	)
	b.WriteString("| | ms | processor time, ms | memory, MiB | goal | |\n|---|---|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| **%s** | | | | | |\n", r.name)
		for k := range kinds {
			row(&b, fmt.Sprintf("`portolan explain`, %s", k), r.commands[k], commandGoal)
		}
		row(&b, fmt.Sprintf("`portolan test`, %d assertions", s.assertions), r.test, 0)
		for k := range kinds {
			row(&b, fmt.Sprintf("running process, %s", k), r.warm[k], runningGoal)
			row(&b, fmt.Sprintf("running process, %s, after a change", k), r.changed[k], runningGoal)
		}
		fmt.Fprintf(&b, "| running process: the model, and what explanations hold | | | %s + %s | | |\n",
			rig.Short(r.model), rig.Short(max(0, r.held)))
	}
	return b.String()
}

// row writes the costs of one thing; a goal of 0 is none.
func row(b *strings.Builder, what string, costs []cost, goal time.Duration) {
	wall := over(costs, func(c cost) float64 { return milliseconds(c.wall) })
	cpu, memory, most, met := "", "", "", ""
	if costs[0].cpu > 0 {
		cpu = over(costs, func(c cost) float64 { return milliseconds(c.cpu) }).String()
	}
	if costs[0].memory > 0 {
		memory = over(costs, func(c cost) float64 { return c.memory }).String()
	}
	if goal > 0 {
		most, met = fmt.Sprintf("≤ %d ms", goal.Milliseconds()), rig.Met(wall.Median <= milliseconds(goal))
	}
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", what, wall, cpu, memory, most, met)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func over(costs []cost, of func(cost) float64) rig.Spread {
	var numbers []float64
	for _, c := range costs {
		numbers = append(numbers, of(c))
	}
	return rig.Over(numbers)
}
