package secondaries

import (
	"time"

	"portolan.dev/portolan/bench/rig"
)

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// over is the spread of a figure over the rounds, which it is told the number of.
func over[T any](rounds []T, of func(i int) float64) rig.Spread {
	var numbers []float64
	for i := range rounds {
		numbers = append(numbers, of(i))
	}
	return rig.Over(numbers)
}

// cost is what one of many takes.
type cost struct{ processor, octets rig.Spread }

// perSecond is how much of a processor the server used, in µs a second.
func (m *window) perSecond() float64 { return microseconds(m.server) / m.took.Seconds() }

// each is a number that followers counted, with the part of the agent, which is one
// more of them, in a second.
func (m *window) each(counted float64) float64 {
	return counted / m.took.Seconds() * float64(m.nodes+1) / float64(m.nodes)
}

// notice is what a NOTIFY and its answer take, with so many followers: in µs of
// the server's processor time, by what it used more than alone, and in octets.
func (h *half) notice(followers int) (c cost) {
	rounds := h.followers[followers]
	c.processor = over(rounds, func(i int) float64 {
		told := &rounds[i].told
		return (told.perSecond() - h.alone[i].perSecond()) / told.each(told.notices)
	})
	c.octets = over(rounds, func(i int) float64 { return rounds[i].told.noticeOctets / rounds[i].told.notices })
	return c
}

// transfer is what an IXFR takes: by what the server used more than when it only
// told of changes.
func (h *half) transfer(followers int) (c cost) {
	rounds := h.followers[followers]
	c.processor = over(rounds, func(i int) float64 {
		told, follows := &rounds[i].told, &rounds[i].follows
		return (follows.perSecond() - told.perSecond()) / follows.each(follows.transfers)
	})
	c.octets = over(rounds, func(i int) float64 {
		m := &rounds[i].follows
		return (m.octets + m.asking) / m.transfers
	})
	return c
}

// follows is a figure of the times with followers.
func (h *half) follows(followers int, of func(*window) float64) rig.Spread {
	rounds := h.followers[followers]
	return over(rounds, func(i int) float64 { return of(&rounds[i].follows) })
}

// noticed is how many NOTIFYs one follower gets in a second.
func noticed(m *window) float64 { return m.notices / m.took.Seconds() / float64(m.nodes) }

// inOne is how many changes an IXFR has.
func inOne(m *window) float64 { return m.changes * float64(m.nodes) / m.transfers }

// inMessages is how many messages an IXFR has.
func inMessages(m *window) float64 { return m.messages / m.transfers }

// all is a figure of transfers of the whole zone.
func (h *half) all(of func(*wholeZone) float64) rig.Spread {
	return over(h.whole, func(i int) float64 { return of(&h.whole[i]) })
}

// connection is the server's memory for a follower, in KiB: its connection, and
// what is under way.
func (h *half) connection(followers int) rig.Spread {
	const kib = 1024
	rounds := h.followers[followers]
	return over(rounds, func(i int) float64 {
		return (rounds[i].follows.memory - rounds[i].told.memory) * kib / float64(followers)
	})
}

// perSecond is how much of a processor the API server used, in µs a second.
func (m *apiWindow) perSecond() float64 { return microseconds(m.used) / m.took.Seconds() }

// events is how many changes it sent in a second to so many watchers.
func (m *apiWindow) events(watchers int) float64 {
	return m.changes / m.took.Seconds() * float64(watchers)
}

// event is what it takes to send a change to one more watcher.
func (r *apiResults) event(e encoding, watchers int) (c cost) {
	rounds := r.watchers[e.name][watchers]
	c.processor = over(rounds, func(i int) float64 {
		return (rounds[i].perSecond() - r.alone[i].perSecond()) / rounds[i].events(watchers)
	})
	c.octets = over(rounds, func(i int) float64 {
		return rounds[i].octets / rounds[i].took.Seconds() / rounds[i].events(watchers)
	})
	return c
}

// content is how many of the octets of an event are not HTTP's and TLS'.
func (r *apiResults) content(e encoding, watchers int) rig.Spread {
	rounds := r.watchers[e.name][watchers]
	return over(rounds, func(i int) float64 {
		return rounds[i].content / rounds[i].took.Seconds() / rounds[i].events(watchers)
	})
}

// lists are what lists of everything take, in ms.
func (r *apiResults) list(e encoding) (c cost) {
	rounds := r.lists[e.name]
	c.processor = over(rounds, func(i int) float64 { return milliseconds(rounds[i].used) })
	c.octets = over(rounds, func(i int) float64 { return rounds[i].octets })
	return c
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
