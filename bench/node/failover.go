package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"portolan.dev/portolan/test/netns/nodes"
)

// failover is the result of lookups with and without an agent.
type failover struct {
	what string
	libc nodes.Libc
	// with and without are the latencies with and without an agent.
	with, without latency
	lookups       int
}

// holeRules drops packets to an agent that does not run.
const holeRules = `table ip hole {}
delete table ip hole
table ip hole {
	chain forward {
		type filter hook forward priority 0
		ip daddr %s drop
	}
}
`

// failovers are the ways in which Pods can resolve names without an agent.
var failovers = []struct {
	what   string
	change func(way) way
	hole   bool // packets to the agent's dedicated address are dropped
}{
	{"the cluster DNS IP is on the node", func(w way) way { return w }, false},
	{"the agent's address, then the cluster DNS IP; the network says that the first can't be reached", localFirst, false},
	{"the same; packets for the first vanish", localFirst, true},
}

// measureFailover measures lookups of the first Pod, with an agent and after it has
// stopped.
func (b *bench) measureFailover(ctx context.Context, r *results, _ int) error {
	for _, f := range failovers {
		for _, w := range b.waysOf(kepCache) {
			err := b.on(ctx, f.change(w), func(ctx context.Context, s *stage) error {
				if f.hole {
					if err := s.dig(); err != nil {
						return err
					}
				}
				found, err := s.withAndWithout(ctx)
				if f.hole {
					err = errors.Join(err, s.fillHole())
				}
				for _, row := range found {
					row.what = f.what
					r.failovers = append(r.failovers, row)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *stage) withAndWithout(ctx context.Context) ([]failover, error) {
	const (
		lookups = 100
		every   = 20 * time.Millisecond
	)
	rows := make([]failover, len(libcs))
	for i, libc := range libcs {
		rows[i] = failover{libc: libc, lookups: lookups}
	}
	for _, without := range []bool{false, true} {
		if without {
			s.agents[0].Kill()
		}
		for i, libc := range libcs {
			found, err := s.lookUpShort(ctx, libc, lookups, every)
			if err != nil {
				return nil, err
			}
			if without {
				rows[i].without = found
			} else {
				rows[i].with = found
			}
		}
	}
	return rows, nil
}

// lookUpShort looks up short names in the first Pod.
func (s *stage) lookUpShort(
	ctx context.Context,
	libc nodes.Libc,
	lookups int,
	every time.Duration,
) (found latency, err error) {
	l, err := s.world.StartLookups(0, s.dir, libc)
	if err != nil {
		return found, err
	}
	for i := range lookups {
		if err := l.LookUp(s.short(0, i%mixedNames)); err != nil {
			return found, err
		}
		if err := pause(ctx, every); err != nil {
			return found, err
		}
	}
	all, err := l.End()
	if err != nil {
		return found, err
	}
	return latencyOf(all), nil
}

// dig drops packets to the stopped agent on its node.
func (s *stage) dig() error {
	return s.world.Nodes[0].Rules(fmt.Sprintf(holeRules, nodes.Local))
}

func (s *stage) fillHole() error { return s.world.Nodes[0].Rules("delete table ip hole") }
