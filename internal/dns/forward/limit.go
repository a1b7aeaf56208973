package forward

import (
	"errors"
	"net/netip"
	"sync"
)

// Errors of Reserve.
var (
	ErrBusy       = errors.New("too many queries are waiting for upstream servers")
	ErrClientBusy = errors.New("too many queries of this client are waiting for upstream servers")
)

// limit bounds the queries that wait for upstreams, in total and per client.
type limit struct {
	max, maxPerClient int

	mu        sync.Mutex
	used      int
	perClient map[netip.Addr]int
}

func (p *limit) init(all, each int) {
	p.max, p.maxPerClient, p.perClient = all, each, make(map[netip.Addr]int)
}

func (p *limit) reserve(client netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.used >= p.max:
		return ErrBusy
	case p.perClient[client] >= p.maxPerClient:
		return ErrClientBusy
	}
	p.used++
	p.perClient[client]++
	return nil
}

func (p *limit) release(client netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
	if p.perClient[client]--; p.perClient[client] == 0 {
		delete(p.perClient, client)
	}
}

// inUse returns the number of reservations.
func (p *limit) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// budget bounds the additional queries that are sent when upstreams are late:
// on average one per hedgeCost queries of clients, which is enough if a tenth
// of all packets is lost, and a burst of maxBudget/hedgeCost.
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

// spend reports whether one more additional query may be sent, and counts it.
func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < hedgeCost {
		return false
	}
	b.left -= hedgeCost
	return true
}
