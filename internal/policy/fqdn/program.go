package fqdn

import (
	"context"
	"net/netip"
	"time"
)

// Bounds of the pauses after the Programmer failed: the pause doubles each time.
const (
	minPause = 5 * time.Millisecond
	maxPause = time.Second
)

// maxAddrs is how many addresses are programmed in one transaction: others wait for its
// end.
const maxAddrs = 512

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

// maxNames is how many names are programmed at once.
const maxNames = 512

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

// next returns the names to be programmed next.
func (q *queue) next() (names []*name) {
	for u := range q {
		for len(q[u]) > 0 && len(names) < maxNames {
			n := q[u][0]
			q[u][0], q[u] = nil, q[u][1:]
			if n.queued[u] {
				n.queued = [urgencies]bool{}
				names = append(names, n)
			}
		}
	}
	return names
}

// sweepTime is the time between two sweeps.
const sweepTime = 5 * time.Second

// sweep removes what has expired.
func (g *Gate) sweep() {
	at := g.table.now()
	visit(&g.mu, g.table.names, func(_ string, n *name) { g.table.expire(n, at) })
	g.mu.Lock()
	kernel := g.table.kernel
	g.mu.Unlock()
	visit(&g.mu, kernel, func(e element, until int64) {
		if until < at {
			delete(kernel, e)
		}
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
}

// job is the changes of a name up to a number.
type job struct {
	change
	failed bool
}

// element is an address in a set.
type element struct {
	set  string
	addr netip.Addr
}

// want is until when an element is to stay, and the jobs that want it.
type want struct {
	until int64
	jobs  []*job
}

// transaction adds addresses to a set for the same time.
type transaction struct {
	set string
	ttl time.Duration
}

// pass is the names that are programmed together, and what they want.
type pass struct {
	at     int64 // when it began, before the kernel's times
	losses int   // table.losses then
	jobs   []*job
	wants  map[element]*want
}

// program programs the names that are queued first. It adds those that failed to failed, and
// returns the last error.
func (g *Gate) program(failed map[*name]bool) (err error) {
	p := g.take()
	for t, addrs := range p.transactions() {
		failure := g.add(t, addrs)
		if failure != nil {
			err = failure
			p.fail(t, addrs)
			continue
		}
		g.note(p, t, addrs)
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
	p := &pass{at: g.table.now(), losses: g.table.losses, wants: make(map[element]*want)}
	for _, n := range g.queue.next() {
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
					w = &want{until: g.table.kernel[e]}
					p.wants[e] = w
				}
				w.until = max(w.until, k.wanted)
				w.jobs = append(w.jobs, j)
			}
		}
	}
	if len(g.queue[now])+len(g.queue[later]) > 0 {
		g.wake()
	}
	return p
}

// transactions groups the elements by set and time.
func (p *pass) transactions() map[transaction][]netip.Addr {
	all := make(map[transaction][]netip.Addr)
	for e, w := range p.wants {
		t := transaction{e.set, (time.Duration(w.until-p.at) + ttlUnit - 1).Truncate(ttlUnit)}
		all[t] = append(all[t], e.addr)
	}
	return all
}

// fail notes that a transaction failed.
func (p *pass) fail(t transaction, addrs []netip.Addr) {
	for _, addr := range addrs {
		for _, j := range p.wants[element{t.set, addr}].jobs {
			j.failed = true
		}
	}
}

// note notes that the kernel has the elements of a transaction, unless it lost its sets
// since the pass began.
func (g *Gate) note(p *pass, t transaction, addrs []netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.losses != g.table.losses {
		return
	}
	for _, addr := range addrs {
		g.table.kernel[element{t.set, addr}] = p.at + int64(t.ttl)
	}
}

// add adds addresses to the set of t.
func (g *Gate) add(t transaction, addrs []netip.Addr) error {
	for len(addrs) > 0 {
		some := addrs[:min(len(addrs), maxAddrs)]
		g.counters.transactions.Add(1)
		if err := g.cfg.Programmer.AddResolved(t.set, some, t.ttl); err != nil {
			g.counters.failed.Add(uint64(len(addrs)))
			return err
		}
		g.counters.added.Add(uint64(len(some)))
		addrs = addrs[len(some):]
	}
	return nil
}
