package secondaries

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/bench/synthetic"
)

// churn changes EndpointSlices of Services of one kind in turn.
type churn struct {
	cluster *synthetic.Cluster
	kind    synthetic.Kind
	put     synthetic.Put
	changed atomic.Int64 // so far; each change of a Service sets a new address
}

// changedIPs is the first of the addresses that changes set as the first address.
const changedIPs = "10.192.0.0"

// start makes changeRate changes a second until stop is called. stop returns the error
// if changes failed.
func (c *churn) start(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(time.Second / changeRate)
		defer ticker.Stop()
		began, made := time.Now(), 0
		for {
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-ticker.C:
			}
			// If the goroutine had to wait for a processor, it catches up.
			for ; made < int(time.Since(began).Seconds()*changeRate) && ctx.Err() == nil; made++ {
				if err := c.change(ctx); err != nil && ctx.Err() == nil {
					ended <- err
					return
				}
			}
		}
	}()
	return func() error {
		cancel()
		return <-ended
	}
}

func (c *churn) change(ctx context.Context) error {
	n := int(c.changed.Add(1))
	i := n % c.cluster.Services[c.kind]
	return c.put(ctx, synthetic.Change(c.cluster.Slices(c.kind, i)[0], synthetic.Nth(changedIPs, n)))
}

// last returns the names of the latest endpoints, at most n, latest first.
func (c *churn) last(n int) (names []string) {
	changed := int(c.changed.Load())
	for i := range min(n, changed, c.cluster.Services[c.kind]) {
		label := strings.ReplaceAll(synthetic.Nth(changedIPs, changed-i).String(), ".", "-")
		names = append(names, label+"."+c.cluster.DNSName(c.kind, (changed-i)%c.cluster.Services[c.kind]))
	}
	return names
}
