package secondary

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"portolan.dev/portolan/internal/dns/forward"
)

// failing is a primary that failed.
type failing struct {
	times int       // consecutive failures
	until time.Time // not before, unless all fail
	why   string    // as logged
}

// The pause after a failure of a primary doubles each time. It is random in
// part, so that nodes do not retry at once.
const (
	firstPause = 500 * time.Millisecond
	maxPause   = 10 * time.Second
	maxDoubled = 5
)

func pause(times int) time.Duration {
	d := min(firstPause<<min(times-1, maxDoubled), maxPause)
	return d/2 + rand.N(d/2)
}

// findTime bounds the time to find primaries.
const findTime = 5 * time.Second

// choose returns the primary to follow and how long to wait before: the one
// that this node prefers among those that did not fail recently, otherwise the
// one whose pause ends first.
func (r *Secondary) choose(ctx context.Context, now time.Time) (s forward.Upstream, wait time.Duration, ok bool) {
	servers := slices.Clone(r.cfg.Servers)
	if r.cfg.Finder != nil {
		found, err := r.find(ctx)
		if ctx.Err() == nil {
			r.recordUnfound(err)
		}
		servers = append(servers, found...)
	}
	if len(servers) == 0 {
		return s, pause(maxDoubled / 2), false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(servers)
	waitOf := func(s forward.Upstream) time.Duration {
		if f := r.failures[s]; f != nil {
			return max(0, f.until.Sub(now))
		}
		return 0
	}
	slices.SortStableFunc(servers, func(a, b forward.Upstream) int {
		return cmp.Or(cmp.Compare(waitOf(a), waitOf(b)), -cmp.Compare(r.weight(a), r.weight(b)))
	})
	return servers[0], waitOf(servers[0]), true
}

// recordUnfound records why no primaries were found, nil if some were, and logs
// changes.
func (r *Secondary) recordUnfound(err error) {
	r.mu.Lock()
	before := r.unfound
	r.unfound = err
	r.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		r.cfg.Log.Warn("cannot find primary servers; retrying", "err", err)
	}
}

// find returns the present primaries. If the Finder fails, it returns those
// found last, because the Finder may depend on what is broken.
func (r *Secondary) find(ctx context.Context) ([]forward.Upstream, error) {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	found, err := r.cfg.Finder.Find(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && len(found) > 0 {
		r.known = found
	}
	return r.known, err
}

// forget deletes the failures of primaries that are gone.
func (r *Secondary) forget(servers []forward.Upstream) {
	for s := range r.failures {
		if !slices.Contains(servers, s) {
			delete(r.failures, s)
		}
	}
}

// weight returns this node's preference for a primary, by rendezvous hashing:
// nodes spread over the primaries, and few change when one comes or goes.
func (r *Secondary) weight(s forward.Upstream) uint64 {
	sum := sha256.Sum256([]byte(r.cfg.Node + "\x00" + s.String()))
	return binary.BigEndian.Uint64(sum[:])
}

// fail records a failure of a primary and logs changes.
func (r *Secondary) fail(s forward.Upstream, err error) {
	r.mu.Lock()
	f := r.failures[s]
	if f == nil {
		f = new(failing)
		r.failures[s] = f
	}
	f.times++
	f.until = time.Now().Add(pause(f.times))
	fresh := f.why != err.Error()
	f.why = err.Error()
	r.counts.Failures++
	r.server = nil
	r.mu.Unlock()
	if fresh {
		r.cfg.Log.Warn("primary server failed; trying another", "server", s, "err", err)
	}
}
