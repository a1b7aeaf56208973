package limiter

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var client = ClientOf(netip.MustParseAddr("192.0.2.1"))

// TestRates sends requests at times in milliseconds.
func TestRates(t *testing.T) {
	t.Parallel()
	tenASecond := Rate{Key: "a", Requests: 10, Per: time.Second, Burst: 3}
	for claim, test := range map[string]struct {
		limits []Rate
		at     []int
		want   string // . is allowed, and x is not
	}{
		"a burst, and no more":       {[]Rate{tenASecond}, []int{0, 0, 0, 0, 0}, "...xx"},
		"one more for each interval": {[]Rate{tenASecond}, []int{0, 0, 0, 0, 100, 100, 200}, "...x.x."},
		"a whole burst after a wait": {[]Rate{tenASecond}, []int{0, 0, 0, 300, 300, 300, 300}, "......x"},
		"no more than a burst later": {[]Rate{tenASecond}, []int{0, 9000, 9000, 9000, 9000}, "....x"},
		"the stricter of two": {
			[]Rate{tenASecond, {Key: "b", Requests: 1, Per: time.Minute, Burst: 1}}, []int{0, 100, 60_000}, ".x.",
		},
		"what one refuses counts in none": {
			[]Rate{{Key: "b", Requests: 1, Per: time.Second, Burst: 1}, {Key: "a", Requests: 1, Per: time.Hour, Burst: 2}},
			[]int{0, 10, 20, 30, 1000, 2000}, ".xxx.x",
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			r := NewRates(1024)
			got := ""
			var gotSb41 strings.Builder
			for _, ms := range test.at {
				if _, ok := r.Allow(client, r.start.Add(time.Duration(ms)*time.Millisecond), test.limits); ok {
					gotSb41.WriteString(".")
				} else {
					gotSb41.WriteString("x")
				}
			}
			got += gotSb41.String()
			if got != test.want {
				t.Errorf("Allow at %v = %s, want %s", test.at, got, test.want)
			}
		})
	}
}

// TestWait allows a request after the time that it was told to wait, and not before.
func TestWait(t *testing.T) {
	t.Parallel()
	r := NewRates(1024)
	limit := []Rate{{Key: "a", Requests: 6, Per: time.Minute, Burst: 1}}
	r.Allow(client, r.start, limit)
	wait, ok := r.Allow(client, r.start.Add(time.Second), limit)
	if ok || wait != 9*time.Second {
		t.Fatalf("Allow after 1 s = %v, %t, want 9s", wait, ok)
	}
	if _, ok := r.Allow(client, r.start.Add(time.Second+wait-1), limit); ok {
		t.Error("allowed before the wait was over")
	}
	if _, ok := r.Allow(client, r.start.Add(time.Second+wait), limit); !ok {
		t.Error("refused after the wait")
	}
}

// TestChangedRate has a client with a long wait be limited by the new limit alone.
func TestChangedRate(t *testing.T) {
	t.Parallel()
	r := NewRates(1024)
	for range 100 {
		r.Allow(client, r.start, []Rate{{Key: "a", Requests: 1, Per: time.Hour, Burst: 100}})
	}
	wait, ok := r.Allow(client, r.start, []Rate{{Key: "a", Requests: 10, Per: time.Second, Burst: 5}})
	if ok || wait > 100*time.Millisecond {
		t.Errorf("Allow = %v, %t, want a wait of 100ms", wait, ok)
	}
}

func TestClientOf(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		a, b string
		same bool
	}{
		"IPv4 addresses differ":      {"192.0.2.1", "192.0.2.2", false},
		"IPv4 in IPv6 is IPv4":       {"192.0.2.1", "::ffff:192.0.2.1", true},
		"a /64 of IPv6 is a client":  {"2001:db8::1", "2001:db8::ffff:1", true},
		"two of them are two":        {"2001:db8:0:1::1", "2001:db8:0:2::1", false},
		"a zone says nothing":        {"fe80::1%eth0", "fe80::1%eth1", true},
		"IPv4 is no network of IPv6": {"192.0.2.1", "::", false},
	} {
		if same := ClientOf(netip.MustParseAddr(test.a)) == ClientOf(netip.MustParseAddr(test.b)); same != test.same {
			t.Errorf("%s: ClientOf(%s) == ClientOf(%s) is %t", claim, test.a, test.b, same)
		}
	}
}

// numbered returns the n-th of many clients.
func numbered(n int) Client {
	addr := netip.MustParseAddr("2001:db8::").As16()
	binary.BigEndian.PutUint32(addr[4:], uint32(n))
	return ClientOf(netip.AddrFrom16(addr))
}

// TestManyClients has 100,000 clients be in no more memory than some have, and a client that they do not crowd out of
// its own limit.
func TestManyClients(t *testing.T) {
	const entries, attackers = 16 << 10, 100_000
	r := NewRates(entries)
	strict := []Rate{{Key: "victim", Requests: 1, Per: time.Hour, Burst: 1}}
	if _, ok := r.Allow(client, r.start, strict); !ok {
		t.Fatal("the first request is refused")
	}
	before := allocated()
	for n := range attackers {
		key := fmt.Sprintf("rule %d", n%3)
		if _, ok := r.Allow(numbered(n), r.start.Add(time.Millisecond), []Rate{
			{Key: key, Requests: 1, Per: time.Minute, Burst: 1},
		}); !ok {
			t.Fatalf("the first request of client %d is refused", n)
		}
	}
	if got := r.Len(); got > entries {
		t.Errorf("%d clients made %d entries, want %d at most", attackers, got, entries)
	}
	if grown := allocated() - before; grown > entries*160 {
		t.Errorf("%d clients took %d octets, want %d at most", attackers, grown, entries*160)
	}
	if _, ok := r.Allow(client, r.start.Add(time.Second), strict); ok {
		t.Error("other clients, of other rules, had a client's request be forgotten")
	}
	runtime.KeepAlive(r)
}

// TestOneRuleFlooded has the clients of one limit crowd out each other, and not those of another.
func TestOneRuleFlooded(t *testing.T) {
	t.Parallel()
	const entries = 4 << 10
	r := NewRates(entries)
	other := []Rate{{Key: "other", Requests: 1, Per: time.Minute, Burst: 1}}
	for n := range entries / 4 {
		r.Allow(numbered(n), r.start, other)
	}
	for n := range 100_000 {
		r.Allow(numbered(n), r.start, []Rate{{Key: "flooded", Requests: 1, Per: time.Second, Burst: 1}})
	}
	allowed := 0
	for n := range entries / 4 {
		if _, ok := r.Allow(numbered(n), r.start, other); ok {
			allowed++
		}
	}
	if allowed > entries/4/10 {
		t.Errorf("%d of %d clients of another limit were forgotten", allowed, entries/4)
	}
}

// TestFullBucketsGoFirst forgets clients that sent nothing for long, and not one that is refused at present.
func TestFullBucketsGoFirst(t *testing.T) {
	t.Parallel()
	const entries = 2 << 10
	r := NewRates(entries)
	limit := []Rate{{Key: "a", Requests: 1, Per: 10 * time.Second, Burst: 1}}
	for n := range entries / 2 {
		r.Allow(numbered(n), r.start, limit)
	}
	later := r.start.Add(time.Minute)
	r.Allow(client, later, []Rate{{Key: "a", Requests: 1, Per: time.Hour, Burst: 1}})
	for n := range entries / 2 {
		r.Allow(numbered(n+entries), later, limit)
	}
	if _, ok := r.Allow(client, later, []Rate{{Key: "a", Requests: 1, Per: time.Hour, Burst: 1}}); ok {
		t.Error("the client that had the longest wait was forgotten")
	}
}

func allocated() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestAtOnce has many goroutines use up one limit, which stays what it is.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	r, c := NewRates(1024), NewCounts()
	var allowed, entered atomic.Int64
	var group sync.WaitGroup
	hold := make(chan struct{})
	for range 50 {
		group.Go(func() {
			for range 20 {
				if _, ok := r.Allow(client, r.start, []Rate{{Key: "a", Requests: 1, Per: time.Hour, Burst: 100}}); ok {
					allowed.Add(1)
				}
			}
			if c.Enter("a", client, 7) {
				entered.Add(1)
				<-hold
				c.Leave("a", client)
			} else if entered.Load() >= 7 {
				return
			}
		})
	}
	for c.Len() == 0 || entered.Load() < 7 {
		runtime.Gosched()
	}
	close(hold)
	group.Wait()
	if allowed.Load() != 100 {
		t.Errorf("%d requests were allowed, want 100", allowed.Load())
	}
	if c.Len() != 0 {
		t.Errorf("%d clients are counted after the end of all requests", c.Len())
	}
}
