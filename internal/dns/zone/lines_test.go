package zone

import (
	"testing"
	"unsafe"
)

// TestCacheLines checks that the structures used by a lookup fit a cache line each.
func TestCacheLines(t *testing.T) {
	const line = 64
	for what, size := range map[string]uintptr{"node": unsafe.Sizeof(node{}), "Subtree": unsafe.Sizeof(Subtree{})} {
		if size > line {
			t.Errorf("a %s has %d octets, want %d at most", what, size, line)
		}
	}
}
