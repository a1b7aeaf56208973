package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// settleTime is the pause in which garbage may be collected.
const settleTime = 3 * time.Second

// measureMemory measures what the agents of both nodes use.
func (b *bench) measureMemory(ctx context.Context) (figures []figure, err error) {
	for _, n := range []node{usual, large} {
		some, err := b.measureAgent(ctx, n)
		if err != nil {
			return nil, err
		}
		figures = append(figures, some...)
	}
	return figures, nil
}

// measureAgent measures the agent's memory when it has loaded the cluster, and after changes, and what those
// cost it.
func (b *bench) measureAgent(ctx context.Context, n node) (figures []figure, err error) {
	const goal = 40 // MiB
	a, err := b.newAgent(n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	pid := a.process.PID()
	started, err := a.processor()
	if err != nil {
		return nil, err
	}
	time.Sleep(settleTime)
	loaded, most, err := rig.Memory(pid)
	if err != nil {
		return nil, err
	}
	own, err := rig.OwnMemory(pid)
	if err != nil {
		return nil, err
	}
	each, err := a.relabel(ctx, b.changes)
	if err != nil {
		return nil, err
	}
	time.Sleep(settleTime)
	changed, _, err := rig.Memory(pid)
	where := fmt.Sprintf("%d Pods on the node: ", n)
	return []figure{
		{what: where + "processor time from the start until the kernel has all, ms", number: milliseconds(started)},
		{what: "resident memory then, MiB", number: loaded, most: goal},
		{what: "of it, what is of no file", number: own},
		{what: "most until then", number: most},
		{what: "processor time for a label that changes, from the API server on, ms", number: milliseconds(each)},
		{what: "resident memory after these changes, MiB", number: changed, most: goal},
	}, err
}

// relabel changes a label of one Pod after another, 100 in a second, and returns the agent's processor time
// for each.
func (a *agent) relabel(ctx context.Context, changes int) (time.Duration, error) {
	const pace, after = 10 * time.Millisecond, time.Second
	before, err := a.processor()
	if err != nil {
		return 0, err
	}
	next := time.Now()
	for i := range changes {
		if err := a.api.Change("pods", a.node.relabeled(i)); err != nil {
			return 0, err
		}
		next = next.Add(pace)
		time.Sleep(time.Until(next))
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	time.Sleep(after)
	now, err := a.processor()
	return (now - before) / time.Duration(changes), err
}
