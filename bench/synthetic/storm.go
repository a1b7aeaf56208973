package synthetic

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Put replaces an EndpointSlice.
type Put func(context.Context, *discoveryv1.EndpointSlice) error

// stormIPs is the first of the addresses that Storm sets as the first address of a
// Service's endpoints.
const stormIPs = "10.192.0.0"

// Change replaces the first address of o and returns o.
func Change(o *discoveryv1.EndpointSlice, address netip.Addr) *discoveryv1.EndpointSlice {
	o.Endpoints[0].Addresses[0] = address.String()
	return o
}

// Storm changes EndpointSlices of Services with cluster IPs through put until stop is
// called. stop returns the number of changes per second. With a pace of 0 it calls put
// as fast as possible, concurrently; otherwise it makes one change per pace.
func (c *Cluster) Storm(ctx context.Context, pace time.Duration, put Put) (stop func() (rate float64, err error)) {
	const writers = 16
	ctx, cancel := context.WithCancel(ctx)
	began := time.Now()
	var changed atomic.Int64
	one := func() error {
		n := int(changed.Add(1))
		// The address differs from the previous one; otherwise there would be no
		// change.
		services := c.Services[ClusterIP]
		i, time := n%services, n/services
		return put(ctx, Change(c.Slices(ClusterIP, i)[0], Nth(stormIPs, 2*i+time%2)))
	}
	var group errgroup.Group
	if pace == 0 {
		for range writers {
			group.Go(func() error { return whileNot(ctx, one) })
		}
	} else {
		next := began
		group.Go(func() error {
			return whileNot(ctx, func() error {
				next = next.Add(pace)
				time.Sleep(time.Until(next))
				return one()
			})
		})
	}
	return func() (float64, error) {
		rate := float64(changed.Load()) / time.Since(began).Seconds()
		cancel()
		return rate, group.Wait()
	}
}

func whileNot(done context.Context, f func() error) error {
	for done.Err() == nil {
		if err := f(); err != nil && done.Err() == nil {
			return err
		}
	}
	return nil
}
