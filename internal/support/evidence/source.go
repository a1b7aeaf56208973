package evidence

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// The default size of a seat, in events, and in octets for the texts of one: with its spare a
// seat has 25 kB.
const (
	seatEvents = 64
	eventText  = 64
)

// SourceConfig configures a Source.
type SourceConfig struct {
	// Kind is the kind of all its events, such as "query".
	Kind string
	// Reasons are those that events can have; they are referred to by index.
	Reasons []Reason
	// Seats is the number of buffers; at least 1. Samplers of one seat wait for each other.
	Seats int
	// Buffer is the number of events that a seat has room for; 0 is 64.
	Buffer int
	// Pod returns the Pod that has an address, as NAMESPACE/NAME, empty if none is known. Nil
	// knows none. Producers do not wait for it.
	Pod func(netip.Addr) string
}

// Source is a producer of events of one kind. A nil Source has nil Samplers, and observes nothing.
type Source struct {
	cfg   SourceConfig
	ring  *Ring
	seats []*seat
	pool  sync.Pool // of *Sampler
	next  atomic.Uint32
}

// Source adds a source. That of a nil Ring is nil.
func (r *Ring) Source(cfg SourceConfig) *Source {
	if r == nil {
		return nil
	}
	s := &Source{cfg: cfg, ring: r}
	for range max(cfg.Seats, 1) {
		s.seats = append(s.seats, newSeat(cmp.Or(cfg.Buffer, seatEvents)))
	}
	s.pool.New = func() any { return s.Sampler(int(s.next.Add(1) % uint32(len(s.seats)))) }
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sources = append(r.sources, s)
	return s
}

// Sampler returns a Sampler of a seat, which is any number from 0 on. That of a nil Source is nil.
func (s *Source) Sampler(seat int) *Sampler {
	if s == nil {
		return nil
	}
	return &Sampler{
		source: s, seat: s.seats[seat%len(s.seats)], left: s.ring.untilNext(),
		allowances: make([]allowance, len(s.cfg.Reasons)),
	}
}

// Observe records an event if it is drawn; fill sets what Sample says of it, but for Reason, Weight
// and Time. Several goroutines may call it.
func (s *Source) Observe(reason int, now time.Time, fill func(*Sample)) {
	if s == nil {
		return
	}
	sampler := s.pool.Get().(*Sampler)
	defer s.pool.Put(sampler)
	if weight := sampler.Draw(reason, now); weight > 0 {
		e := Sample{Reason: reason, Weight: weight, Time: now}
		fill(&e)
		sampler.Record(&e)
	}
}

// Sampler draws the events of one goroutine that are recorded.
type Sampler struct {
	source     *Source
	seat       *seat
	left       int         // events until the next one is drawn
	allowances []allowance // by reason
}

// allowance is how many events of a reason are all recorded in a second.
type allowance struct {
	second int64 // Unix time
	used   int
}

// Draw returns the weight of an event, 0 if it is not to be recorded. It costs a decrement and a
// branch for usual events that are not.
func (s *Sampler) Draw(reason int, now time.Time) (weight int) {
	if !s.source.cfg.Reasons[reason].Usual && s.isAllowed(reason, now) {
		return 1
	}
	if s.left--; s.left > 0 {
		return 0
	}
	s.left = s.source.ring.untilNext()
	return s.source.ring.cfg.OneIn
}

// isAllowed uses the allowance of a reason.
func (s *Sampler) isAllowed(reason int, now time.Time) bool {
	a := &s.allowances[reason]
	if second := now.Unix(); second != a.second {
		*a = allowance{second: second}
	}
	if a.used >= s.source.ring.cfg.PerSecond {
		return false
	}
	a.used++
	return true
}

// untilNext returns the number of events up to the next one that is drawn, with that one. Each
// is drawn with the same chance, whatever came before, so that nothing periodic is missed and
// a Sampler may be thrown away at any time.
func (r *Ring) untilNext() int {
	// An exponential distribution, rounded up, is a geometric one. Of one in 1 the mean is 0.
	return 1 + int(rand.ExpFloat64()*r.interval)
}

// Sample is an event as a producer has it. It is copied.
type Sample struct {
	Reason, Weight int
	Time           time.Time
	Client         netip.Addr
	Pod            string // the client's, if the producer knows it
	// Subject, Detail and Route are cut to MaxText octets. They should be printable.
	Subject, Detail []byte
	Route           string
	// Scheme is that of a request's URL, a constant.
	Scheme string
}

// Record records an event. It allocates nothing.
func (s *Sampler) Record(e *Sample) {
	if s.seat.insert(e, s.source.ring.cfg.Mask) || s.source.ring.following.Load() > 0 {
		s.source.ring.wakeUp()
	}
}

// seat is a buffer for events.
type seat struct {
	mu                sync.Mutex
	now, spare        buffer
	recorded, dropped uint64
}

// buffer has events, and their subjects and details one after another. Both have a fixed capacity.
type buffer struct {
	entries []entry
	text    []byte
}

// entry is an event in a buffer.
type entry struct {
	time            int64 // nanoseconds of Unix time
	client          netip.Prefix
	pod, route      string
	scheme          string
	weight          int
	reason          int
	subject, detail int // octets of the text
}

func newSeat(events int) *seat {
	fresh := func() buffer { return buffer{make([]entry, 0, events), make([]byte, 0, events*eventText)} }
	return &seat{now: fresh(), spare: fresh()}
}

// insert adds an event, or counts it as dropped. It reports whether the seat should be drained.
func (s *seat) insert(e *Sample, mask Mask) (full bool) {
	subject, detail := cut(e.Subject), cut(e.Detail)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &s.now
	s.recorded++
	if len(b.entries) == cap(b.entries) || len(b.text)+len(subject)+len(detail) > cap(b.text) {
		s.dropped++
		return true
	}
	b.text = append(append(b.text, subject...), detail...)
	added := entry{
		time: e.Time.UnixNano(), client: mask.client(e.Client), route: cut(e.Route), weight: e.Weight, reason: e.Reason,
		subject: len(subject), detail: len(detail), scheme: e.Scheme,
	}
	if mask == MaskNone {
		added.pod = e.Pod
	}
	b.entries = append(b.entries, added)
	return len(b.entries) >= cap(b.entries)/2 || len(b.text) >= cap(b.text)/2
}

// cut returns at most MaxText octets, and no part of a character at their end.
func cut[T string | []byte](text T) T {
	if len(text) <= MaxText {
		return text
	}
	end := MaxText
	for end > MaxText-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// take returns the buffer with the events, and lets the seat go on with its spare, which must not
// be in use any more.
func (s *seat) take() buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now, s.spare = s.spare, s.now
	s.now.entries, s.now.text = s.now.entries[:0], s.now.text[:0]
	return s.spare
}

// appendEvents appends the events of a seat, which is empty then. The caller holds the Ring's lock.
func (s *Source) appendEvents(all []*Event, of *seat) []*Event {
	b := of.take()
	text := b.text
	for i := range b.entries {
		e := &b.entries[i]
		event := &Event{
			Time: time.Unix(0, e.time), Kind: s.cfg.Kind, Reason: s.cfg.Reasons[e.reason].Word, Client: e.client, Pod: e.pod,
			Subject: string(text[:e.subject]), Detail: string(text[e.subject : e.subject+e.detail]),
			Scheme: e.scheme, Route: strings.Clone(e.route), Weight: e.weight, Usual: s.cfg.Reasons[e.reason].Usual,
		}
		text = text[e.subject+e.detail:]
		if event.Pod == "" && s.cfg.Pod != nil && s.ring.cfg.Mask == MaskNone && e.client.IsValid() {
			event.Pod = s.cfg.Pod(e.client.Addr())
		}
		all = append(all, event)
		*e = entry{} // keeps no texts alive
	}
	return all
}

// figures returns how many events were recorded, and how many of them dropped.
func (s *Source) figures() (recorded, dropped uint64) {
	for _, of := range s.seats {
		of.mu.Lock()
		recorded, dropped = recorded+of.recorded, dropped+of.dropped
		of.mu.Unlock()
	}
	return recorded, dropped
}
