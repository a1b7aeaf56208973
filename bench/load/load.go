// Package load asks a DNS server queries, in closed loop as fast as it answers,
// or in open loop at a fixed rate, from one thread.
//
// It never sleeps while it measures, so that no server is charged for waking
// it; the queries are in wire form from the start, and many go and come with
// one system call.
package load

import (
	"fmt"
	"net/netip"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// Transport is how queries get to the server.
type Transport string

// The transports.
const (
	UDP            Transport = "UDP"
	TCP            Transport = "TCP, pipelined"
	TLS            Transport = "TLS, pipelined"
	Connections    Transport = "TCP, a connection per query"
	TLSConnections Transport = "TLS, a connection per query"
)

// Secure reports whether it is over TLS.
func (t Transport) Secure() bool { return t == TLS || t == TLSConnections }

// Once reports whether a connection is for one query. There is no open loop, then.
func (t Transport) Once() bool { return t == Connections || t == TLSConnections }

// Config says what to ask whom.
type Config struct {
	Server    netip.AddrPort
	Transport Transport
	// Sockets is how many of them there are on the client's side.
	Sockets int
	// Window is how many queries are asked and not answered, in closed loop.
	Window int
	// Rate is how many queries are asked in a second, in open loop; 0 is
	// closed loop.
	Rate int
	// Warm is how long is asked before the measurement, and Duration its length.
	Warm, Duration time.Duration
	// Queries is a file that WriteQueries wrote. They are asked in turn.
	Queries string
	// Patience is how long an answer is waited for; 0 is a second.
	Patience time.Duration
	// Roots is a file with certificates (PEM) that are trusted, for TLS.
	Roots string
	// Processes are those of the server, on this machine.
	Processes []int
}

// Result is what was measured.
type Result struct {
	Elapsed time.Duration
	// Answered are the answers of that time; in open loop with those that came
	// later to what was asked in it.
	Answered  int
	Lost      int // not answered in time
	RCodes    [16]int
	Truncated int
	Octets    int // of answers
	// ServerTime is the processor time of the server's processes.
	ServerTime time.Duration
	// OwnTime is the processor time of this process.
	OwnTime time.Duration
	// Others is which part of all processors others used.
	Others float64
	// P50, P99 and P999 are how long answers took, in open loop: from the
	// moment that the query was due. They are 0 when no slice was quiet.
	P50, P99, P999 time.Duration
	// Slices are those parts of an open loop, of a tenth of a second each, and
	// Quiet those of them whose answers are in these: neither in them
	// nor just before did the host take time from this machine.
	Slices, Quiet int
	// Whole is of all answers of an open loop, whatever the host did meanwhile:
	// for what lasts so long that the host does not matter.
	Whole Latency
}

// Latency is how long answers took.
type Latency struct{ P50, P99, Most time.Duration }

// usualPatience is how long an answer is waited for where nothing else is said.
const usualPatience = time.Second

// generator is one run.
type generator struct {
	*Config
	began   time.Time // when the sockets were open
	queries [][]byte
	next    int // query
	// patience is how long an answer is waited for.
	patience time.Duration
	counts
	slices *rig.Slices // of open loops

	asking  [][]byte             // queries that are being asked
	hearing *book                // of the socket that is being heard
	heardAt time.Duration        // that moment, once it was taken
	note    func(message []byte) // made once, since it would be garbage each time
}

// counts are what is counted while it runs.
type counts struct {
	answered, lost    int
	rcodes            [16]int
	truncated, octets int
}

// moment is what is read when the measurement begins and when it ends.
type moment struct {
	at, server, own time.Duration
	usage           rig.Usage
	counts
}

// Run asks, and blocks until it is done.
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

// now is the time since queries are asked.
func (g *generator) now() time.Duration { return time.Since(g.began) }

func (g *generator) look() (*moment, error) {
	server, err := rig.ProcessorTime(g.Processes)
	if err != nil {
		return nil, err
	}
	own, err := rig.ProcessorTime([]int{0})
	return &moment{g.now(), server, own, rig.ReadUsage(), g.counts}, err
}

// measured runs pass again and again: first to warm up, then for as long as is
// measured.
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

// take is the next query. Its ID is still to be written.
func (g *generator) take() []byte {
	q := g.queries[g.next]
	g.next++
	if g.next == len(g.queries) {
		g.next = 0
	}
	return q
}

// untake gives the last n queries back.
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

// isAnswer reports whether a message is a response at all.
func isAnswer(message []byte) bool {
	const response = 0x80
	return len(message) >= headerLen && message[2]&response != 0
}

// errorAt says of which server an error is.
func (g *generator) errorAt(err error) error {
	return fmt.Errorf("%s, %s: %w", g.Server, g.Transport, err)
}
