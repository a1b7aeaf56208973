package conntrack

import (
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/proxy/frontend"
)

// looks is how often the flows of a changed frontend are looked at.
const looks = 2

// queue has the frontends whose flows are to be looked at, each once: what it was told last
// of a frontend counts.
type queue map[frontend.Address]*job

// job is to look at the flows of a frontend.
type job struct {
	endpoints []netip.AddrPort
	due       time.Time
	left      int // looks, this one included
}

// put has the flows of a target looked at now, and once more later.
func (q queue) put(t Target, now time.Time) {
	j := &job{due: now, left: looks}
	if !t.Deleted {
		j.endpoints = t.Endpoints
	}
	q[t.Address] = j
}

// next returns when the first job is due; the zero time if there is none.
func (q queue) next() (first time.Time) {
	for _, j := range q {
		if first.IsZero() || j.due.Before(first) {
			first = j.due
		}
	}
	return first
}

// due returns the jobs that are due. They stay in the queue until they are done or failed.
func (q queue) due(now time.Time) queue {
	jobs := make(queue)
	for at, j := range q {
		if !j.due.After(now) {
			jobs[at] = j
		}
	}
	return jobs
}

// done notes that jobs were done; those with looks left are due again then. A target that was
// put meanwhile is another job.
func (q queue) done(jobs queue, again time.Time) {
	for at, j := range jobs {
		if q[at] != j {
			continue
		}
		if j.left--; j.left == 0 {
			delete(q, at)
		}
		j.due = again
	}
}

// failed notes that jobs are to be done again then.
func (q queue) failed(jobs queue, again time.Time) {
	for at, j := range jobs {
		if q[at] == j {
			j.due = again
		}
	}
}

// scopes returns the targets of jobs by scope.
func (q queue) scopes() map[scope]targets {
	scopes := make(map[scope]targets)
	for at, j := range q {
		s := scopeOf(at)
		if scopes[s] == nil {
			scopes[s] = make(targets)
		}
		scopes[s][at] = j.endpoints
	}
	return scopes
}
