package conntrack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/support/ctnetlink"
)

// fakeTable notes what is cleaned and when.
type fakeTable struct {
	begin time.Time
	looks []string

	mu     sync.Mutex
	fail   error         // the next calls
	takes  time.Duration // each call
	opened int
}

// set changes what the next calls do.
func (f *fakeTable) set(fail error, takes time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail, f.takes = fail, takes
}

func (f *fakeTable) open() (table, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened++
	return f, nil
}

func (f *fakeTable) Close() error { return nil }

func (f *fakeTable) clean(s scope, all targets) (int, error) {
	addresses := slices.SortedFunc(maps.Keys(all), frontend.Address.Compare)
	f.looks = append(f.looks, fmt.Sprint(time.Since(f.begin), " ", s.family, " ", addresses))
	f.mu.Lock()
	fail, takes := f.fail, f.takes
	f.mu.Unlock()
	time.Sleep(takes)
	return len(all), fail
}

// run runs a Cleaner on a fake table within a bubble, and what happens to it.
func run(t *testing.T, cfg Config, happens func(*Cleaner, *fakeTable)) *fakeTable {
	t.Helper()
	fake := new(fakeTable)
	synctest.Test(t, func(t *testing.T) {
		fake.begin = time.Now()
		c := New(cfg)
		c.open = fake.open
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		happens(c, fake)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
	})
	return fake
}

func targetOf(at string, p frontend.Protocol) []Target {
	return []Target{{Address: address(at, p)}}
}

func TestCleanerLooks(t *testing.T) {
	t.Parallel()
	dns, dns2, dns6 := targetOf("10.96.0.10:53", frontend.UDP), targetOf("10.96.0.11:53", frontend.UDP), targetOf("[fd00::a]:53", frontend.UDP)
	web := targetOf("10.96.0.12:80", frontend.TCP)
	tests := map[string]struct {
		reset   bool
		happens func(*Cleaner, *fakeTable)
		want    []string
	}{
		"a change is looked at at once and 100 ms later": {
			happens: func(c *Cleaner, _ *fakeTable) {
				c.Changed(dns)
				time.Sleep(time.Hour)
			},
			want: []string{"0s IPv4 [10.96.0.10:53/udp]", "100ms IPv4 [10.96.0.10:53/udp]"},
		},
		"changes that follow one another share passes": {
			happens: func(c *Cleaner, _ *fakeTable) {
				c.Changed(dns)
				time.Sleep(10 * time.Millisecond)
				c.Changed(dns2)
				time.Sleep(10 * time.Millisecond)
				c.Changed(dns2)
				time.Sleep(time.Hour)
			},
			want: []string{"0s IPv4 [10.96.0.10:53/udp]", "100ms IPv4 [10.96.0.10:53/udp 10.96.0.11:53/udp]", "200ms IPv4 [10.96.0.11:53/udp]"},
		},
		"a frontend that changes again is looked at twice after that": {
			happens: func(c *Cleaner, _ *fakeTable) {
				c.Changed(dns)
				time.Sleep(150 * time.Millisecond)
				c.Changed(dns)
				time.Sleep(10 * time.Millisecond)
				c.Changed(dns)
				time.Sleep(time.Hour)
			},
			want: []string{"0s IPv4 [10.96.0.10:53/udp]", "100ms IPv4 [10.96.0.10:53/udp]", "200ms IPv4 [10.96.0.10:53/udp]", "300ms IPv4 [10.96.0.10:53/udp]"},
		},
		"a change during a pass is not lost": {
			happens: func(c *Cleaner, f *fakeTable) {
				f.set(nil, time.Second)
				c.Changed(dns)
				time.Sleep(500 * time.Millisecond)
				c.Changed(dns)
				time.Sleep(time.Hour)
			},
			want: []string{"0s IPv4 [10.96.0.10:53/udp]", "2s IPv4 [10.96.0.10:53/udp]", "4s IPv4 [10.96.0.10:53/udp]"},
		},
		"passes that take long follow one another for a while, and then are a tenth of the time": {
			happens: func(c *Cleaner, f *fakeTable) {
				f.set(nil, 90*time.Millisecond)
				for range 400 {
					c.Changed(dns)
					time.Sleep(10 * time.Millisecond)
				}
			},
			want: []string{
				"0s IPv4 [10.96.0.10:53/udp]", "100ms IPv4 [10.96.0.10:53/udp]", "200ms IPv4 [10.96.0.10:53/udp]",
				"700ms IPv4 [10.96.0.10:53/udp]", "1.6s IPv4 [10.96.0.10:53/udp]", "2.5s IPv4 [10.96.0.10:53/udp]",
				"3.4s IPv4 [10.96.0.10:53/udp]",
			},
		},
		"a second of rest follows a pass that takes longer than 100 ms": {
			happens: func(c *Cleaner, f *fakeTable) {
				f.set(nil, 500*time.Millisecond)
				for range 400 {
					c.Changed(dns)
					time.Sleep(10 * time.Millisecond)
				}
			},
			want: []string{"0s IPv4 [10.96.0.10:53/udp]", "1.5s IPv4 [10.96.0.10:53/udp]", "3s IPv4 [10.96.0.10:53/udp]"},
		},
		"each family is a pass": {
			happens: func(c *Cleaner, _ *fakeTable) {
				c.Changed(slices.Concat(dns, dns6))
				time.Sleep(50 * time.Millisecond)
			},
			want: []string{"0s IPv4 [10.96.0.10:53/udp]", "0s IPv6 [[fd00::a]:53/udp]"},
		},
		"TCP is let alone": {
			happens: func(c *Cleaner, _ *fakeTable) {
				c.Changed(web)
				time.Sleep(time.Hour)
			},
		},
		"TCP is reset if that is wanted": {
			reset: true,
			happens: func(c *Cleaner, _ *fakeTable) {
				c.Changed(web)
				time.Sleep(50 * time.Millisecond)
			},
			want: []string{"0s IPv4 [10.96.0.12:80/tcp]"},
		},
		"TCP connections to a deleted frontend go on, also if it changed just before": {
			reset: true,
			happens: func(c *Cleaner, _ *fakeTable) {
				c.Changed(web)
				time.Sleep(50 * time.Millisecond)
				c.Changed([]Target{{Address: web[0].Address, Deleted: true}})
				time.Sleep(time.Hour)
			},
			want: []string{"0s IPv4 [10.96.0.12:80/tcp]"},
		},
		"what fails is repeated, ever less often, and the socket is opened anew": {
			happens: func(c *Cleaner, f *fakeTable) {
				f.set(errors.New("no memory"), 0)
				c.Changed(dns)
				time.Sleep(500 * time.Millisecond)
				f.set(nil, 0)
				time.Sleep(time.Hour)
				f.mu.Lock()
				defer f.mu.Unlock()
				if f.opened != 3 {
					t.Errorf("the socket was opened %d times, want 3", f.opened)
				}
			},
			want: []string{
				"0s IPv4 [10.96.0.10:53/udp]", "200ms IPv4 [10.96.0.10:53/udp]",
				"600ms IPv4 [10.96.0.10:53/udp]", "700ms IPv4 [10.96.0.10:53/udp]",
			},
		},
		"a change does not wait for the end of a failure": {
			happens: func(c *Cleaner, f *fakeTable) {
				f.set(errors.New("no memory"), 0)
				c.Changed(dns)
				time.Sleep(50 * time.Millisecond)
				f.set(nil, 0)
				c.Changed(dns2)
				time.Sleep(140 * time.Millisecond)
			},
			want: []string{"0s IPv4 [10.96.0.10:53/udp]", "100ms IPv4 [10.96.0.11:53/udp]"},
		},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			fake := run(t, Config{ResetTCP: tt.reset}, tt.happens)
			if !slices.Equal(fake.looks, tt.want) {
				t.Errorf("looks:\n%q\nwant:\n%q", fake.looks, tt.want)
			}
		})
	}
}

func TestChangedDoesNotWait(t *testing.T) {
	t.Parallel()
	run(t, Config{}, func(c *Cleaner, f *fakeTable) {
		f.set(nil, time.Hour)
		for range 100 {
			begin := time.Now()
			c.Changed(targetOf("10.96.0.10:53", frontend.UDP))
			if took := time.Since(begin); took != 0 {
				t.Fatalf("Changed took %v", took)
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestPassed(t *testing.T) {
	t.Parallel()
	var passes []Pass
	failure := errors.New("no memory")
	run(t, Config{Passed: func(p Pass) { passes = append(passes, p) }}, func(c *Cleaner, f *fakeTable) {
		f.set(nil, time.Millisecond)
		c.Changed(slices.Concat(targetOf("10.96.0.10:53", frontend.UDP), targetOf("[fd00::a]:53", frontend.UDP), targetOf("[fd00::a]:53", frontend.SCTP)))
		time.Sleep(50 * time.Millisecond)
		f.set(failure, time.Millisecond)
		time.Sleep(100 * time.Millisecond)
	})
	if len(passes) != 4 {
		t.Fatalf("passes: %+v, want 4", passes)
	}
	if want := (Pass{Family: ctnetlink.IPv4, Duration: time.Millisecond, Deleted: 1}); passes[0] != want {
		t.Errorf("first pass: %+v, want %+v", passes[0], want)
	}
	if want := (Pass{Family: ctnetlink.IPv6, Duration: 2 * time.Millisecond, Deleted: 2}); passes[1] != want {
		t.Errorf("second pass: %+v, want %+v", passes[1], want)
	}
	if !errors.Is(passes[2].Err, failure) {
		t.Errorf("third pass: %+v, want error %v", passes[2], failure)
	}
}
