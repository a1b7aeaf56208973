package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/network/wireguard"
	"portolan.dev/portolan/internal/support/retry"
)

// TestPublisher: a key is written until the Node has it, and again when it has another.
func TestPublisher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		own := wireguard.Key{1}
		var wrote []string
		refuse := true
		p := newPublisher(func(_ context.Context, key string) error {
			if refuse {
				refuse = false
				return errors.New("away")
			}
			wrote = append(wrote, key)
			return nil
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.run(ctx) }()
		for _, step := range []struct {
			claim     string
			own, node wireguard.Key
			writes    int
			published bool
		}{
			{"without a device there is no key", wireguard.Key{}, wireguard.Key{}, 0, false},
			{"a key is written, after an error, too", own, wireguard.Key{}, 1, false},
			{"the Node has it", own, own, 0, true},
			{"the Node lost it", own, wireguard.Key{}, 1, false},
			{"the device has another", wireguard.Key{2}, own, 1, false},
		} {
			synctest.Wait()
			wrote = nil
			p.compare(step.own, step.node)
			time.Sleep(retry.LongestPause) // of the bubble
			synctest.Wait()
			if len(wrote) != step.writes || step.writes > 0 && wrote[0] != step.own.String() {
				t.Errorf("%s: compare(%s, %s) writes %q, want %d times", step.claim, step.own, step.node, wrote, step.writes)
			}
			if got := p.isPublished(); got != step.published {
				t.Errorf("%s: isPublished() = %t, want %t", step.claim, got, step.published)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}
