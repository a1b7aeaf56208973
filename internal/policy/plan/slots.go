package plan

import (
	"iter"
	"math/bits"
)

// slots is a set of slots. Its memory grows with the chunks of slots that have any, so that sets of few
// Pods in a large cluster stay small.
type slots struct {
	chunks []*[chunkWords]uint64
	n      int
}

// chunkWords is the number of words of a chunk, chunkSlots that of slots.
const (
	chunkWords = 8
	chunkSlots = chunkWords * 64
)

func (s *slots) has(slot uint32) bool {
	chunk := slot / chunkSlots
	return int(chunk) < len(s.chunks) && s.chunks[chunk] != nil &&
		s.chunks[chunk][slot%chunkSlots/64]&(1<<(slot%64)) != 0
}

func (s *slots) insert(slot uint32) {
	if s.has(slot) {
		return
	}
	chunk := int(slot / chunkSlots)
	for len(s.chunks) <= chunk {
		s.chunks = append(s.chunks, nil)
	}
	if s.chunks[chunk] == nil {
		s.chunks[chunk] = new([chunkWords]uint64)
	}
	s.chunks[chunk][slot%chunkSlots/64] |= 1 << (slot % 64)
	s.n++
}

func (s *slots) remove(slot uint32) {
	if !s.has(slot) {
		return
	}
	chunk := slot / chunkSlots
	s.chunks[chunk][slot%chunkSlots/64] &^= 1 << (slot % 64)
	s.n--
	if *s.chunks[chunk] == [chunkWords]uint64{} {
		s.chunks[chunk] = nil
	}
}

// all yields the slots in ascending order.
func (s *slots) all() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i, chunk := range s.chunks {
			if chunk == nil {
				continue
			}
			for j, word := range chunk {
				for ; word != 0; word &= word - 1 {
					if !yield(uint32(i*chunkSlots + j*64 + bits.TrailingZeros64(word))) {
						return
					}
				}
			}
		}
	}
}

// insertAll inserts those of another set.
func (s *slots) insertAll(o *slots) {
	for slot := range o.all() {
		s.insert(slot)
	}
}
