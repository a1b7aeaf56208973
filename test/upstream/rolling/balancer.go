//go:build linux

package rolling

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// balancer chooses between the nodes that are healthy, in turn.
type balancer struct {
	nodes        []string // addresses
	port, health int32    // the node ports of connections, and of health checks

	mu      sync.Mutex
	healthy []string
	next    int
}

// run checks the nodes until ctx is done.
func (b *balancer) run(ctx context.Context) {
	const interval = 500 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		b.checkAll(ctx)
		<-tick.C
	}
}

func (b *balancer) checkAll(ctx context.Context) {
	healthy := make([]bool, len(b.nodes))
	var all sync.WaitGroup
	for i, node := range b.nodes {
		all.Go(func() { healthy[i] = check(ctx, address(node, b.health)) })
	}
	all.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.healthy = nil
	for i, node := range b.nodes {
		if healthy[i] {
			b.healthy = append(b.healthy, node)
		}
	}
}

// check reports whether a health check succeeds.
func check(ctx context.Context, addr string) bool {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr, http.NoBody)
	if err != nil {
		return false
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

var errUnhealthy = errors.New("no node is healthy")

// target returns the address for the next connection.
func (b *balancer) target() (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.healthy) == 0 {
		return "", errUnhealthy
	}
	b.next++
	return address(b.healthy[b.next%len(b.healthy)], b.port), nil
}

func address(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
