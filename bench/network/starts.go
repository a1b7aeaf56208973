package network

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/bench/rig"
)

const (
	// each of so many Pods has a port of the node.
	hostPortEach  = 5
	firstHostPort = 20_000
	// checked is how many Pods start whose addresses the kernel checks for duplicates.
	checked = 3
	// otherTime is for how long the use of the processors by others is observed.
	otherTime = time.Second
)

func parallels() []int { return []int{8, 32} }

// measureStarts starts and ends Pods on a node: one after the other, and then in parallel.
func (b *bench) measureStarts(ctx context.Context, r *result) (err error) {
	nodes, err := b.newPair(ctx, r.contender, direct, len(pair{}))
	defer func() { err = errors.Join(err, nodes.close()) }()
	if err != nil {
		return err
	}
	n, all := nodes[0], make([]*pod, 0, b.pods)
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.network.Close())
		}
	}()
	for i := range b.pods {
		port := 0
		if i%hostPortEach == 0 {
			port = firstHostPort + i
		}
		p, err := newPod(fmt.Sprintf("pod-%d", i), port, false)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	into := r.rounds[len(r.rounds)-1]
	if err := n.measureOneByOne(ctx, all, into); err != nil {
		return err
	}
	for _, parallel := range parallels() {
		into[inParallel(parallel)], err = n.measureParallel(all, parallel)
		if err != nil {
			return err
		}
	}
	return n.measureChecked(into)
}

// measureOneByOne starts all Pods and ends them.
func (n *node) measureOneByOne(ctx context.Context, all []*pod, into figures) error {
	defer rig.KeepGarbage()()
	return n.network.Do(func() error {
		for _, step := range []struct {
			command string
			run     func(*pod) (spent, error)
		}{{"ADD", n.add}, {"DEL", n.del}} {
			var took []time.Duration
			var sum, agent, ports, plain mean
			for _, p := range all {
				s, err := step.run(p)
				if err != nil {
					return err
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				took = append(took, s.took)
				sum.add(s.processor + s.agent)
				agent.add(s.agent)
				if p.hostPort != 0 {
					ports.add(s.processor + s.agent)
				} else {
					plain.add(s.processor + s.agent)
				}
			}
			into[key{step.command, "processor"}] = sum.milliseconds()
			if n.agent != nil {
				into[key{step.command, "agent"}] = agent.milliseconds()
			}
			into[key{step.command, "ports"}], into[key{step.command, "plain"}] = ports.milliseconds(), plain.milliseconds()
			into[key{step.command, "p50"}] = milliseconds(rig.Quantile(took, .5))
			into[key{step.command, "p99"}] = milliseconds(rig.Quantile(took, .99))
		}
		return nil
	})
}

// mean is the mean of times.
type mean struct {
	sum   time.Duration
	count int
}

func (m *mean) add(d time.Duration) { m.sum, m.count = m.sum+d, m.count+1 }

func (m *mean) milliseconds() float64 { return milliseconds(m.sum) / float64(max(m.count, 1)) }

// measureParallel starts all Pods, so many at a time, and returns how many a second. Then it ends them.
func (n *node) measureParallel(all []*pod, parallel int) (perSecond float64, err error) {
	defer rig.KeepGarbage()()
	began := time.Now()
	if err := n.inParallel(all, parallel, n.add); err != nil {
		return 0, err
	}
	perSecond = float64(len(all)) / time.Since(began).Seconds()
	return perSecond, n.inParallel(all, parallel, n.del)
}

func (n *node) inParallel(all []*pod, parallel int, do func(*pod) (spent, error)) error {
	waiting := make(chan *pod, len(all))
	for _, p := range all {
		waiting <- p
	}
	close(waiting)
	var group errgroup.Group
	for range parallel {
		group.Go(func() error {
			return n.network.Do(func() error {
				for p := range waiting {
					if _, err := do(p); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	return group.Wait()
}

// measureChecked starts Pods in namespaces as the kernel makes them, in which it looks for duplicates of addresses.
func (n *node) measureChecked(into figures) (err error) {
	var took []time.Duration
	for i := range checked {
		p, err := newPod(fmt.Sprintf("checked-%d", i), 0, true)
		if err != nil {
			return err
		}
		err = n.network.Do(func() error {
			s, err := n.add(p)
			took = append(took, s.took)
			if err == nil {
				_, err = n.del(p)
			}
			return err
		})
		if err := errors.Join(err, p.network.Close()); err != nil {
			return err
		}
	}
	into[key{"ADD", "checked"}] = milliseconds(rig.Quantile(took, .5))
	return nil
}
