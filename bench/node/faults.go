package node

import (
	"context"
	"time"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/test/netns/nodes"
)

// fault is a failure during queries of the first Pod.
type fault struct {
	name, title string
	ways        []string
	// change adapts a way for the fault; nil leaves it unchanged.
	change func(way) way
	// play causes the fault. It sets a mark when the fault itself is over, after which
	// everything should recover.
	play func(context.Context, *scene) error
}

// scene is a fault in progress.
type scene struct {
	*stage
	marks []time.Time
	// heals are recovery times in seconds, for faults where right answers do not show
	// recovery.
	heals []float64
}

func (s *scene) mark() { s.marks = append(s.marks, time.Now()) }

// faultRow is the result of a fault.
type faultRow struct {
	fault, way string
	times      int
	sent       int // queries, each sent once
	results    map[nodes.Result]int
	heal       rig.Spread // seconds, from a mark to the last query without a right answer
	lookups    map[nodes.Libc]lookupsRow
}

// lookupsRow is the result of lookups by programs in the Pod.
type lookupsRow struct {
	all     int
	results map[nodes.Result]int
	slowest float64 // seconds
}

// queryPause is the pause between two queries, and faultLookupPause between two lookups
// of a C library.
const (
	queryPause       = 2 * time.Millisecond
	faultLookupPause = 50 * time.Millisecond
)

// calm is the time without a fault before and after it.
const calm = 2 * time.Second

// measureFaults measures all faults.
func (b *bench) measureFaults(ctx context.Context, r *results, _ int) error {
	for _, f := range b.faults {
		for _, w := range b.waysOf(f.ways...) {
			b.log.Info("playing", "fault", f.name, "way", w.name)
			if f.change != nil {
				w = f.change(w)
			}
			err := b.on(ctx, w, func(ctx context.Context, s *stage) error {
				row, err := s.playFault(ctx, f)
				r.faults = append(r.faults, row)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// waysOf returns the selected ways with the given names.
func (b *bench) waysOf(names ...string) (all []way) {
	for _, w := range b.ways {
		for _, name := range names {
			if w.name == name {
				all = append(all, w)
			}
		}
	}
	return all
}

func (s *stage) playFault(ctx context.Context, f fault) (row faultRow, err error) {
	crowd, err := s.gather(ctx)
	if err != nil {
		return row, err
	}
	defer func() { _, _ = crowd.load.End() }() // for returns with an error
	sc := &scene{stage: s}
	if err := pause(ctx, calm); err != nil {
		return row, err
	}
	if err := f.play(ctx, sc); err != nil {
		return row, err
	}
	if err := pause(ctx, calm); err != nil {
		return row, err
	}
	queries, err := crowd.load.End()
	if err != nil {
		return row, err
	}
	row = faultRow{
		fault:   f.title,
		way:     s.title,
		times:   len(sc.marks),
		sent:    len(queries),
		results: make(map[nodes.Result]int),
	}
	for _, q := range queries {
		row.results[q.Result]++
	}
	row.heal = heal(queries, sc.marks)
	if len(sc.heals) > 0 {
		row.heal = rig.Over(sc.heals)
	}
	row.lookups, err = crowd.endLookups()
	return row, err
}

// underWay is how long before a fault a query can be sent and still be affected by it.
const underWay = 50 * time.Millisecond

// heal returns the spread of the recovery times after each mark.
func heal(queries []nodes.Query, marks []time.Time) rig.Spread {
	seconds := make([]float64, len(marks))
	for i, mark := range marks {
		for _, q := range queries {
			if q.Result == nodes.Right || q.Sent.Before(mark) || i+1 < len(marks) && q.Sent.After(marks[i+1].Add(-underWay)) {
				continue
			}
			seconds[i] = max(seconds[i], q.Sent.Sub(mark).Seconds())
		}
	}
	return rig.Over(seconds)
}

// crowd is the load during a fault.
type crowd struct {
	load     *nodes.Load
	programs map[nodes.Libc]*nodes.Lookups
	stop     context.CancelFunc
	done     chan error
}

// gather starts continuous queries of the first Pod, to its server and by both C
// libraries.
func (s *stage) gather(ctx context.Context) (*crowd, error) {
	ctx, stop := context.WithCancel(ctx)
	c := &crowd{programs: make(map[nodes.Libc]*nodes.Lookups), stop: stop, done: make(chan error, 1)}
	for _, libc := range libcs {
		l, err := s.world.StartLookups(0, s.dir, libc)
		if err != nil {
			stop()
			return nil, err
		}
		c.programs[libc] = l
	}
	c.load = s.world.Pods[0].StartLoad(ctx, s.service, queryPause, s.questions())
	go func() { c.done <- s.lookUpUntil(ctx, c.programs) }()
	return c, nil
}

// lookUpUntil looks up names of the cluster until ctx is done.
func (s *stage) lookUpUntil(ctx context.Context, programs map[nodes.Libc]*nodes.Lookups) error {
	tick := time.NewTicker(faultLookupPause)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, l := range programs {
			if err := l.LookUp(s.short(0, i%len(s.questions()))); err != nil {
				return err
			}
		}
	}
}

// questions returns the queries of a resolver in the first Pod for existing short
// names.
func (s *stage) questions() (all []nodes.Want) {
	const names = 20
	for i := range names {
		want := s.short(0, i)
		if s.searches() {
			want.Name = nodes.Searched(want.Name, s.namespace(0))
		} else {
			want.Name += "." + s.namespace(0) + ".svc.cluster.local"
		}
		all = append(all, want)
	}
	return all
}

// endLookups stops the lookups and waits for those in progress.
func (c *crowd) endLookups() (map[nodes.Libc]lookupsRow, error) {
	c.stop()
	if err := <-c.done; err != nil {
		return nil, err
	}
	rows := make(map[nodes.Libc]lookupsRow)
	for libc, l := range c.programs {
		all, err := l.End()
		if err != nil {
			return nil, err
		}
		row := lookupsRow{all: len(all), results: make(map[nodes.Result]int)}
		for _, lookup := range all {
			row.results[lookup.Result]++
			row.slowest = max(row.slowest, lookup.Took.Seconds())
		}
		rows[libc] = row
	}
	return rows, nil
}
