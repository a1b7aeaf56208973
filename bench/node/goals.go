package node

import (
	"fmt"
	"strings"

	"portolan.dev/portolan/bench/rig"
)

// lossGoal is the limit for the ratio of lookups with packet loss to those without.
var lossGoal = rig.AtMost(1.2)

// writeGoals writes the results that have a goal, for names of the cluster.
func (b *bench) writeGoals(s *strings.Builder, r *results) {
	rows := b.waysOf(replica)
	if len(rows) == 0 {
		return
	}
	head(s, "ratio", "goal", "")
	for _, w := range rows {
		for _, libc := range libcs {
			for i, of := range []func(latency) float64{p50, p99} {
				name := []string{"p50", "p99"}[i]
				key := latencyKey{w.title, libc, losses[len(losses)-1], false}
				if spread, ok := r.besideNoLoss(key, of); ok {
					line(s, fmt.Sprintf("%s, %s: %s with 5%% lost beside none", w.title, libc, name), rig.RatioCell(spread),
						lossGoal.String(), rig.Met(lossGoal.Met(spread.Median)))
				}
			}
		}
	}
}
