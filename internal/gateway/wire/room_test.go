package wire_test

import (
	"testing"

	"portolan.dev/portolan/internal/gateway/wire"
)

// TestRooms: those that pass much get large rooms, but not all if they are many, and others again when they are fewer.
func TestRooms(t *testing.T) { //nolint:paralleltest // it uses all large rooms
	const much, many = 1 << 20, 1000
	large, small := len(wire.NewRoom(much)), len(wire.NewRoom(0))
	if large <= small {
		t.Fatalf("a large room has %d octets, a small one %d", large, small)
	}
	var rooms [][]byte
	sizes := make(map[int]int)
	for range many {
		room := wire.NewRoom(much)
		rooms = append(rooms, room)
		sizes[len(room)]++
	}
	if sizes[large] == 0 || sizes[large] > many/2 || sizes[small] != many-sizes[large] {
		t.Errorf("rooms by their sizes: %v, want a part of them large", sizes)
	}
	for _, room := range rooms {
		wire.FreeRoom(room)
	}
	if room := wire.NewRoom(much); len(room) != large {
		t.Errorf("a room of %d octets when others were freed, want %d", len(room), large)
	}
}
