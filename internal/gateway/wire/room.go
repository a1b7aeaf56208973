package wire

import (
	"sync"
	"sync/atomic"
)

// A room has one of two sizes: a small one suffices most of the time, and what passes much gets a large one, unless so
// many are in use that their memory would count.
const (
	smallRoom = 4 << 10
	largeRoom = 32 << 10
	mostLarge = 256
)

// large is how many large rooms are in use.
var large atomic.Int64

var (
	smallRooms = sync.Pool{New: func() any { return new([smallRoom]byte) }}
	largeRooms = sync.Pool{New: func() any { return new([largeRoom]byte) }}
)

// NewRoom returns room for a read, of a size that fits if the last one brought so many octets. FreeRoom gives it back.
func NewRoom(last int) []byte {
	if last >= smallRoom {
		if large.Add(1) <= mostLarge {
			return largeRooms.Get().(*[largeRoom]byte)[:]
		}
		large.Add(-1)
	}
	return smallRooms.Get().(*[smallRoom]byte)[:]
}

// FreeRoom gives back what NewRoom returned. It leaves rooms alone that are nil or were made otherwise.
func FreeRoom(room []byte) {
	switch len(room) {
	case smallRoom:
		smallRooms.Put((*[smallRoom]byte)(room))
	case largeRoom:
		large.Add(-1)
		largeRooms.Put((*[largeRoom]byte)(room))
	}
}

// FitRoom exchanges room for what NewRoom returns, unless it has that size already.
func FitRoom(room []byte, last int) []byte {
	if len(room) == smallRoom && last < smallRoom || len(room) == largeRoom && last >= smallRoom {
		return room
	}
	FreeRoom(room)
	return NewRoom(last)
}
