package config_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/config"
)

// followed is a file in memory with a Follower of it.
type followed struct {
	mu      sync.Mutex
	text    string
	err     error
	blocked chan struct{} // reads block until it is closed; nil if they do not block

	reload   chan os.Signal
	ttls     []int   // of the applied configurations, in order
	outcomes []error // reported, in order
}

const inForce = "dns:\n  ttl: 7\n  zones: [cluster.local]\nlameduck: 5s\n"

// follow starts a Follower in a synctest bubble.
func follow(t *testing.T) *followed {
	t.Helper()
	f := &followed{text: inForce, reload: make(chan os.Signal)}
	follower := config.Follower{
		Text:  []byte(inForce),
		Read:  f.read,
		Parse: func(text []byte) (config.Config, error) { return config.Parse("portolan.yaml", text) },
		Apply: func(c config.Config) error {
			f.ttls = append(f.ttls, c.DNS.TTL)
			return nil
		},
		Report: func(err error) { f.outcomes = append(f.outcomes, err) },
		Reload: f.reload,
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- follower.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v, want %v", err, context.Canceled)
		}
	})
	return f
}

func (f *followed) read() ([]byte, error) {
	f.mu.Lock()
	blocked := f.blocked
	f.mu.Unlock()
	if blocked != nil {
		<-blocked
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return []byte(f.text), f.err
}

// write changes the file and waits.
func (f *followed) write(text string, wait time.Duration) {
	f.mu.Lock()
	f.text = text
	f.mu.Unlock()
	time.Sleep(wait)
	synctest.Wait()
}

// want compares what was applied and reported since the previous call.
func (f *followed) want(t *testing.T, when string, ttls []int, outcomes ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for _, err := range f.outcomes {
		got = append(got, fmt.Sprint(err))
	}
	if fmt.Sprint(f.ttls) != fmt.Sprint(ttls) || fmt.Sprint(got) != fmt.Sprint(outcomes) {
		t.Errorf("%s: applied TTLs %v, reported %q; want %v, %q", when, f.ttls, got, ttls, outcomes)
	}
	f.ttls, f.outcomes = nil, nil
}

// TestFollower checks that a file is applied if it is complete, stays the same and is
// valid. Any other outcome is reported once, and the previous configuration stays in
// force.
func TestFollower(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := follow(t)
		time.Sleep(10 * time.Second)
		f.want(t, "unchanged", nil)
		f.write(strings.Replace(inForce, "ttl: 7", "ttl: 8", 1), 3*time.Second)
		f.want(t, "changed", []int{8}, "<nil>")
		f.write("", 10*time.Second)
		f.want(t, "emptied", nil, "the configuration file is empty")
		f.write(" \n\n", 10*time.Second)
		f.want(t, "white space", nil)
		f.write("# nothing\n", 10*time.Second)
		f.want(t, "comments", nil)
		f.reload <- os.Interrupt
		time.Sleep(3 * time.Second)
		f.want(t, "told to reload what is empty", nil, "the configuration file is empty")
		f.write("dns: {ttl: many}\n", 10*time.Second)
		f.want(t, "invalid", nil, `config portolan.yaml:1: dns.ttl: "many" is not a whole number`)
		f.write(strings.Replace(inForce, "ttl: 7", "ttl: 8", 1), 3*time.Second)
		f.want(t, "as in force again", []int{8}, "<nil>")
		f.write("dns:\n  ttl: 8\n", 3*time.Second)
		f.want(t, "cut off, a moment ago", nil)
		f.write("dns:\n  ttl: 8\n", 10*time.Second)
		f.want(t, "shortened for good", []int{8}, "<nil>")
		f.reload <- os.Interrupt
		f.want(t, "told to reload", []int{8}, "<nil>")
		f.mu.Lock()
		f.err = os.ErrNotExist
		f.mu.Unlock()
		time.Sleep(10 * time.Second)
		f.want(t, "gone", nil, "file does not exist")
	})
}

// TestFollowerInPlace checks that 40 rewrites in place, with pauses of up to 200 ms
// between the writes, never put a part of the file in force.
func TestFollowerInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := follow(t)
		random := rand.New(rand.NewPCG(1, 2))
		whole := inForce + "log:\n  level: debug\n"
		for range 40 {
			f.write("", time.Duration(1+random.IntN(200))*time.Millisecond)
			for end := 0; end < len(whole); {
				end = min(end+1+random.IntN(12), len(whole))
				f.write(whole[:end], time.Duration(1+random.IntN(200))*time.Millisecond)
			}
		}
		time.Sleep(3 * time.Second)
		f.want(t, "after 40 rewrites", []int{7}, "<nil>")
	})
}

// TestFollowerBlocked checks that a blocked read is reported once, and that the file is
// followed again when the read ends.
func TestFollowerBlocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := follow(t)
		time.Sleep(time.Second)
		f.mu.Lock()
		f.blocked = make(chan struct{})
		f.mu.Unlock()
		time.Sleep(time.Minute)
		f.want(t, "blocked", nil, "read the configuration: no answer in time (3s)")
		f.mu.Lock()
		close(f.blocked)
		f.blocked = nil
		f.mu.Unlock()
		time.Sleep(10 * time.Second)
		f.want(t, "as before", []int{7}, "<nil>")
		f.write(strings.Replace(inForce, "ttl: 7", "ttl: 9", 1), 10*time.Second)
		f.want(t, "read again", []int{9}, "<nil>")
	})
}
