package forwarding

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/bench/allnames"
	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// answered returns a sample at a fixed rate with this cost per query and p99, in
// microseconds.
func answered(cost, p99 int) *sample {
	r := &load.Result{
		Answered: 1000, ServerTime: time.Duration(1000*cost) * time.Microsecond,
		P99: time.Duration(p99) * time.Microsecond, Quiet: 1,
	}
	r.RCodes[dnswire.NoError] = r.Answered
	r.Whole = load.Latency{P99: r.P99, Most: r.P99}
	return &sample{steady: r}
}

func TestGoals(t *testing.T) {
	saturated := func(cost int) *sample {
		s := answered(cost, 0)
		s.saturated, s.steady = s.steady, nil
		return s
	}
	for what, c := range map[string]struct {
		samples map[row]map[string][]*sample
		want    string
	}{
		"CoreDNS at four times": {map[row]map[string][]*sample{rowHit: {portolan: {saturated(4)}, coreDNS: {saturated(16)}}},
			"CoreDNS | 0.25 (0.25 to 0.25) | ≤ 1/4 | met"},
		"CoreDNS at twice": {map[row]map[string][]*sample{rowHit: {portolan: {saturated(4)}, coreDNS: {saturated(8)}}},
			"CoreDNS | 0.50 (0.50 to 0.50) | ≤ 1/4 | missed"},
		"Unbound": {map[row]map[string][]*sample{rowHit: {portolan: {saturated(4)}, unbound: {saturated(4)}}},
			"Unbound | 1.00 (1.00 to 1.00) | ≤ 1.20 | met"},
		"slow without one upstream": {map[row]map[string][]*sample{rowDead: {portolan: {answered(1, 30)}}, rowGood: {portolan: {answered(1, 10)}}},
			"good | 3.00 (3.00 to 3.00) | ≤ 2.00 | missed"},
		"alone": {map[row]map[string][]*sample{rowHit: {portolan: {saturated(4)}}}, ""},
	} {
		var s strings.Builder
		(&results{samples: c.samples}).writeGoals(&s)
		if !strings.Contains(s.String(), c.want) || c.want == "" && s.Len() > 0 {
			t.Errorf("%s: the goals are\n%swant %q", what, &s, c.want)
		}
	}
}

func TestFailedAndLostAreApart(t *testing.T) {
	s := answered(1, 1)
	s.steady.Lost = 3
	s.steady.RCodes[dnswire.NoError], s.steady.RCodes[dnswire.ServFail] = 990, 10
	for what, c := range map[string]struct {
		of   figure
		want float64
	}{"lost": {lost, 3}, "failed": {failed, 10}} {
		if got, _ := c.of(s); got != c.want {
			t.Errorf("%.0f %s, want %.0f", got, what, c.want)
		}
	}
}

func TestUnevenSamplesHaveLatencyOfAllMomentsOnly(t *testing.T) {
	s := answered(1, 10)
	if _, ok := p99(s); !ok {
		t.Error("an even sample has no p99")
	}
	s.uneven = true
	if _, ok := p99(s); ok {
		t.Error("an uneven sample has a p99 of quiet moments")
	}
	if got, _ := whole99(s); got != 10 {
		t.Errorf("p99 of all moments is %.0f, want 10", got)
	}
}

func TestTableHasChosenRowsOnly(t *testing.T) {
	b := &bench{settings: new(settings), entrants: []*entrant{{name: portolan}, {name: coreDNS}}}
	r := &results{samples: map[row]map[string][]*sample{rowMuch: {portolan: {answered(1, 5)}, coreDNS: {answered(2, 50)}}}}
	var s strings.Builder
	b.writeMisses(&s, r)
	for part, want := range map[string]bool{string(rowMuch): true, string(rowStall): false, "0.10 (0.10 to 0.10)": true} {
		if strings.Contains(s.String(), part) != want {
			t.Errorf("the table has %q: %t, want %t\n%s", part, !want, want, &s)
		}
	}
	width := -1
	for line := range strings.Lines(strings.TrimSpace(s.String())) {
		if n := strings.Count(line, "|"); width >= 0 && n != width {
			t.Errorf("a line has %d cells, the one before %d: %s", n, width, line)
		} else {
			width = n
		}
	}
}

func TestNamesAreNew(t *testing.T) {
	b := new(bench)
	seen := make(map[string]bool)
	for _, name := range append(b.newNames(100), b.newNames(100)...) {
		if seen[name] {
			t.Fatalf("%s comes again", name)
		}
		seen[name] = true
	}
}

// serve runs a server that answers queries with answer.
func serve(t *testing.T, answer func(query []byte) []byte) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(answer(buf[:n]), from)
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestFillComparesAnswers(t *testing.T) {
	right := func(query []byte) []byte {
		answer, _ := allnames.AppendAnswer(nil, query, 60)
		return answer
	}
	for what, c := range map[string]struct {
		answer func(query []byte) []byte
		good   bool
	}{
		"the right address": {right, true},
		"another address": {func(query []byte) []byte {
			answer := right(query)
			answer[len(answer)-1]++
			return answer
		}, false},
		"SERVFAIL": {func(query []byte) []byte {
			query[2] |= 0x80
			query[3] |= byte(dnswire.ServFail)
			return query
		}, false},
	} {
		if err := fill(t.Context(), serve(t, c.answer), new(bench).newNames(50)); (err == nil) != c.good {
			t.Errorf("%s: fill gives %v", what, err)
		}
	}
}

func TestZipf(t *testing.T) {
	const names, queries = 1000, 200_000
	z := newZipf(names)
	random := rand.New(rand.NewPCG(1, 2))
	counts := make([]float64, names)
	for range queries {
		counts[z.choose(random)]++
	}
	for n, want := range map[int]float64{0: 1, 1: 1. / 2, 9: 1. / 10} {
		if got := counts[n] / counts[0]; got < .9*want || got > 1.1*want {
			t.Errorf("name %d is asked for %.3f times as often as the first, want %.3f", n, got, want)
		}
	}
}

// plenty is a store that never evicts a name.
type plenty map[uint32]bool

func (p plenty) use(name uint32) (hit bool, err error) {
	hit, p[name] = p[name], true
	return hit, nil
}

func TestLedger(t *testing.T) {
	const names, queries, scan = 10, 2000, 300
	kept := make(plenty)
	l, err := replay(&trace{queries, scan, newZipf(names), rand.New(rand.NewPCG(1, 2))}, kept)
	if err != nil {
		t.Fatal(err)
	}
	want := ledger{before: tally{queries / 2, queries/2 - names}, during: tally{scan, 0}, after: tally{queries / 2, queries / 2}}
	if l != want || l.all() != (tally{queries + scan, queries - names}) {
		t.Errorf("the ledger is %+v, want %+v", l, want)
	}
	if len(kept) != names+scan {
		t.Errorf("%d names were asked for, want %d", len(kept), names+scan)
	}
}

func TestLRU(t *testing.T) {
	l := newLRU(20, 10) // room for two names
	for i, c := range []struct {
		name uint32
		hit  bool
	}{{1, false}, {2, false}, {1, true}, {3, false}, {1, true}, {2, false}, {3, false}} {
		if hit, _ := l.use(c.name); hit != c.hit {
			t.Errorf("use %d, of name %d: hit is %t", i, c.name, hit)
		}
	}
}

func TestAnswerStoreKeepsAnswers(t *testing.T) {
	weight, err := weightOfName()
	if err != nil || weight <= 0 {
		t.Fatalf("a name weighs %d, %v", weight, err)
	}
	s, err := newAnswerStore(100 * weight)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{false, true} {
		if hit, err := s.use(7); hit != want || err != nil {
			t.Errorf("use = %t, %v; want %t", hit, err, want)
		}
	}
}
