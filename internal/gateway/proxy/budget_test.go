package proxy

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
)

// counted returns the budget of a Service in which some requests are counted.
func counted(s *serviceBudgets, limits *table.RetryBudget, requests int) *serviceBudget {
	up := &table.Upstream{Namespace: "shop", Service: "web", Port: 80}
	b := s.request(up, limits)
	for range requests - 1 {
		b = s.request(up, limits)
	}
	return b
}

// taken is how many of some retries are allowed.
func taken(b *serviceBudget, limits *table.RetryBudget, retries int) (n int) {
	for range retries {
		if b.take(limits) {
			n++
		}
	}
	return n
}

// TestServiceBudget: a share of the requests of an interval may be sent again, and in each shorter one a few in any case.
func TestServiceBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := &table.RetryBudget{Percent: 20, Interval: 10 * time.Second, Least: 3, Per: time.Second}
		expect := func(claim string, got, want int) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %d retries, want %d", claim, got, want)
			}
		}
		var s serviceBudgets
		b := counted(&s, limits, 1000)
		expect("of 1,000 requests", taken(b, limits, 500), 200)
		time.Sleep(900 * time.Millisecond)
		expect("before the shorter interval is over", taken(b, limits, 500), 0)
		time.Sleep(100 * time.Millisecond)
		expect("after it", taken(b, limits, 500), 3)
		time.Sleep(8 * time.Second)
		counted(&s, limits, 100)
		expect("with 100 requests more", taken(b, limits, 500), 17)
		time.Sleep(time.Second)
		expect("without the first 1,000", taken(b, limits, 500), 3)
		time.Sleep(time.Minute)
		expect("after a minute", taken(b, limits, 500), 3)

		none := &table.RetryBudget{Interval: 10 * time.Second, Least: 1, Per: time.Hour}
		time.Sleep(time.Minute)
		expect("of other limits", taken(counted(&s, none, 1000), none, 500), 1)
		time.Sleep(time.Hour)
		expect("after an hour", taken(b, none, 500), 1)
	})
}

// TestServiceBudgetsForget: Services that got no request for a long time are forgotten when there are more.
func TestServiceBudgetsForget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := &table.RetryBudget{Percent: 20, Interval: time.Second, Least: 3, Per: time.Second}
		var s serviceBudgets
		for i := range 10_000 {
			time.Sleep(10 * time.Minute)
			s.request(&table.Upstream{Namespace: "shop", Service: "gone" + strconv.Itoa(i)}, limits)
			b := s.request(&table.Upstream{Namespace: "shop", Service: "web"}, limits)
			if again := s.request(&table.Upstream{Namespace: "shop", Service: "web", Port: 81}, limits); again != b {
				t.Fatal("another port of the Service has a budget of its own")
			}
		}
		if n := len(s.all); n > 200 {
			t.Errorf("%d Services are known, want fewer than 200", n)
		}
	})
}
