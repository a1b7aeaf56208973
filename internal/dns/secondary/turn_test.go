package secondary

import (
	"testing"

	"portolan.dev/portolan/internal/dns/transfer"
)

// TestBusyPrimaryResponds checks that a busy primary says so before a secondary gives up.
func TestBusyPrimaryResponds(t *testing.T) {
	if transfer.SlotTime >= messageTime {
		t.Errorf("a transfer waits %v for its turn, and a secondary %v for a message", transfer.SlotTime, messageTime)
	}
}
