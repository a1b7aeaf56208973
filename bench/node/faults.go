package node

import (
	"context"
	"time"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/test/netns/nodes"
)

// fault is what breaks, while the first Pod asks.
type fault struct {
	name, title string
	ways        []string
	// change changes a way for the fault; nil leaves it.
	change func(way) way
	// play plays it; when the fault itself is over, from which on all is to be
	// well again, it marks that.
	play func(context.Context, *scene) error
}

// scene is a fault that is played.
type scene struct {
	*stage
	marks []time.Time
	// heals are how many seconds it took, where right answers do not say.
	heals []float64
}

func (s *scene) mark() { s.marks = append(s.marks, time.Now()) }

// faultRow is what came of it.
type faultRow struct {
	fault, way string
	times      int
	sent       int // queries, each once
	results    map[nodes.Result]int
	heal       rig.Spread // seconds, from a mark to the last query that has no right answer
	lookups    map[nodes.Libc]lookupsRow
}

// lookupsRow is what programs in the Pod were told.
type lookupsRow struct {
	all     int
	results map[nodes.Result]int
	slowest float64 // seconds
}

// Pauses between two queries, and between two lookups of a C library.
const (
	queryPause       = 2 * time.Millisecond
	faultLookupPause = 50 * time.Millisecond
)

// calm is how long all is well before and after.
const calm = 2 * time.Second

// measureFaults plays all faults.
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

// waysOf are those of the names that take part.
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
	defer func() { _, _ = crowd.load.End() }() // for the returns of errors
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

// underWay is for how long before a fault queries may have been sent that it hit.
const underWay = 50 * time.Millisecond

// heal is the spread of how long it took after each mark.
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

// crowd is who asks while something breaks.
type crowd struct {
	load     *nodes.Load
	programs map[nodes.Libc]*nodes.Lookups
	stop     context.CancelFunc
	done     chan error
}

// gather has the first Pod ask without end: its server, and by both C libraries.
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

// lookUpUntil has programs look names of the cluster up until ctx is done.
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

// questions are what resolvers of the first Pod ask for short names that exist.
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

// endLookups stops, and waits for those under way.
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
