package bind

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
)

// TestWithCure checks that errors of listening have a remedy, and other errors do not
// change.
func TestWithCure(t *testing.T) {
	tests := map[string]struct {
		reason error
		want   string
	}{
		"in use":        {syscall.EADDRINUSE, "; stop the process that uses it, or set another address with --listen"},
		"not permitted": {syscall.EACCES, "; ports below 1024 need root or the capability CAP_NET_BIND_SERVICE"},
		"not local":     {syscall.EADDRNOTAVAIL, "; no interface of this host has that address"},
		"another error": {syscall.EMFILE, ""},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			err := fmt.Errorf("listen on [::1]:53 (tcp): %w", os.NewSyscallError("bind", tt.reason))
			got := WithCure(err, "--listen")
			if got.Error() != err.Error()+tt.want || !errors.Is(got, tt.reason) {
				t.Errorf("WithCure(%q) = %q, want it with %q", err, got, tt.want)
			}
		})
	}
	if WithCure(nil, "") != nil {
		t.Error("WithCure(nil) is an error")
	}
}
