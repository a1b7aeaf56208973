package synthetic

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Put writes one EndpointSlice over the one that is there.
type Put func(context.Context, *discoveryv1.EndpointSlice) error

// stormIPs are what Storm puts in the place of the first address of a Service's
// endpoints.
const stormIPs = "10.192.0.0"

// Change puts another address in the place of the first.
func Change(o *discoveryv1.EndpointSlice, address netip.Addr) *discoveryv1.EndpointSlice {
	o.Endpoints[0].Addresses[0] = address.String()
	return o
}

// Storm changes EndpointSlices of Services with cluster IPs through put until
// it is told to stop, which gives how many it changed in a second. A pace of 0
// is as fast as put can, many at once; else one change in each pace.
func (c *Cluster) Storm(ctx context.Context, pace time.Duration, put Put) (stop func() (rate float64, err error)) {
	const writers = 16
	ctx, cancel := context.WithCancel(ctx)
	began := time.Now()
	var changed atomic.Int64
	one := func() error {
		n := int(changed.Add(1))
		// Another address than the time before, or it would be no change.
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
