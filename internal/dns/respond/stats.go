package respond

import (
	"slices"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// Stats counts queries and answers. Workers count in shards, so that they do
// not wait for each other; readers add the shards up.
type Stats struct {
	zones  []dnsname.Name
	shards []*shard
}

// shard holds the counters of the Workers of one seat. Like each object of its
// size it shares no cache line: counting in a line that another processor writes,
// too, costs more than an answer.
type shard struct {
	requests []atomic.Uint64 // by series
	dropped  [transports]atomic.Uint64
	ede      [edeCodes]atomic.Uint64
	refused  atomic.Uint64 // queries that lost their places among those that wait
	reasons  [zone.Reasons]atomic.Uint64
	searches [searchKinds][searchEnds]atomic.Uint64
	duration [transports]histogram
	query    [transports]histogram
	response [transports]histogram
}

// Labels of the series, and how many values each has.
const (
	transports = 4
	families   = 2
	edeCodes   = 32 // RFC 8914 and what was registered since; the last one counts all above
)

// Labels of searches: what carries the search paths, and the result.
const (
	searchKinds = 2
	searchEnds  = 3
)

// searchEnd is the label of a search's result.
func searchEnd(o outcome) int {
	switch o {
	case answered:
		return 0
	case denied:
		return 1
	default:
		return 2
	}
}

// countedTypes are the types with a label of their own; all others are the first.
var countedTypes = [...]dnswire.Type{
	0, dnswire.TypeA, dnswire.TypeAAAA, dnswire.TypeSRV, dnswire.TypePTR, dnswire.TypeCNAME, dnswire.TypeNS,
	dnswire.TypeSOA, dnswire.TypeTXT, dnswire.TypeANY,
}

// otherType is the label of all types without one of their own.
const otherType = "other"

// NewStats makes Stats with a label for each of the zones, in so many shards.
func NewStats(zones []dnsname.Name, shards int) *Stats {
	s := &Stats{zones: zones}
	series := transports * families * (len(zones) + 1) * len(countedTypes) * len(rcodes)
	for range max(1, shards) {
		s.shards = append(s.shards, &shard{requests: make([]atomic.Uint64, series)})
	}
	return s
}

// Zones are the zones with a label of their own; queries outside them count as
// the root.
func (s *Stats) Zones() []dnsname.Name { return s.zones }

// shard returns the shard of a seat.
func (s *Stats) shard(seat int) *shard { return s.shards[seat%len(s.shards)] }

// count counts a query with an answer of so many octets.
func (w *Worker) count(x *exchange, v *verdict, answer int, elapsed time.Duration) {
	c, t := w.counts, int(x.client.Transport)
	c.query[t].observe(sizeBuckets[:], uint64(len(x.packet)))
	if v.outcome == dropped {
		c.dropped[t].Add(1)
		return
	}
	family := 0
	if x.client.Addr.Is6() {
		family = 1
	}
	series := t
	series = series*families + family
	series = series*(len(w.cfg.Stats.zones)+1) + w.zoneIndex(v.zone)
	series = series*len(countedTypes) + typeIndex(x.query.Type)
	series = series*len(rcodes) + int(v.outcome)
	c.requests[series].Add(1)
	c.response[t].observe(sizeBuckets[:], uint64(answer))
	c.duration[t].observe(durationBuckets[:], uint64(elapsed))
	if v.outcome == failed && slices.ContainsFunc(w.replies, upstreamReply.isRefused) {
		c.refused.Add(1)
	}
	if v.search != notSearched {
		c.searches[v.search-searchByName][searchEnd(v.outcome)].Add(1)
	}
	if why := v.reason().Why(); why != zone.Implied {
		c.reasons[why].Add(1)
	}
	if v.ede != nil {
		c.ede[min(v.ede.Code, edeCodes-1)].Add(1)
	}
	if v.stale != nil {
		c.ede[min(v.stale.Code, edeCodes-1)].Add(1)
	}
}

// zoneIndex is the zone's label: its position, from 1, or 0 for none.
func (w *Worker) zoneIndex(zone *dnswire.SOA) int {
	if zone == nil {
		return 0
	}
	for i, z := range w.cfg.Stats.zones {
		if z == zone.Zone {
			return i + 1
		}
	}
	return 0
}

func typeIndex(t dnswire.Type) int {
	for i := 1; i < len(countedTypes); i++ {
		if countedTypes[i] == t {
			return i
		}
	}
	return 0
}

// Upper bounds of the buckets of histograms: nanoseconds, and octets.
var (
	durationBuckets = [...]uint64{
		1e3, 2e3, 5e3, 10e3, 20e3, 50e3, 100e3, 500e3, 1e6, 5e6, 10e6, 50e6, 100e6, 500e6, 1e9, 5e9,
	}
	sizeBuckets = [...]uint64{64, 128, 256, 512, 1024, 1232, 2048, 4096, 8192, 16384, 32768, 65535}
)

const maxBuckets = len(durationBuckets)

// histogram counts values by the first bucket that holds them.
type histogram struct {
	buckets [maxBuckets + 1]atomic.Uint64
	sum     atomic.Uint64
}

func (h *histogram) observe(bounds []uint64, v uint64) {
	i := 0
	for i < len(bounds) && v > bounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.sum.Add(v)
}

// Requests is the number of queries with the same labels.
type Requests struct {
	Transport string // udp, tcp, tls or https
	Family    string // of the client's address: ipv4 or ipv6
	Zone      string
	Type      string
	RCode     string
	Count     uint64
}

// Searches is the number of searches with the same labels.
type Searches struct {
	By    string // what carries the search paths: name or option
	End   string // found, none or failed
	Count uint64
}

// Histogram is a distribution of values.
type Histogram struct {
	Transport string
	// Buckets are the numbers of values up to an upper bound.
	Buckets map[float64]uint64
	Count   uint64
	Sum     float64
}

// Counts is the contents of Stats. Zeros are left out.
type Counts struct {
	Requests []Requests
	// Dropped are queries without an answer, by transport.
	Dropped map[string]uint64
	// EDE are Extended DNS Errors, by code.
	EDE map[uint16]uint64
	// Refused are queries that failed because too many were waiting for upstreams.
	Refused uint64
	// Reasons are those of negative and stale answers, by zone.Reason's text.
	Reasons map[string]uint64
	// Searches are queries whose names were searched for.
	Searches []Searches
	// Duration is the time from receiving a query to its answer, in seconds,
	// without sending; sizes are in octets.
	Duration, QuerySize, ResponseSize []Histogram
}

// transportNames and familyNames are the values of these labels.
var (
	transportNames = [transports]string{UDP: "udp", TCP: "tcp", TLS: "tls", HTTPS: "https"}
	familyNames    = [families]string{"ipv4", "ipv6"}
	searchNames    = [searchKinds]string{"name", "option"}
	searchEndNames = [searchEnds]string{"found", "none", "failed"}
)

// Counts adds up the shards.
func (s *Stats) Counts() Counts {
	c := Counts{Dropped: make(map[string]uint64), EDE: make(map[uint16]uint64), Reasons: make(map[string]uint64)}
	c.Requests = s.requests()
	c.Refused = s.sum(func(sh *shard) *atomic.Uint64 { return &sh.refused })
	for reason := range zone.Reasons {
		if n := s.sum(func(sh *shard) *atomic.Uint64 { return &sh.reasons[reason] }); n > 0 {
			c.Reasons[reason.String()] = n
		}
	}
	for code := range edeCodes {
		if n := s.sum(func(sh *shard) *atomic.Uint64 { return &sh.ede[code] }); n > 0 {
			c.EDE[uint16(code)] = n
		}
	}
	for by, name := range searchNames {
		for end, ended := range searchEndNames {
			if n := s.sum(func(sh *shard) *atomic.Uint64 { return &sh.searches[by][end] }); n > 0 {
				c.Searches = append(c.Searches, Searches{name, ended, n})
			}
		}
	}
	for t, name := range transportNames {
		if n := s.sum(func(sh *shard) *atomic.Uint64 { return &sh.dropped[t] }); n > 0 {
			c.Dropped[name] = n
		}
		for _, h := range []struct {
			into   *[]Histogram
			of     func(*shard) *histogram
			bounds []uint64
			unit   float64
		}{
			{&c.Duration, func(sh *shard) *histogram { return &sh.duration[t] }, durationBuckets[:], 1e-9},
			{&c.QuerySize, func(sh *shard) *histogram { return &sh.query[t] }, sizeBuckets[:], 1},
			{&c.ResponseSize, func(sh *shard) *histogram { return &sh.response[t] }, sizeBuckets[:], 1},
		} {
			if made := s.histogram(h.of, h.bounds, h.unit); made.Count > 0 {
				made.Transport = name
				*h.into = append(*h.into, made)
			}
		}
	}
	return c
}

func (s *Stats) sum(of func(*shard) *atomic.Uint64) (n uint64) {
	for _, sh := range s.shards {
		n += of(sh).Load()
	}
	return n
}

// requests returns the counters by label. It takes each series' number apart, as
// count puts it together.
func (s *Stats) requests() (all []Requests) {
	for series := range s.shards[0].requests {
		n := s.sum(func(sh *shard) *atomic.Uint64 { return &sh.requests[series] })
		if n == 0 {
			continue
		}
		r := Requests{Zone: dnsname.Root.String(), Type: otherType, Count: n}
		rest := series
		take := func(of int) int {
			i := rest % of
			rest /= of
			return i
		}
		r.RCode = rcodes[take(len(rcodes))].String()
		if i := take(len(countedTypes)); i > 0 {
			r.Type = countedTypes[i].String()
		}
		if i := take(len(s.zones) + 1); i > 0 {
			r.Zone = s.zones[i-1].String()
		}
		r.Family = familyNames[take(families)]
		r.Transport = transportNames[rest]
		all = append(all, r)
	}
	return all
}

func (s *Stats) histogram(of func(*shard) *histogram, bounds []uint64, unit float64) Histogram {
	made := Histogram{Buckets: make(map[float64]uint64, len(bounds))}
	for i := range len(bounds) + 1 {
		made.Count += s.sum(func(sh *shard) *atomic.Uint64 { return &of(sh).buckets[i] })
		if i < len(bounds) {
			made.Buckets[float64(bounds[i])*unit] = made.Count
		}
	}
	made.Sum = float64(s.sum(func(sh *shard) *atomic.Uint64 { return &of(sh).sum })) * unit
	return made
}
