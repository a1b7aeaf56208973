package load

import (
	"time"

	"portolan.dev/portolan/bench/rig"
)

// lane is a part of the window. It sends on one of its sockets at a time, and moves to
// the next one when no query is outstanding.
type lane struct {
	sockets []*socket
	current int
	window  int
}

// lanes distributes the sockets and the window over lanes.
func lanes(sockets []*socket, window int) []*lane {
	n := min(len(sockets), window)
	all := make([]*lane, n)
	for i := range all {
		all[i] = &lane{window: (window + i) / n}
	}
	for i, s := range sockets {
		all[i%n].sockets = append(all[i%n].sockets, s)
	}
	return all
}

func (l *lane) socket() *socket {
	s := l.sockets[l.current]
	if s.waiting > 0 || len(l.sockets) == 1 {
		return s
	}
	l.current = (l.current + 1) % len(l.sockets)
	return l.sockets[l.current]
}

// closedLoop keeps the window full.
func (g *generator) closedLoop() (first, last *moment, err error) {
	mostOnOne := (g.Window-1)/min(g.Sockets, g.Window) + 1
	sockets, err := g.openSockets(mostOnOne)
	if err != nil {
		return nil, nil, g.errorAt(err)
	}
	all := lanes(sockets, g.Window)
	var swept time.Duration
	first, last, err = g.measured(func(now time.Duration) error {
		swept = g.sweep(sockets, swept, now)
		return g.pass(all, now)
	})
	if err != nil {
		return nil, nil, err
	}
	return first, last, g.drain(sockets, func(time.Duration) {})
}

// pass receives and sends on each lane once. If few answers arrived, it pauses, so that
// reads of empty sockets do not disturb the server.
func (g *generator) pass(all []*lane, now time.Duration) error {
	const (
		little = 8 // times less than may come
		pause  = 5 * time.Microsecond
	)
	answers := 0
	for _, l := range all {
		n, err := g.hear(l.sockets[l.current])
		if err != nil {
			return err
		}
		answers += n
		s := l.socket()
		if err := g.ask(s, l.window-s.waiting, now); err != nil {
			return err
		}
	}
	if answers < g.Window/little {
		for until := g.now() + pause; g.now() < until; { //nolint:revive // a sleep is not exact
		}
	}
	return nil
}

// sweep expires queries at intervals. It returns the time of the last sweep.
func (g *generator) sweep(sockets []*socket, before, now time.Duration) time.Duration {
	const pause = 100 * time.Millisecond
	if now-before < pause {
		return before
	}
	for _, s := range sockets {
		g.lost += s.expire(now)
	}
	return now
}

// drain waits until the outstanding queries are answered or lost. It calls tick
// meanwhile.
func (g *generator) drain(sockets []*socket, tick func(now time.Duration)) error {
	for deadline := g.now() + g.patience; ; {
		waiting, now := 0, g.now()
		tick(now)
		for _, s := range sockets {
			if _, err := g.hear(s); err != nil {
				return err
			}
			waiting += s.waiting
		}
		if waiting == 0 || now > deadline {
			g.lost += waiting
			return nil
		}
	}
}

// openLoop sends each query when it is due, regardless of earlier queries.
func (g *generator) openLoop() (first, last *moment, err error) {
	mostOnOne := int(time.Duration(g.Rate)*g.patience/time.Second)/g.Sockets + 1
	sockets, err := g.openSockets(mostOnOne)
	if err != nil {
		return nil, nil, g.errorAt(err)
	}
	every := time.Second / time.Duration(g.Rate)
	g.slices = rig.NewSlices(g.Warm, 2*int(g.Duration/every), rig.Stolen)
	var due, swept time.Duration
	turn := 0
	var waiting []*socket // sockets with outstanding queries, oldest first
	first, last, err = g.measured(func(now time.Duration) error {
		for ; due <= now; due += every {
			s := sockets[turn%len(sockets)]
			turn++
			if s.waiting == 0 {
				waiting = append(waiting, s)
			}
			if err := g.ask(s, 1, due); err != nil {
				return err
			}
		}
		swept = g.sweep(sockets, swept, now)
		g.slices.End(now)
		waiting, err = g.hearAll(waiting)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	err = g.drain(sockets, func(now time.Duration) {
		swept = g.sweep(sockets, swept, now)
		g.slices.End(now)
	})
	last.counts = g.counts
	return first, last, err
}

// hearAll receives from all sockets and returns those with outstanding queries.
func (g *generator) hearAll(sockets []*socket) (waiting []*socket, err error) {
	waiting = sockets[:0]
	for _, s := range sockets {
		if _, err := g.hear(s); err != nil {
			return nil, err
		}
		if s.waiting > 0 {
			waiting = append(waiting, s)
		}
	}
	return waiting, nil
}
