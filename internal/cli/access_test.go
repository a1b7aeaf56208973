package cli

import (
	"testing"
	"time"

	"portolan.dev/portolan/internal/kube/source"
)

// TestRequestTimeout checks that --request-timeout is that of kubectl.
func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"": -1, "5": 5 * time.Second, "1m30s": 90 * time.Second, "1.5s": 1500 * time.Millisecond,
		"0": source.Forever, "0s": source.Forever, "-1": -1, "-1s": -1, "soon": -1, "99999999999999": -1,
	} {
		var f timeoutFlag
		err := f.Set(text)
		if got := time.Duration(f); want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("Set(%q) = %v, %s; want %s, or an error if it is negative", text, err, got, want)
		}
	}
}
