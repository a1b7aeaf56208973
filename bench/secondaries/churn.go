package secondaries

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/bench/synthetic"
)

// churn changes EndpointSlices of Services of a kind, in turn.
type churn struct {
	cluster *synthetic.Cluster
	kind    synthetic.Kind
	put     synthetic.Put
	changed atomic.Int64 // so far; a Service's address is another one each time
}

// changedIPs are what changes put in the place of the first address.
const changedIPs = "10.192.0.0"

// start makes changeRate changes a second until it is told to stop, which gives
// why it could not.
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
			// Whoever waited for a processor makes up for it.
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

// last are the names of the endpoints that came last, so many at most, the last one
// first.
func (c *churn) last(n int) (names []string) {
	changed := int(c.changed.Load())
	for i := range min(n, changed, c.cluster.Services[c.kind]) {
		label := strings.ReplaceAll(synthetic.Nth(changedIPs, changed-i).String(), ".", "-")
		names = append(names, label+"."+c.cluster.DNSName(c.kind, (changed-i)%c.cluster.Services[c.kind]))
	}
	return names
}
