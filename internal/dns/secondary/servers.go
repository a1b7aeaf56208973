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

// failing is a server that failed.
type failing struct {
	times int       // one after another
	until time.Time // it is not asked before, while there are others
	why   string    // as it was logged
}

// How long a server that failed is left alone: twice as long each time, and some
// of it by chance, so that nodes don't ask all at once.
const (
	firstPause = 500 * time.Millisecond
	maxPause   = 10 * time.Second
	maxDoubled = 5
)

func pause(times int) time.Duration {
	d := min(firstPause<<min(times-1, maxDoubled), maxPause)
	return d/2 + rand.N(d/2)
}

// findTime is how long finding servers may take.
const findTime = 5 * time.Second

// choose gives the server to follow, and how long to wait before: of those that
// did not fail of late the one this node prefers, else the one to be asked next.
func (r *Secondary) choose(ctx context.Context, now time.Time) (s forward.Upstream, wait time.Duration, ok bool) {
	servers := slices.Clone(r.cfg.Servers)
	if r.cfg.Finder != nil {
		found, err := r.find(ctx)
		if ctx.Err() == nil {
			r.noteUnfound(err)
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

// noteUnfound notes why servers are not found, nil when they are, and logs what is
// new about it.
func (r *Secondary) noteUnfound(err error) {
	r.mu.Lock()
	before := r.unfound
	r.unfound = err
	r.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		r.cfg.Log.Warn("servers are not found; they are asked for again", "err", err)
	}
}

// find asks for the servers of the moment. Those that were found last stand where
// that fails: what finds them may be what is broken.
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

// forget forgets failures of servers that are gone.
func (r *Secondary) forget(servers []forward.Upstream) {
	for s := range r.failures {
		if !slices.Contains(servers, s) {
			delete(r.failures, s)
		}
	}
}

// weight is how much this node prefers a server (rendezvous hashing): nodes
// spread over servers, and few change when one comes or goes.
func (r *Secondary) weight(s forward.Upstream) uint64 {
	sum := sha256.Sum256([]byte(r.cfg.Node + "\x00" + s.String()))
	return binary.BigEndian.Uint64(sum[:])
}

// fail notes that a server failed, and logs what is new about it.
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
		r.cfg.Log.Warn("server can't be followed; another is tried, and it again later", "server", s, "err", err)
	}
}
