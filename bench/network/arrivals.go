package network

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/test/await"
)

// measureArrivals adds Nodes to a large cluster and measures the time until the kernel has the routes to their Pods.
func (b *bench) measureArrivals(ctx context.Context, r *result) error {
	if r.start == nil {
		return nil
	}
	for _, w := range ways() {
		if err := b.measureArrivalsBy(ctx, r, w); err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
	}
	return nil
}

func (b *bench) measureArrivalsBy(ctx context.Context, r *result, w way) (err error) {
	const shortest, longest = 5 * time.Millisecond, 40 * time.Millisecond // between two Nodes
	nodes, err := b.newPair(ctx, r.contender, w, b.nodes)
	defer func() { err = errors.Join(err, nodes.close()) }()
	if err != nil {
		return err
	}
	n := nodes[0]
	if err := n.awaitRoutes(b.nodes); err != nil {
		return err
	}
	updates, stop := make(chan netlink.RouteUpdate, 1000), make(chan struct{})
	defer close(stop)
	if err := n.network.Do(func() error { return netlink.RouteSubscribe(updates, stop) }); err != nil {
		return fmt.Errorf("follow routes: %w", err)
	}
	defer rig.KeepGarbage()()
	before, err := n.agentTime()
	if err != nil {
		return err
	}
	var all []time.Duration
	for i := range b.arrivals {
		time.Sleep(shortest + rand.N(longest-shortest))
		took, err := n.arrival(ctx, b.nodes+1+i, updates)
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", nodeName(b.nodes+1+i), err, n.agent.lastWords())
		}
		all = append(all, took)
	}
	after, err := n.agentTime()
	into := r.rounds[len(r.rounds)-1]
	into[key{arriving, string(w) + " p50"}] = milliseconds(rig.Quantile(all, .5))
	into[key{arriving, string(w) + " p99"}] = milliseconds(rig.Quantile(all, .99))
	into[key{arriving, string(w) + " processor"}] = milliseconds(after-before) / float64(b.arrivals)
	return err
}

// awaitRoutes waits until there are routes to the Pods of so many Nodes, but the own one.
func (n *node) awaitRoutes(nodes int) error {
	const longest = 2 * time.Minute
	four, six := netip.MustParsePrefix(podRange4), netip.MustParsePrefix(podRange6)
	err := await.Within(longest, func() error {
		found := 0
		err := n.network.Do(func() error {
			for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
				all, err := netlink.RouteListFiltered(family, new(netlink.Route), 0)
				if err != nil {
					return err
				}
				for _, r := range all {
					if to := destination(&r); r.Gw != nil && (four.Contains(to.Addr()) || six.Contains(to.Addr())) {
						found++
					}
				}
			}
			return nil
		})
		if want := 2 * (nodes - 1); err == nil && found < want {
			return fmt.Errorf("there are %d routes of %d", found, want)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, n.agent.lastWords())
	}
	return nil
}

// arrival adds a Node and waits until the kernel has the routes to its Pods, of both families.
func (n *node) arrival(ctx context.Context, i int, updates <-chan netlink.RouteUpdate) (time.Duration, error) {
	const longest = 20 * time.Second
	missing := make(map[netip.Prefix]struct{})
	for _, r := range podRanges(i) {
		missing[r] = struct{}{}
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	began := time.Now()
	if err := n.api.Create("nodes", newNode(i, n.way)); err != nil {
		return 0, err
	}
	for len(missing) > 0 {
		select {
		case u, ok := <-updates:
			if !ok {
				return 0, errors.New("the kernel tells no more of routes")
			}
			if u.Type == unix.RTM_NEWROUTE {
				delete(missing, destination(&u.Route))
			}
		case <-ctx.Done():
			return 0, fmt.Errorf("there is no route: %w", ctx.Err())
		}
	}
	return time.Since(began), nil
}

// destination returns the range that a route is for.
func destination(r *netlink.Route) netip.Prefix {
	if r.Dst == nil {
		return netip.Prefix{}
	}
	addr, _ := netip.AddrFromSlice(r.Dst.IP)
	bits, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits)
}
