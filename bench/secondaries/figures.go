package secondaries

import (
	"time"

	"portolan.dev/portolan/bench/rig"
)

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// over returns the spread of a figure over the rounds. of receives the index of the
// round.
func over[T any](rounds []T, of func(i int) float64) rig.Spread {
	var numbers []float64
	for i := range rounds {
		numbers = append(numbers, of(i))
	}
	return rig.Over(numbers)
}

// cost is the cost of one item.
type cost struct{ processor, octets rig.Spread }

// perSecond returns the processor time of the server, in µs per second.
func (m *window) perSecond() float64 { return microseconds(m.server) / m.took.Seconds() }

// each returns a number counted by the followers, per second, scaled to include the
// agent, which is an additional follower.
func (m *window) each(counted float64) float64 {
	return counted / m.took.Seconds() * float64(m.nodes+1) / float64(m.nodes)
}

// notice returns the cost of a NOTIFY with its answer, for this number of followers:
// the processor time that the server used in addition to that without followers, in µs,
// and the octets.
func (h *half) notice(followers int) (c cost) {
	rounds := h.followers[followers]
	c.processor = over(rounds, func(i int) float64 {
		told := &rounds[i].told
		return (told.perSecond() - h.alone[i].perSecond()) / told.each(told.notices)
	})
	c.octets = over(rounds, func(i int) float64 { return rounds[i].told.noticeOctets / rounds[i].told.notices })
	return c
}

// transfer returns the cost of an IXFR: the processor time that the server used in
// addition to that for NOTIFY only.
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

// follows returns the spread of a figure over the measurements with transfers.
func (h *half) follows(followers int, of func(*window) float64) rig.Spread {
	rounds := h.followers[followers]
	return over(rounds, func(i int) float64 { return of(&rounds[i].follows) })
}

// noticed returns the number of NOTIFYs per follower and second.
func noticed(m *window) float64 { return m.notices / m.took.Seconds() / float64(m.nodes) }

// inOne returns the number of changes in an IXFR.
func inOne(m *window) float64 { return m.changes * float64(m.nodes) / m.transfers }

// inMessages returns the number of messages in an IXFR.
func inMessages(m *window) float64 { return m.messages / m.transfers }

// all returns the spread of a figure of whole transfers.
func (h *half) all(of func(*wholeZone) float64) rig.Spread {
	return over(h.whole, func(i int) float64 { return of(&h.whole[i]) })
}

// connection returns the server's memory for a follower, in KiB: its connection and its
// queries in progress.
func (h *half) connection(followers int) rig.Spread {
	const kib = 1024
	rounds := h.followers[followers]
	return over(rounds, func(i int) float64 {
		return (rounds[i].follows.memory - rounds[i].told.memory) * kib / float64(followers)
	})
}

// perSecond returns the processor time of the API server, in µs per second.
func (m *apiWindow) perSecond() float64 { return microseconds(m.used) / m.took.Seconds() }

// events returns the number of changes sent to this number of watchers per second.
func (m *apiWindow) events(watchers int) float64 {
	return m.changes / m.took.Seconds() * float64(watchers)
}

// event returns the cost of sending a change to one more watcher.
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

// content returns the octets of an event without HTTP and TLS.
func (r *apiResults) content(e encoding, watchers int) rig.Spread {
	rounds := r.watchers[e.name][watchers]
	return over(rounds, func(i int) float64 {
		return rounds[i].content / rounds[i].took.Seconds() / rounds[i].events(watchers)
	})
}

// list returns the cost of lists of all objects, with processor time in ms.
func (r *apiResults) list(e encoding) (c cost) {
	rounds := r.lists[e.name]
	c.processor = over(rounds, func(i int) float64 { return milliseconds(rounds[i].used) })
	c.octets = over(rounds, func(i int) float64 { return rounds[i].octets })
	return c
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
