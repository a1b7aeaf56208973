// Package load sends queries to a DNS server from one thread: in a closed loop, as fast
// as the server answers, or in an open loop at a fixed rate.
//
// It never sleeps during a measurement, so that no server pays for waking it. The
// queries are encoded in advance, and one system call sends or receives many.
package load

import (
	"fmt"
	"net/netip"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// Transport is the transport of queries.
type Transport string

// The transports.
const (
	UDP            Transport = "UDP"
	TCP            Transport = "TCP, pipelined"
	TLS            Transport = "TLS, pipelined"
	Connections    Transport = "TCP, a connection per query"
	TLSConnections Transport = "TLS, a connection per query"
)

// Secure reports whether the transport uses TLS.
func (t Transport) Secure() bool { return t == TLS || t == TLSConnections }

// Once reports whether each connection has one query. Such transports have no open
// loop.
func (t Transport) Once() bool { return t == Connections || t == TLSConnections }

// Config configures a measurement.
type Config struct {
	Server    netip.AddrPort
	Transport Transport
	// Sockets is the number of the client's sockets.
	Sockets int
	// Window is the number of outstanding queries in a closed loop.
	Window int
	// Rate is the number of queries per second in an open loop; 0 selects the closed
	// loop.
	Rate int
	// Warm is the time of the load before the measurement. Duration is the length of
	// the measurement.
	Warm, Duration time.Duration
	// Queries is a file written by WriteQueries. The queries are sent in rotation.
	Queries string
	// Patience is the timeout of a query; 0 is one second.
	Patience time.Duration
	// Roots is a PEM file with trusted certificates for TLS.
	Roots string
	// Processes are the server's processes on this machine.
	Processes []int
}

// Result is the result of a measurement.
type Result struct {
	Elapsed time.Duration
	// Answered is the number of answers during Elapsed. In an open loop it includes
	// later answers to queries sent during that time.
	Answered  int
	Lost      int // not answered in time
	RCodes    [16]int
	Truncated int
	Octets    int // of the answers
	// ServerTime is the processor time of the server's processes.
	ServerTime time.Duration
	// OwnTime is the processor time of this process.
	OwnTime time.Duration
	// Others is the share of all processors that other programs used.
	Others float64
	// P50, P99 and P999 are latencies in an open loop, measured from the time when each
	// query was due. They are 0 if no slice was quiet.
	P50, P99, P999 time.Duration
	// Slices is the number of slices of an open loop, of a tenth of a second each.
	// Quiet is the number of quiet slices, which are those used for P50, P99 and P999:
	// the host took no time from this machine in the slice or in the one before.
	Slices, Quiet int
	// Whole is the latency of all answers in an open loop, regardless of the host. It
	// is for effects that last much longer than the host's.
	Whole Latency
}

// Latency has the quantiles of latencies.
type Latency struct{ P50, P99, Most time.Duration }

// usualPatience is the default timeout of a query.
const usualPatience = time.Second

// generator is the state of one run.
type generator struct {
	*Config
	began   time.Time // when the sockets had been opened
	queries [][]byte
	next    int // index of the next query
	// patience is the timeout of a query.
	patience time.Duration
	counts
	slices *rig.Slices // of open loops

	asking  [][]byte             // the queries being sent
	hearing *book                // of the socket being read
	heardAt time.Duration        // the time of that read
	note    func(message []byte) // allocated once, to avoid garbage
}

// counts are the counters of a run.
type counts struct {
	answered, lost    int
	rcodes            [16]int
	truncated, octets int
}

// moment is the state at the beginning or at the end of the measurement.
type moment struct {
	at, server, own time.Duration
	usage           rig.Usage
	counts
}

// Run runs the measurement.
func Run(c *Config) (*Result, error) {
	queries, err := readQueries(c.Queries)
	if err != nil {
		return nil, err
	}
	g := &generator{Config: c, queries: queries, asking: make([][]byte, 0, batch)}
	g.note = g.noteMessage
	g.patience = usualPatience
	if c.Patience > 0 {
		g.patience = c.Patience
	}
	loop := g.closedLoop
	if c.Rate > 0 {
		loop = g.openLoop
	}
	switch c.Transport {
	case Connections:
		loop = g.connectionLoop
	case TLSConnections:
		loop = g.tlsConnectionLoop
	}
	first, last, err := loop()
	if err != nil {
		return nil, err
	}
	return g.result(first, last), nil
}

func (g *generator) result(first, last *moment) *Result {
	r := &Result{
		Elapsed: last.at - first.at, ServerTime: last.server - first.server, OwnTime: last.own - first.own,
		Answered: last.answered - first.answered, Lost: g.lost - first.lost,
		Truncated: last.truncated - first.truncated, Octets: last.octets - first.octets,
	}
	used := last.usage.Used - first.usage.Used - r.ServerTime - r.OwnTime
	r.Others = max(0, float64(used)/float64(last.usage.All-first.usage.All))
	for i := range r.RCodes {
		r.RCodes[i] = last.rcodes[i] - first.rcodes[i]
	}
	if s := g.slices; s != nil {
		r.P50, r.P99, r.P999 = rig.Quantile(s.Kept, .5), rig.Quantile(s.Kept, .99), rig.Quantile(s.Kept, .999)
		r.Slices, r.Quiet = s.Ended, s.Quiet
		r.Whole = Latency{rig.Quantile(s.All, .5), rig.Quantile(s.All, .99), rig.Quantile(s.All, 1)}
	}
	return r
}

// now returns the time since the start of the load.
func (g *generator) now() time.Duration { return time.Since(g.began) }

func (g *generator) look() (*moment, error) {
	server, err := rig.ProcessorTime(g.Processes)
	if err != nil {
		return nil, err
	}
	own, err := rig.ProcessorTime([]int{0})
	return &moment{g.now(), server, own, rig.ReadUsage(), g.counts}, err
}

// measured calls pass repeatedly, first to warm up and then for the duration of the
// measurement.
func (g *generator) measured(pass func(now time.Duration) error) (first, last *moment, err error) {
	g.began = time.Now()
	for {
		now := g.now()
		switch {
		case first == nil && now >= g.Warm:
			if first, err = g.look(); err != nil {
				return nil, nil, err
			}
		case now >= g.Warm+g.Duration:
			last, err = g.look()
			return first, last, err
		}
		if err := pass(now); err != nil {
			return nil, nil, err
		}
	}
}

// take returns the next query. The caller sets its ID.
func (g *generator) take() []byte {
	q := g.queries[g.next]
	g.next++
	if g.next == len(g.queries) {
		g.next = 0
	}
	return q
}

// untake returns the last n queries.
func (g *generator) untake(n int) {
	g.next = (g.next - n + len(g.queries)) % len(g.queries)
}

const (
	headerLen = 12 // RFC 1035, section 4.1.1
	minQuery  = headerLen + 1
)

// count counts an answer.
func (g *generator) count(answer []byte) {
	const truncated = 0x02
	g.answered++
	g.rcodes[answer[3]&0xf]++
	g.octets += len(answer)
	if answer[2]&truncated != 0 {
		g.truncated++
	}
}

// isAnswer reports whether a message is a response.
func isAnswer(message []byte) bool {
	const response = 0x80
	return len(message) >= headerLen && message[2]&response != 0
}

// errorAt adds the server and the transport to an error.
func (g *generator) errorAt(err error) error {
	return fmt.Errorf("%s, %s: %w", g.Server, g.Transport, err)
}
