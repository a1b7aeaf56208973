package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
)

// limit is how long anything may take to be programmed.
const limit = 5 * time.Minute

// start is the start of a proxy, until connections to Services work.
type start struct {
	took, processor time.Duration
	memory          memory // a few seconds later
}

// measureStart starts the proxy and waits until connections work to the first, the last and
// more Services between them.
func (n *node) measureStart(ctx context.Context) (s start, err error) {
	began := time.Now()
	if err := n.start(); err != nil {
		return s, err
	}
	const some = 20
	for k := range some {
		i := (n.services - 1) * (some - 1 - k) / (some - 1)
		err := until(ctx, limit, func() (bool, error) {
			_, err := n.connect(n.target(i).addrPort())
			return err == nil, err
		})
		if err != nil {
			return s, fmt.Errorf("connect to Service %d: %w", i, err)
		}
	}
	s.took = time.Since(began)
	if s.processor, err = n.processor(); err != nil {
		return s, err
	}
	s.memory, err = n.settledMemory()
	return s, err
}

// measureChanges replaces the endpoints of some Services, at random times, and measures from
// the begin of each write to the first connection that the new endpoint serves.
func (n *node) measureChanges(ctx context.Context) (all []time.Duration, err error) {
	const longestPause = 400 * time.Millisecond // so that changes do not follow the proxy's rhythm
	// Threads that sleep in the kernel keep no others from running.
	const threads = 16
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for i := range probes {
		group.Go(func() error {
			for range (n.changes + probes - 1) / probes {
				time.Sleep(rand.N(longestPause))
				mu.Lock()
				addr := n.another()
				mu.Unlock()
				took, err := n.timeChange(ctx, i, addr)
				if err != nil {
					return err
				}
				mu.Lock()
				all = append(all, took)
				mu.Unlock()
			}
			return nil
		})
	}
	err = group.Wait()
	return all, err
}

// measureConnection returns the median of times of connections, of which a change's time has one.
func (n *node) measureConnection() (time.Duration, error) {
	const some = 200
	var all []time.Duration
	for range some {
		began := time.Now()
		if _, err := n.connect(n.target(n.services - 1).addrPort()); err != nil {
			return 0, err
		}
		all = append(all, time.Since(began))
	}
	return rig.Quantile(all, .5), nil
}

// another returns an address that no endpoint has had.
func (n *node) another() netip.Addr {
	n.changed++
	return synthetic.Nth(changedIPs, n.changed)
}

// timeChange replaces the endpoint of a Service.
func (n *node) timeChange(ctx context.Context, i int, endpoint netip.Addr) (time.Duration, error) {
	t := probe(i, endpoint)
	began := time.Now()
	if err := n.api.Put(ctx, t.slices()[0]); err != nil {
		return 0, err
	}
	err := until(ctx, limit, func() (bool, error) {
		served, err := n.connect(t.addrPort())
		return served == endpoint, err
	})
	return time.Since(began), err
}

// stormPace is the time between changes in the storm: 100 in a second.
const stormPace = 10 * time.Millisecond

// measureStorm replaces an endpoint of one Service after another and returns the processor
// time until all of it is programmed, for each second of it.
func (n *node) measureStorm(ctx context.Context) (time.Duration, error) {
	before, err := n.processor()
	if err != nil {
		return 0, err
	}
	next := time.Now()
	for i := range int(n.storm / stormPace) {
		t := n.target(i % n.services)
		t.endpoints[0] = n.another()
		if err := n.api.Put(ctx, t.slices()[0]); err != nil {
			return 0, err
		}
		next = next.Add(stormPace)
		time.Sleep(time.Until(next))
	}
	if _, err := n.timeChange(ctx, 0, n.another()); err != nil {
		return 0, err
	}
	after, err := n.processor()
	return time.Duration(float64(after-before) / n.storm.Seconds()), err
}

// churn is the result of connections while endpoints change.
type churn struct {
	connections, replaced, failed int
	first                         error // of the failures
}

// patience is how long a connection may take while endpoints change. A first packet that is
// lost is sent again after a second, so that a lost one counts as failed.
const patience = 900 * time.Millisecond

// churned is how many Services change, and churnPace how often one does.
const (
	churned   = 20
	churnPace = time.Millisecond
)

// measureChurn makes connections to Services whose endpoints are all replaced, one Service
// after another. All addresses serve, so none of them may fail.
func (n *node) measureChurn(ctx context.Context) (c churn, err error) {
	if n.connections == 0 {
		return c, nil
	}
	services := min(churned, n.services)
	changing, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	group.Go(func() error {
		next := time.Now()
		for ; changing.Err() == nil; c.replaced++ {
			t := n.target(c.replaced % services)
			for e := range t.endpoints {
				t.endpoints[e] = n.another()
			}
			for _, slice := range t.slices() {
				if err := n.api.Put(ctx, slice); err != nil {
					return err
				}
			}
			next = next.Add(churnPace)
			time.Sleep(time.Until(next))
		}
		return nil
	})
	err = n.world.Client.Do(func() error {
		for ; c.connections < n.connections && ctx.Err() == nil; c.connections++ {
			if _, err := connect(n.target(rand.N(services)).addrPort(), patience); err != nil {
				c.failed++
				c.first = err
			}
		}
		return ctx.Err()
	})
	stop()
	if err == nil {
		err = group.Wait()
	}
	return c, err
}
