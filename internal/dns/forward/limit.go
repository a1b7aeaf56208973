package forward

import (
	"errors"
	"net/netip"
	"sync"
)

// Errors of Ask.
var (
	ErrBusy       = errors.New("too many queries wait for other servers")
	ErrClientBusy = errors.New("too many queries of this client wait for other servers")
)

// places bounds how many queries wait for answers at once.
type places struct {
	all, each int

	mu     sync.Mutex
	taken  int
	client map[netip.Addr]int
}

func (p *places) init(all, each int) {
	p.all, p.each, p.client = all, each, make(map[netip.Addr]int)
}

func (p *places) take(client netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.taken >= p.all:
		return ErrBusy
	case p.client[client] >= p.each:
		return ErrClientBusy
	}
	p.taken++
	p.client[client]++
	return nil
}

func (p *places) give(client netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.client[client]--; p.client[client] == 0 {
		delete(p.client, client)
	}
}

// count is how many are taken.
func (p *places) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// budget bounds the queries that are sent beside those that clients cause: one
// for each five of those over time, which does for a network that loses a tenth of
// all packets, and so many at once.
type budget struct {
	mu   sync.Mutex
	left int
}

const (
	hedgeCost   = 5
	maxBudget   = 64 * hedgeCost
	firstBudget = 16 * hedgeCost
)

// earn is called for each query of a client.
func (b *budget) earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+1, maxBudget)
}

// spend tells whether one more query may be sent, and counts it.
func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < hedgeCost {
		return false
	}
	b.left -= hedgeCost
	return true
}
