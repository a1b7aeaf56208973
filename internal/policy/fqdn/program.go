package fqdn

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/policy/ruleset"
)

// Bounds of the pauses after the Programmer failed: the pause doubles each time.
const (
	minPause = 5 * time.Millisecond
	maxPause = time.Second
)

// maxElements is how many elements one transaction changes, so that it is short.
const maxElements = 512

// ttlUnit is what times in the kernel are rounded up to, so that names with different
// TTLs share a transaction.
const ttlUnit = 10 * time.Second

// Run programs the kernel until ctx is done and returns its error. After that, answers do
// not wait. It must be called once.
func (g *Gate) Run(ctx context.Context) error {
	defer close(g.ended)
	sweep := time.NewTicker(sweepTime)
	defer sweep.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	<-retry.C
	failed := make(map[*name]bool) // to be tried again
	for pause := time.Duration(0); ; {
		isRetry := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-sweep.C:
			g.sweep()
			continue
		case <-retry.C:
			g.again(failed)
			isRetry = true
		case <-g.work:
		}
		err := g.program(failed)
		switch {
		case err == nil && isRetry:
			g.cfg.Log.Info("addresses of names in policies are added again")
			pause = 0
		case err != nil && pause == 0:
			g.cfg.Log.Warn("addresses of names in policies cannot be added; packets to them are denied", "err", err)
			pause = minPause
			retry.Reset(pause)
		case err != nil && isRetry:
			pause = min(2*pause, maxPause)
			retry.Reset(pause)
		}
	}
}

// urgency is when a name is programmed: those that answers may wait for come first.
type urgency int

const (
	now urgency = iota
	later
	urgencies
)

// queue is the names to be programmed, by urgency.
type queue [urgencies][]*name

// maxWants is how many elements are programmed before the queue is looked at again, but for the last name's.
const maxWants = 4096

// enqueue queues a name whose addresses changed. The mutex is held.
func (g *Gate) enqueue(n *name, u urgency) {
	if !n.queued[u] {
		n.queued[u] = true
		g.queue[u] = append(g.queue[u], n)
	}
	g.wake()
}

func (g *Gate) wake() {
	select {
	case g.work <- struct{}{}:
	default:
	}
}

// wakeToRemove has Run remove what is to go. The mutex is held.
func (g *Gate) wakeToRemove() {
	if len(g.table.gone) > 0 {
		g.wake()
	}
}

// next returns the name to be programmed next; nil without one.
func (q *queue) next() *name {
	for u := range q {
		for len(q[u]) > 0 {
			n := q[u][0]
			q[u][0], q[u] = nil, q[u][1:]
			if n.queued[u] {
				n.queued = [urgencies]bool{}
				return n
			}
		}
	}
	return nil
}

// sweepTime is the time between two sweeps.
const sweepTime = 5 * time.Second

// sweep removes what has expired.
func (g *Gate) sweep() {
	at := g.table.now()
	g.eachName(func(n *name) {
		g.table.expire(n, at)
		g.wakeToRemove()
	})
}

// again queues names that failed once more.
func (g *Gate) again(failed map[*name]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for n := range failed {
		g.enqueue(n, now)
	}
	clear(failed)
	g.wakeToRemove()
}

// job is the changes of a name up to a number.
type job struct {
	change
	failed bool
}

// want is until when an element is to stay, and the jobs that want it.
type want struct {
	until int64
	jobs  []*job
}

// pass is the names that are programmed together, and what they want.
type pass struct {
	at     int64 // when it began, before the kernel's times
	losses int   // table.losses then
	jobs   []*job
	wants  map[element]*want
	gone   map[element]struct{}
}

// program programs the names that are queued first, and removes what is to go. It adds names that failed to
// failed, and returns the last error.
func (g *Gate) program(failed map[*name]bool) (err error) {
	p := g.take()
	for some := range p.transactions() {
		if failure := g.change(p, some); failure != nil {
			err = failure
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, j := range p.jobs {
		if j.failed {
			failed[j.name] = true
		} else {
			j.name.done(j.number)
		}
	}
	return err
}

// take takes names from the queue, and returns what they want. An element that several names
// have stays for the longest of their times: a shorter one would replace the longer one.
func (g *Gate) take() *pass {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := &pass{at: g.table.now(), losses: g.table.losses, wants: make(map[element]*want), gone: g.table.gone}
	g.table.gone = make(map[element]struct{})
	for len(p.wants) < maxWants {
		n := g.queue.next()
		if n == nil {
			return p
		}
		j := &job{change: change{n, n.requested}}
		p.jobs = append(p.jobs, j)
		for i := range n.addresses {
			k := &n.addresses[i]
			if k.number <= n.programmed || k.wanted <= p.at {
				continue
			}
			for _, set := range n.sets {
				e := element{set, k.addr}
				w := p.wants[e]
				if w == nil {
					w = &want{until: g.table.untilOf(e)}
					p.wants[e] = w
				}
				w.until = max(w.until, k.wanted)
				w.jobs = append(w.jobs, j)
			}
		}
	}
	g.wake()
	return p
}

// transactions yields the changes of a pass, removals first, each time as many as one transaction makes. The
// elements of a change have the same set and time.
func (p *pass) transactions() iter.Seq[[]ruleset.Resolution] {
	type group struct {
		set string
		ttl time.Duration
	}
	all := make(map[group][]netip.Addr)
	for e := range p.gone {
		all[group{e.set, 0}] = append(all[group{e.set, 0}], e.addr)
	}
	for e, w := range p.wants {
		of := group{e.set, (time.Duration(w.until-p.at) + ttlUnit - 1).Truncate(ttlUnit)}
		all[of] = append(all[of], e.addr)
	}
	order := slices.SortedFunc(maps.Keys(all), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.ttl, b.ttl), strings.Compare(a.set, b.set))
	})
	return func(yield func([]ruleset.Resolution) bool) {
		var some []ruleset.Resolution
		room := maxElements
		for _, of := range order {
			for addrs := all[of]; len(addrs) > 0; {
				n := min(room, len(addrs))
				some = append(some, ruleset.Resolution{Set: of.set, Addrs: addrs[:n], TTL: of.ttl})
				addrs, room = addrs[n:], room-n
				if room == 0 {
					if !yield(some) {
						return
					}
					some, room = nil, maxElements
				}
			}
		}
		if len(some) > 0 {
			yield(some)
		}
	}
}

// change makes changes of the kernel. If they fail together, it makes those that do not fail, and returns an
// error of the others.
func (g *Gate) change(p *pass, some []ruleset.Resolution) error {
	g.counters.transactions.Add(1)
	err := g.cfg.Programmer.ChangeResolved(some)
	if err != nil && len(some) > 1 {
		half := len(some) / 2
		return cmp.Or(g.change(p, some[:half]), g.change(p, some[half:]))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range some {
		switch {
		case err != nil:
			g.fail(p, r)
		case r.TTL > 0:
			g.note(p, r)
		}
	}
	return err
}

// fail notes that a change failed.
func (g *Gate) fail(p *pass, r ruleset.Resolution) {
	g.counters.failed.Add(uint64(len(r.Addrs)))
	for _, addr := range r.Addrs {
		e := element{r.Set, addr}
		if r.TTL > 0 {
			for _, j := range p.wants[e].jobs {
				j.failed = true
			}
		} else if _, wanted := g.table.elements[e]; !wanted {
			g.table.gone[e] = struct{}{}
		}
	}
}

// note notes that the kernel has the elements of a change, unless it lost its sets
// since the pass began.
func (g *Gate) note(p *pass, r ruleset.Resolution) {
	g.counters.added.Add(uint64(len(r.Addrs)))
	if p.losses != g.table.losses {
		return
	}
	for _, addr := range r.Addrs {
		g.table.placed(element{r.Set, addr}, p.at+int64(r.TTL))
	}
}
