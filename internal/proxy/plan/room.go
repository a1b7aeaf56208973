package plan

import (
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// DefaultRoom is the largest size of all Services, with the memory limit of the shipped manifests or
// a larger one. The time in which the kernel lists elements grows with the square of their number.
const DefaultRoom = 3 << 18

// room is what the Services take of what a proxy holds. The oldest Services have it. One that does
// not fit is left out, and younger ones that fit are not. All Services have a size that is not more
// than most, and those of one namespace half of it: who may create Services in one namespace only
// keeps none out of others.
type room struct {
	most       int
	used       int
	namespaces map[string]int // used, by namespace
	leftOut    map[cluster.Key]struct{}
}

func newRoom(most int) room {
	return room{most: most, namespaces: make(map[string]int), leftOut: make(map[cluster.Key]struct{})}
}

// fits reports whether a Service of a size fits, too.
func (r *room) fits(key cluster.Key, size int) bool {
	return r.used+size <= r.most && r.namespaces[key.Namespace]+size <= r.most/2
}

// enter gives a Service its room, or notes that it is left out.
func (r *room) enter(key cluster.Key, s *Service) {
	if s.isLeftOut() {
		r.leftOut[key] = struct{}{}
		return
	}
	r.take(key, s.Size)
}

// leave undoes enter.
func (r *room) leave(key cluster.Key, s *Service) {
	if s.isLeftOut() {
		delete(r.leftOut, key)
		return
	}
	r.take(key, -s.Size)
}

func (r *room) take(key cluster.Key, size int) {
	r.used += size
	if r.namespaces[key.Namespace] += size; r.namespaces[key.Namespace] == 0 {
		delete(r.namespaces, key.Namespace)
	}
}

// isLeftOut reports whether a Service has no frontends because it did not fit.
func (s *Service) isLeftOut() bool { return s.Size > 0 && len(s.Frontends) == 0 }

// withoutRoom returns what a Service of a size is compiled into that is left out.
func withoutRoom(size int) Service {
	return Service{Size: size, Verdicts: []Verdict{{Reason: NoRoom}}}
}

// misplaced returns the Services that are to be left out and are not, and those that are and fit. As
// long as all fit, it looks at none.
func (c *Compiler) misplaced() (out, in []cluster.Key) {
	if len(c.room.leftOut) == 0 {
		return nil, nil
	}
	all := make([]*compiled, 0, len(c.services))
	for _, s := range c.services {
		all = append(all, s)
	}
	slices.SortFunc(all, (*compiled).compare)
	right := newRoom(c.room.most)
	for _, s := range all {
		fits := right.fits(s.source.Key, s.Size)
		if fits {
			right.take(s.source.Key, s.Size)
		}
		switch {
		case fits && s.isLeftOut():
			in = append(in, s.source.Key)
		case !fits && !s.isLeftOut():
			out = append(out, s.source.Key)
		}
	}
	return out, in
}
