package bind

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
)

// TestWithCure: why an address can't be listened on, and what to do.
func TestWithCure(t *testing.T) {
	tests := map[string]struct {
		reason error
		want   string
	}{
		"taken":          {syscall.EADDRINUSE, "; another process has it; stop that one, or give another address with --listen"},
		"not allowed":    {syscall.EACCES, "; ports below 1024 need root or the capability CAP_NET_BIND_SERVICE"},
		"not ours":       {syscall.EADDRNOTAVAIL, "; no interface of this host has that address"},
		"something else": {syscall.EMFILE, ""},
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
