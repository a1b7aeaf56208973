package node

import (
	"context"
	"time"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/test/netns/nodes"
)

// memoryRow is the cost of the program on a node: its resident memory in MiB when it is
// ready and after the first Pod queried every Service, and its processor time per query
// in microseconds, for new and for known names.
type memoryRow struct {
	way                  string
	ready, after         float64
	costOfNew, costOfOld float64
}

// large is the cluster of this part.
var large = &synthetic.Cluster{Namespaces: 10, Services: [synthetic.Kinds]int{10_000, 100}, Pods: 100}

// costPause is the pause between queries, for 2,000 per second.
const costPause = 500 * time.Microsecond

func (b *bench) measureMemory(ctx context.Context, r *results, _ int) error {
	small := b.cluster
	b.cluster = large
	if err := b.serveCluster(large); err != nil {
		return err
	}
	for _, w := range b.ways {
		if w.agent == nil {
			continue
		}
		err := b.on(ctx, w, func(ctx context.Context, s *stage) error {
			row, err := s.need(ctx)
			r.memory = append(r.memory, row)
			return err
		})
		if err != nil {
			return err
		}
	}
	b.cluster = small
	return b.serveCluster(small)
}

func (s *stage) need(ctx context.Context) (row memoryRow, err error) {
	row.way = s.title
	pid := s.agents[0].PID()
	if err := pause(ctx, calm); err != nil {
		return row, err
	}
	if row.ready, _, err = rig.Memory(pid); err != nil {
		return row, err
	}
	var names []nodes.Want
	for i := range s.cluster.Services[synthetic.ClusterIP] {
		names = append(names, s.whole(i))
	}
	if row.costOfNew, err = s.cost(ctx, names, len(names)); err != nil {
		return row, err
	}
	if row.after, _, err = rig.Memory(pid); err != nil {
		return row, err
	}
	const few = 100
	row.costOfOld, err = s.cost(ctx, names[:few], len(names))
	return row, err
}

// cost returns the processor time of the first agent per query, in microseconds.
func (s *stage) cost(ctx context.Context, names []nodes.Want, queries int) (float64, error) {
	pid := []int{s.agents[0].PID()}
	before, err := rig.ProcessorTime(pid)
	if err != nil {
		return 0, err
	}
	load := s.world.Pods[0].StartLoad(ctx, s.service, costPause, names)
	err = pause(ctx, time.Duration(queries)*costPause)
	asked, loadErr := load.End()
	if err != nil {
		return 0, err
	}
	if loadErr != nil {
		return 0, loadErr
	}
	now, err := rig.ProcessorTime(pid)
	return float64(now-before) / float64(time.Microsecond) / float64(len(asked)), err
}
