package evidence

import (
	"cmp"
	"slices"
	"time"
)

// By is what events are counted by.
type By string

// What events are counted by.
const (
	BySubject By = "subject"
	ByClient  By = "client"
	ByRoute   By = "route"
)

// Bys returns what events can be counted by.
func Bys() []By { return []By{BySubject, ByClient, ByRoute} }

const (
	// period is the time after which counts are those of the period before. Counts are of one
	// or two periods, so that they say what is going on now.
	period = 15 * time.Minute
	// maxKeys is the number of keys of a summary: those with more than one in maxKeys of the
	// events of its reason are found for sure.
	maxKeys = 64
)

// Item is a key and the number of its events.
type Item struct {
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
	Key    string `json:"key"`
	// Count is a lower bound of the number, but for sampling.
	Count int `json:"count"`
	// Share is Count as a part of all events of the kind with a reason that was asked for.
	Share float64 `json:"share"`
}

// Top are the keys with most events.
type Top struct {
	Since time.Time `json:"since"`
	Items []Item    `json:"items"`
}

// TopQuery selects what is counted.
type TopQuery struct {
	Kind    string   // all kinds when empty
	Reasons []string // all that are not usual when empty
	By      By
	Limit   int
}

// Top returns the keys with most events of the last 15 to 30 minutes, the most frequent first.
func (r *Ring) Top(q TopQuery) Top {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drainLocked()
	selected := make(map[queueKey]bool)
	for _, s := range r.sources {
		for _, reason := range s.cfg.Reasons {
			isAsked := slices.Contains(q.Reasons, reason.Word) || len(q.Reasons) == 0 && !reason.Usual
			if isAsked && (q.Kind == "" || q.Kind == s.cfg.Kind) {
				selected[queueKey{s.cfg.Kind, reason.Word}] = true
			}
		}
	}
	return r.counts.top(selected, q.By, q.Limit)
}

// counts are the counts of the present period and of the one before.
type counts struct {
	now, before generation
}

// generation are the counts of a period.
type generation struct {
	since     time.Time
	totals    map[queueKey]int
	summaries map[summaryKey]*summary
}

type summaryKey struct {
	queueKey
	by By
}

func newCounts(now time.Time) counts {
	return counts{now: newGeneration(now), before: newGeneration(now)}
}

func newGeneration(since time.Time) generation {
	return generation{since: since, totals: make(map[queueKey]int), summaries: make(map[summaryKey]*summary)}
}

// rotate begins a period if the present one is over.
func (c *counts) rotate(now time.Time) {
	since := now.Sub(c.now.since)
	switch {
	case since >= 2*period:
		*c = newCounts(now)
	case since >= period:
		c.before, c.now = c.now, newGeneration(now)
	}
}

// count counts an event by all that it has.
func (c *counts) count(e *Event) {
	key := queueKey{e.Kind, e.Reason}
	c.now.totals[key] += e.Weight
	for by, text := range map[By]string{BySubject: e.Subject, ByClient: e.client(), ByRoute: e.Route} {
		if text == "" {
			continue
		}
		s := c.now.summaries[summaryKey{key, by}]
		if s == nil {
			s = newSummary()
			c.now.summaries[summaryKey{key, by}] = s
		}
		s.add(text, e.Weight)
	}
}

// client is the client's key: its Pod if that is known.
func (e *Event) client() string {
	if e.Pod != "" {
		return e.Pod
	}
	return e.ClientText()
}

// top returns the keys with most events for the selected reasons.
func (c *counts) top(selected map[queueKey]bool, by By, limit int) Top {
	t := Top{Since: c.before.since, Items: []Item{}}
	all := make(map[string]int) // by kind
	for key := range selected {
		all[key.kind] += c.now.totals[key] + c.before.totals[key]
		found := make(map[string]int)
		for _, g := range []*generation{&c.now, &c.before} {
			if s := g.summaries[summaryKey{key, by}]; s != nil {
				s.addTo(found)
			}
		}
		for text, n := range found {
			t.Items = append(t.Items, Item{Kind: key.kind, Reason: key.reason, Key: text, Count: n})
		}
	}
	slices.SortFunc(t.Items, func(a, b Item) int {
		return cmp.Or(
			cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Key, b.Key),
		)
	})
	t.Items = t.Items[:min(limit, len(t.Items))]
	for i := range t.Items {
		item := &t.Items[i]
		item.Share = float64(item.Count) / float64(all[item.Kind])
	}
	return t
}

// summary is a Space-Saving summary: the frequent keys of a stream.
type summary struct {
	index    map[string]int // of the key's counter
	counters []counter
}

// counter counts a key. excess is the count that its place had before the key got it, which may or
// may not have been the key's.
type counter struct {
	key           string
	count, excess int
}

func newSummary() *summary { return &summary{index: make(map[string]int)} }

// add counts a key. A new one gets the place of the key with the lowest count.
func (s *summary) add(key string, weight int) {
	at, known := s.index[key]
	switch {
	case known:
		s.counters[at].count += weight
		return
	case len(s.counters) < maxKeys:
		s.index[key] = len(s.counters)
		s.counters = append(s.counters, counter{key: key, count: weight})
		return
	}
	at = 0
	for i := range s.counters {
		if s.counters[i].count < s.counters[at].count {
			at = i
		}
	}
	lowest := &s.counters[at]
	delete(s.index, lowest.key)
	s.index[key] = at
	*lowest = counter{key: key, count: lowest.count + weight, excess: lowest.count}
}

// addTo adds the counts that are certain to those in sums.
func (s *summary) addTo(sums map[string]int) {
	for _, c := range s.counters {
		sums[c.key] += c.count - c.excess
	}
}
