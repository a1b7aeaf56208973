package forward

import "sync"

// hedges bounds the additional queries that are sent when upstreams are late:
// on average one per hedgeCost queries of clients, which is enough if a tenth
// of all packets is lost, and a burst of maxBudget/hedgeCost.
type hedges struct {
	mu   sync.Mutex
	left int
}

const (
	hedgeCost   = 5
	maxBudget   = 64 * hedgeCost
	firstBudget = 16 * hedgeCost
)

// earn is called for each query of a client.
func (b *hedges) earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+1, maxBudget)
}

// spend reports whether one more additional query may be sent, and counts it.
func (b *hedges) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < hedgeCost {
		return false
	}
	b.left -= hedgeCost
	return true
}
