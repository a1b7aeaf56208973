package respond

import (
	"hash/maphash"
	"math/rand/v2"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// rotationSlots is how many RRsets a Worker remembers the rotation of.
const rotationSlots = 1024

// rotation is the position in one RRset.
type rotation struct{ rrset, next uint32 }

// rotates reports whether answers begin with another record of an RRset each
// time.
func rotates(t dnswire.Type) bool {
	return t == dnswire.TypeA || t == dnswire.TypeAAAA || t == dnswire.TypeSRV
}

// rotate returns the number of the record that an answer begins with, modulo the
// RRset's length: one more than last time, or a random one where the Worker does
// not remember the RRset.
func (w *Worker) rotate(qname []byte, t dnswire.Type) int {
	h := maphash.Bytes(w.hashSeed, qname) + uint64(t)
	slot, rrset := &w.rotations[h%rotationSlots], uint32(h>>32)
	if slot.rrset != rrset {
		*slot = rotation{rrset, rand.Uint32()}
	}
	slot.next++
	return int(slot.next)
}
