package node

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/test/netns/nodes"
)

// churnTime is the length of the churn, with one change per churnPace.
const (
	churnTime = 20 * time.Second
	churnPace = time.Millisecond
)

// churn changes endpoints of Services continuously, and checks that some of the changes
// become visible.
func churn(ctx context.Context, s *scene) error {
	stop := s.cluster.Storm(ctx, churnPace, s.api.Put)
	err := s.watch(ctx, churnTime)
	_, stormErr := stop()
	return errors.Join(err, stormErr)
}

// watch changes the endpoint of a headless Service repeatedly for a time, and waits
// after each change until the Pod sees it. Each change is a mark.
func (s *scene) watch(ctx context.Context, length time.Duration) error {
	for end := time.Now().Add(length); time.Now().Before(end); {
		want, err := s.changeOne(ctx)
		if err != nil {
			return err
		}
		s.mark()
		if err := s.see(ctx, want); err != nil {
			return err
		}
	}
	return nil
}

// changedIPs is the first of the addresses of changed endpoints.
const changedIPs = "10.208.0.0"

// changeOne gives a headless Service a new address.
func (s *scene) changeOne(ctx context.Context) (nodes.Want, error) {
	s.changed++
	i := s.changed % s.cluster.Services[synthetic.Headless]
	slice := synthetic.Change(s.cluster.Slices(synthetic.Headless, i)[0], synthetic.Nth(changedIPs, s.changed))
	var addrs []netip.Addr
	for e := range synthetic.Headless.Endpoints() {
		addrs = append(addrs, netip.MustParseAddr(slice.Endpoints[e].Addresses[0]))
	}
	name := strings.TrimSuffix(s.cluster.DNSName(synthetic.Headless, i), ".")
	return nodes.Want{Name: name, Addrs: addrs}, s.api.Put(ctx, slice)
}

// see waits until the Pod sees a change since the last mark.
func (s *scene) see(ctx context.Context, want nodes.Want) error {
	if err := await(ctx, s.world.Pods[0], s.service, want); err != nil {
		return err
	}
	s.heals = append(s.heals, time.Since(s.marks[len(s.marks)-1]).Seconds())
	return nil
}

// withoutHistory returns a way whose servers remember only one change.
func withoutHistory(w way) way {
	w.server = func(b *bench, at netip.Addr) (*nodes.Process, error) {
		return b.sendingServer(at, "history: {changes: 1}")
	}
	return w
}

// otherKeyTime is how long the agent has the wrong key, otherSecret.
const (
	otherKeyTime = 20 * time.Second
	otherSecret  = "YW5vdGhlciBzZWNyZXQsIHdoaWNoIGlzIHdyb25nISE="
)

// otherKey replaces the agent's key by a wrong one for a time. A change made meanwhile
// must become visible.
func otherKey(ctx context.Context, s *scene) error {
	if err := s.writeSecret(agentSecret, otherSecret); err != nil {
		return err
	}
	want, err := s.changeOne(ctx)
	if err == nil {
		err = pause(ctx, otherKeyTime)
	}
	if err := errors.Join(err, s.writeSecret(agentSecret, secret)); err != nil {
		return err
	}
	s.mark()
	return s.see(ctx, want)
}
