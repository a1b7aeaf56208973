package app

import (
	"testing"
	"testing/synctest"

	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// TestCountersAreReadAside: while the counters of all chains are read, neither the worker nor another scrape
// waits, and what the worker counts meanwhile counts once.
func TestCountersAreReadAside(t *testing.T) {
	t.Parallel()
	const chain, other = "in-1", "in-2"
	for claim, c := range map[string]struct {
		read uint64 // what the reading has of the chain
		gone bool   // before the reading ends
	}{
		"read before the worker": {read: 5},
		"read after the worker":  {read: 9},
		"the chain has gone":     {read: 5, gone: true},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				release, reads := make(chan struct{}), 0
				counter := func(chain string, n uint64) nft.Counter {
					return nft.Counter{Prefix: nft.Prefix{Event: nft.Denied, Chain: chain}, Packets: n}
				}
				inKernel := uint64(7)
				m := newMetrics()
				m.read(func(chains ...string) ([]nft.Counter, error) {
					if len(chains) > 0 {
						return []nft.Counter{counter(chain, inKernel)}, nil
					}
					if reads++; reads == 2 {
						<-release
						return []nft.Counter{counter(chain, c.read), counter(other, 100)}, nil
					}
					all := []nft.Counter{counter(other, 100)}
					if inKernel > 0 {
						all = append(all, counter(chain, inKernel))
					}
					return all, nil
				})
				inKernel = 3
				expect := func(when string, want uint64) {
					t.Helper()
					if got := m.countPackets()[packetLabels{ruleset.Ingress, nft.Denied}]; got != want {
						t.Errorf("%s %d packets are counted, want %d", when, got, want)
					}
				}
				expect("at first", 103)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					m.countPackets()
				}()
				synctest.Wait()
				inKernel = 7
				gone := m.countGone([]string{chain})
				expect("while they are read", 107)
				if c.gone {
					gone()
				}
				close(release)
				<-ended
				if !c.gone {
					gone()
				}
				inKernel = 0
				expect("after the chain has gone", 107)
				inKernel = 2
				expect("after it is back", 109)
			})
		})
	}
}
