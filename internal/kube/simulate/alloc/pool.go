package alloc

import (
	"hash/fnv"

	"portolan.dev/portolan/internal/cluster"
)

// pool gives out places from 0 to size-1 and knows who holds which. It takes
// room for what is held only. The places below static are the last to be chosen.
type pool struct {
	size, static uint64
	holders      map[uint64]cluster.Key
	staticHeld   uint64
}

func newPool(size, static uint64) *pool {
	return &pool{size: size, static: static, holders: make(map[uint64]cluster.Key)}
}

// take makes key the holder of a place, and reports whether it was free.
func (p *pool) take(place uint64, key cluster.Key) bool {
	if _, held := p.holders[place]; held {
		return false
	}
	p.holders[place] = key
	if place < p.static {
		p.staticHeld++
	}
	return true
}

// release frees a place that is held.
func (p *pool) release(place uint64) {
	delete(p.holders, place)
	if place < p.static {
		p.staticHeld--
	}
}

// choose takes a free place for key: the first from where purpose leads it in the
// upper part, round the end, and when there is none, in the lower part likewise.
// So whoever comes later hardly ever changes what others would get.
func (p *pool) choose(key cluster.Key, purpose string) (place uint64, ok bool) {
	lead := lead(key, purpose)
	if uint64(len(p.holders))-p.staticHeld < p.size-p.static {
		place, ok = p.free(lead, p.static, p.size), true
	} else if p.staticHeld < p.static {
		place, ok = p.free(lead, 0, p.static), true
	}
	return place, ok && p.take(place, key)
}

// free is the first free place from first to before end, from where lead leads.
// There must be one.
func (p *pool) free(lead, first, end uint64) uint64 {
	place := first + lead%(end-first)
	for {
		if _, held := p.holders[place]; !held {
			return place
		}
		if place++; place == end {
			place = first
		}
	}
}

// lead is a number that is always the same for a key and a purpose. No byte of
// zero is in either.
func lead(key cluster.Key, purpose string) uint64 {
	h := fnv.New64a()
	for _, s := range []string{key.Namespace, key.Name, purpose} {
		_, _ = h.Write([]byte(s)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return spread(h.Sum64())
}

// spread makes each bit of a number matter for each of the result, so that names
// that differ in their last letters are led far apart (the finalizer of
// MurmurHash3, 64 bits).
func spread(n uint64) uint64 {
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	n *= 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}

// claim is a place that a Service took and may have to give back at once.
type claim struct {
	pool  *pool
	place uint64
}
