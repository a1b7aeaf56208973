package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/test/netns/nodes"
)

// losses are packet losses per 1,000 packets.
var losses = []int{0, 10, 50}

// lookupPause is the pause between two lookups of a Pod.
const lookupPause = 5 * time.Millisecond

// latencyKey identifies a latency. A mixed lookup of names of the cluster alternates
// between short names and names of two parts.
type latencyKey struct {
	way      string
	libc     nodes.Libc
	loss     int
	external bool
}

// latency has the latencies of lookups, in milliseconds, and the number of lookups with
// a wrong result.
type latency struct{ p50, p99, most, bad float64 }

// latencies are the results of one round.
type latencies map[latencyKey]latency

// measureLatency measures each way without loss and with increasing loss.
func (b *bench) measureLatency(ctx context.Context, r *results, round int) error {
	found := make(latencies)
	for _, w := range rig.Turned(b.ways, round) {
		err := b.on(ctx, w, func(ctx context.Context, s *stage) error {
			for i, loss := range losses {
				if err := s.world.Loss(loss); err != nil {
					return err
				}
				if err := s.lookUpMany(ctx, found, loss, i*mixedNames); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	r.latencies = append(r.latencies, found)
	return nil
}

// lookUpMany looks up names in both Pods at the same time, with one C library each. The
// names start at a number, and were not looked up before.
func (s *stage) lookUpMany(ctx context.Context, found latencies, loss, from int) error {
	var programs []*nodes.Lookups
	for pod, libc := range libcs {
		l, err := s.world.StartLookups(pod, s.dir, libc)
		if err != nil {
			return err
		}
		programs = append(programs, l)
	}
	tick := time.NewTicker(lookupPause)
	defer tick.Stop()
	for i := range s.lookups {
		for pod, l := range programs {
			if err := l.LookUp(s.mixed(pod, from, i)); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for pod, l := range programs {
		all, err := l.End()
		if err != nil {
			return fmt.Errorf("%s: %w", libcs[pod], err)
		}
		s.sort(all, found, latencyKey{way: s.title, libc: libcs[pod], loss: loss})
	}
	return nil
}

// mixedNames is the number of names of each kind, for each loss.
const mixedNames = 50

// mixed returns a short name, one of two parts and an external one in turn.
func (s *stage) mixed(pod, from, i int) nodes.Want {
	n := from + i/3%mixedNames
	switch i % 3 {
	case 0:
		return s.short(pod, n)
	case 1:
		return s.twoPart(pod, n)
	}
	return external(pod, n)
}

// sort stores the latencies of the cluster's names and of external names.
func (s *stage) sort(all []nodes.Lookup, found latencies, key latencyKey) {
	for _, key.external = range []bool{false, true} {
		found[key] = latencyOf(slices.DeleteFunc(slices.Clone(all), func(l nodes.Lookup) bool {
			return isExternal(l.Name) != key.external
		}))
	}
}

func latencyOf(all []nodes.Lookup) (l latency) {
	var times []time.Duration
	for _, lookup := range all {
		times = append(times, lookup.Took)
		if lookup.Result != nodes.Right {
			l.bad++
		}
	}
	l.p50, l.p99, l.most = milliseconds(times, .5), milliseconds(times, .99), milliseconds(times, 1)
	return l
}

func isExternal(name string) bool { return strings.HasSuffix(name, ".org") }

func milliseconds(times []time.Duration, q float64) float64 {
	return float64(rig.Quantile(times, q)) / float64(time.Millisecond)
}

// figure returns the spread of one number over the rounds that have the key.
func (r *results) figure(key latencyKey, of func(latency) float64) (spread rig.Spread, ok bool) {
	return rig.OverAll(r.latencies, func(l latencies) (float64, bool) {
		found, ok := l[key]
		return of(found), ok
	})
}
