package plan

import (
	"maps"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// DefaultRoom is the largest size of all Services with the memory limit of the shipped manifests.
const DefaultRoom = 3 << 18

// room is what the Services take of what a proxy holds, most in all. If all together are larger, the
// oldest are served, of each namespace half of most. A Service that does not fit is left out, while
// younger ones may fit.
type room struct {
	most       int
	wanted     int            // the size of all Services
	used       int            // the size of those that are served
	namespaces map[string]int // used, by namespace
	leftOut    map[cluster.Key]struct{}
	// disturbed: since misplaced was called, a Service has come, gone, or changed its size or age.
	disturbed bool
}

func newRoom(most int) room {
	return room{most: most, namespaces: make(map[string]int), leftOut: make(map[cluster.Key]struct{})}
}

// fits reports whether a Service of a size fits, too; wanted does not count it yet.
func (r *room) fits(key cluster.Key, size int) bool {
	return size == 0 || r.wanted+size <= r.most || r.fitsBeside(key, size)
}

// fitsBeside is fits where not all Services do.
func (r *room) fitsBeside(key cluster.Key, size int) bool {
	return r.used+size <= r.most && r.namespaces[key.Namespace]+size <= r.most/2
}

// add gives a Service its room, or notes that it is left out.
func (r *room) add(key cluster.Key, s *Service) {
	r.wanted += s.Size
	if s.isLeftOut() {
		r.leftOut[key] = struct{}{}
		return
	}
	r.use(key, s.Size)
}

// remove undoes add.
func (r *room) remove(key cluster.Key, s *Service) {
	r.wanted -= s.Size
	if s.isLeftOut() {
		delete(r.leftOut, key)
		return
	}
	r.use(key, -s.Size)
}

func (r *room) use(key cluster.Key, size int) {
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

// misplaced returns the Services that are to be left out and are not, and those that are and fit. It
// looks at Services only if not all fit and one of them is another than before.
func (c *Compiler) misplaced() (out, in []cluster.Key) {
	disturbed := c.room.disturbed
	if c.room.disturbed = false; !disturbed || len(c.room.leftOut) == 0 {
		return nil, nil
	}
	if c.room.wanted <= c.room.most {
		return nil, slices.Collect(maps.Keys(c.room.leftOut))
	}
	all := make([]*compiled, 0, len(c.services))
	for _, s := range c.services {
		all = append(all, s)
	}
	slices.SortFunc(all, (*compiled).compare)
	right := newRoom(c.room.most)
	for _, s := range all {
		fits := right.fitsBeside(s.source.Key, s.Size)
		if fits {
			right.use(s.source.Key, s.Size)
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
