package upstream

import (
	"sync"
)

// A buffer has one of two sizes: a small one suffices most of the time, and what passes much gets a large one.
const (
	smallRoom = 4 << 10
	largeRoom = 32 << 10
)

var (
	smallRooms = sync.Pool{New: func() any { return new([smallRoom]byte) }}
	largeRooms = sync.Pool{New: func() any { return new([largeRoom]byte) }}
)

// newRoom returns a small buffer.
func newRoom() []byte { return smallRooms.Get().(*[smallRoom]byte)[:] }

// freeRoom gives a buffer back.
func freeRoom(room []byte) {
	switch len(room) {
	case smallRoom:
		smallRooms.Put((*[smallRoom]byte)(room))
	case largeRoom:
		largeRooms.Put((*[largeRoom]byte)(room))
	}
}

// fitRoom exchanges a buffer for one that fits the next read, if the last one brought so many octets.
func fitRoom(room []byte, last int) []byte {
	switch {
	case last == len(room) && last < largeRoom:
		freeRoom(room)
		return largeRooms.Get().(*[largeRoom]byte)[:]
	case last < smallRoom && len(room) > smallRoom:
		freeRoom(room)
		return newRoom()
	}
	return room
}
