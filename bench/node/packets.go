package node

import (
	"context"
	"fmt"
	"strconv"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/test/netns/nodes"
)

// nameKind is a kind of names.
type nameKind struct {
	name string
	of   func(b *bench, pod, i int) nodes.Want
	goal int // highest allowed number of the Pod's queries
}

func nameKinds() []nameKind {
	return []nameKind{
		{"short", (*bench).short, 2},
		{"two-part", (*bench).twoPart, 2},
		{"external", func(_ *bench, pod, i int) nodes.Want { return external(pod, i) }, 2},
		{"missing", func(_ *bench, pod, i int) nodes.Want { return missing(pod, i) }, 4},
	}
}

var libcs = []nodes.Libc{nodes.Glibc, nodes.Musl}

// packetsRow is the cost of lookups by one way, by kind of name.
type packetsRow struct {
	way    string
	libc   nodes.Libc
	counts []packetsCount
}

// packetsCount has numbers per lookup: the queries of the Pod, and all DNS packets
// between the node and the server's, for the first lookup and for later ones.
type packetsCount struct{ queries, first, again float64 }

// countedNames is the number of names of each kind.
const countedNames = 10

// measurePackets counts the packets of lookups, one after another.
func (b *bench) measurePackets(ctx context.Context, r *results, _ int) error {
	for _, w := range b.ways {
		err := b.on(ctx, w, func(ctx context.Context, s *stage) error {
			for i, libc := range libcs {
				row := packetsRow{way: w.title, libc: libc}
				for _, k := range nameKinds() {
					// Each C library looks up different names.
					count, err := s.countPackets(ctx, libc, k, 1+i*countedNames)
					if err != nil {
						return err
					}
					row.counts = append(row.counts, count)
				}
				r.packets = append(r.packets, row)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) countPackets(
	ctx context.Context,
	libc nodes.Libc,
	k nameKind,
	from int,
) (count packetsCount, err error) {
	for range 2 {
		if err := s.world.StartCount(); err != nil {
			return count, err
		}
		for i := range countedNames {
			if err := s.lookUpOnce(ctx, libc, k.of(s.bench, 0, from+i)); err != nil {
				return count, err
			}
		}
		t, err := s.world.Counted(0)
		if err != nil {
			return count, err
		}
		count.queries = float64(t.Queries.Packets) / countedNames
		count.first, count.again = count.again, float64(t.Up.Packets+t.Down.Packets)/countedNames
	}
	return count, nil
}

// lookUpOnce looks up a name in the first Pod and checks the answer.
func (s *stage) lookUpOnce(ctx context.Context, libc nodes.Libc, want nodes.Want) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l, err := s.world.StartLookups(0, s.dir, libc)
	if err != nil {
		return err
	}
	if err := l.LookUp(want); err != nil {
		return err
	}
	all, err := l.End()
	if err != nil {
		return err
	}
	if len(all) != 1 || all[0].Result != nodes.Right {
		return fmt.Errorf("%s has looked up %s: %+v", libc, want.Name, all)
	}
	return nil
}

// met reports whether all counts are within the goals.
func (p packetsRow) met() bool {
	for i, k := range nameKinds() {
		if p.counts[i].queries > float64(k.goal) {
			return false
		}
	}
	return true
}

// cells returns one cell for each kind of name.
func (p packetsRow) cells(of func(packetsCount) string) (cells []string) {
	for _, c := range p.counts {
		cells = append(cells, of(c))
	}
	return cells
}

func shortCount(n float64) string {
	if n == float64(int(n)) {
		return strconv.Itoa(int(n))
	}
	return rig.Short(n)
}
