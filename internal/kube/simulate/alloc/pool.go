package alloc

import (
	"hash/fnv"

	"portolan.dev/portolan/internal/cluster"
)

// pool allocates offsets from 0 to size-1 and records their holders. It uses memory for
// allocated offsets only. The offsets below staticSize are the last that reserveFree
// uses.
type pool struct {
	size, staticSize uint64
	holders          map[uint64]cluster.Key
	staticHeld       uint64
}

func newPool(size, static uint64) *pool {
	return &pool{size: size, staticSize: static, holders: make(map[uint64]cluster.Key)}
}

// reserve makes key the holder of an offset and reports whether it was free.
func (p *pool) reserve(offset uint64, key cluster.Key) bool {
	if _, held := p.holders[offset]; held {
		return false
	}
	p.holders[offset] = key
	if offset < p.staticSize {
		p.staticHeld++
	}
	return true
}

// release frees a reserved offset.
func (p *pool) release(offset uint64) {
	delete(p.holders, offset)
	if offset < p.staticSize {
		p.staticHeld--
	}
}

// reserveFree reserves a free offset for key. It probes the upper band first, then the
// lower one, each from the hash of key and purpose on and cyclically. Therefore a new key
// hardly ever changes the offsets of other keys.
func (p *pool) reserveFree(key cluster.Key, purpose string) (offset uint64, ok bool) {
	start := hash(key, purpose)
	if uint64(len(p.holders))-p.staticHeld < p.size-p.staticSize {
		offset, ok = p.firstFree(start, p.staticSize, p.size), true
	} else if p.staticHeld < p.staticSize {
		offset, ok = p.firstFree(start, 0, p.staticSize), true
	}
	return offset, ok && p.reserve(offset, key)
}

// firstFree returns the first free offset in [first, end), probing cyclically from start.
// The caller guarantees that there is one.
func (p *pool) firstFree(start, first, end uint64) uint64 {
	offset := first + start%(end-first)
	for {
		if _, held := p.holders[offset]; !held {
			return offset
		}
		if offset++; offset == end {
			offset = first
		}
	}
}

// hash returns a hash of a key and a purpose. Neither contains a zero byte.
func hash(key cluster.Key, purpose string) uint64 {
	h := fnv.New64a()
	for _, s := range []string{key.Namespace, key.Name, purpose} {
		_, _ = h.Write([]byte(s)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return mix(h.Sum64())
}

// mix makes each bit of the input affect each bit of the result, so that names that
// differ only in their last letters get distant offsets (the 64-bit finalizer of
// MurmurHash3).
func mix(n uint64) uint64 {
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	n *= 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}

// claim is an offset reserved for a draft, to be released if the draft is refused.
type claim struct {
	pool   *pool
	offset uint64
}
