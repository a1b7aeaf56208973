package programmer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/programmer"
)

// TestWithCure: errors of transactions say what the user can do, where that is known.
func TestWithCure(t *testing.T) {
	t.Parallel()
	for reason, want := range map[error]string{
		unix.EPERM:      "(it needs the capability NET_ADMIN, in the node's network)",
		unix.EOPNOTSUPP: "(it needs Linux 5.13 or newer, with all modules of nftables)",
		unix.EBUSY:      unix.EBUSY.Error(),
	} {
		err := fmt.Errorf("nftables table ip portolan-proxy: %w", reason)
		if got := programmer.WithCure(err); !errors.Is(got, reason) || !strings.HasSuffix(got.Error(), want) {
			t.Errorf("programmer.WithCure(%q) = %q, want it to end with %q", err, got, want)
		}
	}
}
