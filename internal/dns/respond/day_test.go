package respond_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/support/budget"
)

// told is what an upstream said of a name: a number, as an address or, where it
// is 0, that there is none; for how long; and when.
type told struct {
	number uint32
	ttl    time.Duration
	at     time.Time
}

// whimsical is an upstream whose names change all the time, and that is slow,
// silent, or wrong at times.
type whimsical struct {
	mu   sync.Mutex
	rnd  *rand.Rand
	said map[string][]told
	bad  time.Time // until then it does not answer
}

var errSilent = errors.New("silence")

func (u *whimsical) exchange(ctx context.Context, _ forward.Upstream, query []byte) ([]byte, error) {
	u.mu.Lock()
	if u.rnd.IntN(2000) == 0 {
		u.bad = time.Now().Add(time.Duration(u.rnd.IntN(7200)) * time.Second)
	}
	silent := time.Now().Before(u.bad) || u.rnd.IntN(50) == 0
	delay := time.Duration(u.rnd.ExpFloat64() * float64(20*time.Millisecond))
	u.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, errSilent
	}
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return nil, errSilent
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var q dns.Msg
	if err := q.Unpack(query); err != nil {
		return nil, err
	}
	m := new(dns.Msg)
	m.SetReply(&q)
	m.Compress = true
	if u.rnd.IntN(100) == 0 {
		m.Rcode = dns.RcodeServerFailure
		return m.Pack()
	}
	name := q.Question[0].Name
	t := told{ttl: time.Duration(u.rnd.IntN(600)) * time.Second, at: time.Now()}
	if u.rnd.IntN(10) == 0 {
		m.Rcode = dns.RcodeNameError
		m.Ns = append(m.Ns, &dns.SOA{Hdr: dns.RR_Header{Name: "example.", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: uint32(t.ttl / time.Second)},
			Ns: "ns.example.", Mbox: "host.example.", Minttl: 86400})
	} else {
		t.number = u.rnd.Uint32() | 1
		m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: uint32(t.ttl / time.Second)},
			A: []byte{byte(t.number >> 24), byte(t.number >> 16), byte(t.number >> 8), byte(t.number)}})
	}
	u.said[strings.ToLower(name)] = append(u.said[strings.ToLower(name)], t)
	return m.Pack()
}

// check tells what is wrong with an answer that came now.
func (u *whimsical) check(name string, m *dnswire.Message, kept time.Duration) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if m.Status == "SERVFAIL" {
		return nil
	}
	var number, ttl uint32
	switch {
	case m.Status == "NOERROR" && len(m.Answer) == 1:
		a := netip.MustParseAddr(m.Answer[0].Data).As4()
		number, ttl = uint32(a[0])<<24|uint32(a[1])<<16|uint32(a[2])<<8|uint32(a[3]), m.Answer[0].TTL
	case m.Status == "NXDOMAIN" && len(m.Authority) == 1:
		ttl = m.Authority[0].TTL
	default:
		return errors.New("neither an address nor a denial")
	}
	stale := len(m.Errors) > 0
	if stale {
		if code := m.Errors[0].Code; ttl != 30 || (code == 19) != (number == 0) || code != 3 && code != 19 {
			return errors.New("badly marked as stale")
		}
	}
	said := u.said[name]
	for i, t := range slices.Backward(said) {
		age := now.Sub(t.at)
		good := age < t.ttl || age == 0
		switch {
		case t.number != number && good && i == len(said)-1 && age > 0:
			return fmt.Errorf("what was said %s ago, for %s, is still good", age, t.ttl)
		case t.number != number:
			continue
		case stale && !good && age < t.ttl+kept:
			return nil
		case !stale && good && time.Duration(ttl)*time.Second <= t.ttl-age.Truncate(time.Second):
			return nil
		case number != 0:
			return fmt.Errorf("was said %s ago, for %s", age, t.ttl)
		}
	}
	return errors.New("was never said, or too long ago")
}

// TestNoExpiredAnswerThroughADay checks through a day of answers that expire, change and
// are missing that no expired answer is given unless it is marked stale, nor a stale one
// while there is a valid one.
func TestNoExpiredAnswerThroughADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const kept = time.Hour
		u := &whimsical{rnd: rand.New(rand.NewPCG(1, 2)), said: make(map[string][]told)}
		store, err := cache.New(cache.Config{Size: 64 << 10, MaxTTL: 86400, MaxNegativeTTL: 86400, Stale: kept})
		if err != nil {
			t.Fatal(err)
		}
		f, err := forward.New(forward.Config{
			Routes: []forward.Route{{Timeout: 4 * time.Second, Policy: forward.Sequential,
				Upstreams: []forward.Upstream{{Addr: netip.MustParseAddrPort("192.0.2.53:53")}, {Addr: netip.MustParseAddrPort("192.0.2.54:53")}}}},
			Cache: store, Limits: budget.Limits{Total: 1000, PerSource: 1000}, StaleAfter: 1800 * time.Millisecond, Exchange: u.exchange,
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := respond.New(respond.Config{Data: exampleDB(t), Upstreams: f})
		if err != nil {
			t.Fatal(err)
		}
		var counts [3]int // answers, stale ones, failures
		var mu sync.Mutex
		client := func(seed uint64) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			worker := r.NewWorker(0)
			for end := time.Now().Add(24 * time.Hour); time.Now().Before(end); {
				time.Sleep(time.Duration(rnd.ExpFloat64() * float64(10*time.Second)))
				name := fmt.Sprintf("name%d.example.", int(rnd.ExpFloat64()*30))
				packet := query(t, dnswire.QuerySpec{Name: name, Type: dnswire.TypeA, UDPSize: 1232, Flags: dnswire.FlagRD})
				answer, later := worker.Respond(packet, respond.Client{Addr: netip.MustParseAddr("192.0.2.1")}, make([]byte, 0, dnswire.MaxMessage))
				if later != nil {
					answer = later.Answer(t.Context())
				}
				m, err := dnswire.ParseMessage(answer)
				if err != nil {
					t.Error(err)
					return
				}
				if err := u.check(name, m, kept); err != nil {
					t.Errorf("%s: %v:\n%s", name, err, m)
					return
				}
				mu.Lock()
				switch {
				case m.Status == "SERVFAIL":
					counts[2]++
				case len(m.Errors) > 0:
					counts[1]++
				default:
					counts[0]++
				}
				mu.Unlock()
			}
		}
		var wg sync.WaitGroup
		for seed := range uint64(5) {
			wg.Go(func() { client(seed) })
		}
		wg.Wait()
		time.Sleep(time.Minute) // for what is still being asked
		figures := f.Stats()
		t.Logf("answers, stale ones, failures: %v; %d questions of upstreams, %d before the end of a TTL", counts, figures.Misses, figures.Prefetched)
		if counts[0] < 10_000 || counts[1] < 100 || counts[2] == 0 || figures.Prefetched == 0 {
			t.Error("too few of one kind for the test to mean anything")
		}
	})
}
