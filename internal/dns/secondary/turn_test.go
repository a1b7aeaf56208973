package secondary

import (
	"testing"

	"portolan.dev/portolan/internal/dns/transfer"
)

// TestTurn: a server says that it is busy before a replica takes it for dead.
func TestTurn(t *testing.T) {
	if transfer.SlotTime >= messageTime {
		t.Errorf("a transfer waits %v for its turn, and a replica %v for a message", transfer.SlotTime, messageTime)
	}
}
