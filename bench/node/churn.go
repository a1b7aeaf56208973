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

// churnTime is how long changes come, one each churnPace.
const (
	churnTime = 20 * time.Second
	churnPace = time.Millisecond
)

// churn has endpoints of Services change all the time, and wants to see some of
// the changes.
func churn(ctx context.Context, s *scene) error {
	stop := s.cluster.Storm(ctx, churnPace, s.api.Put)
	err := s.watch(ctx, churnTime)
	_, stormErr := stop()
	return errors.Join(err, stormErr)
}

// watch changes the endpoint of a headless Service for so long, and waits each
// time until the Pod sees that. Each change is a mark.
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

// changedIPs are addresses of endpoints that were changed.
const changedIPs = "10.208.0.0"

// changeOne gives a headless Service an address that it did not have.
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

// withoutHistory has servers remember one change.
func withoutHistory(w way) way {
	w.server = func(b *bench, at netip.Addr) (*nodes.Process, error) {
		return b.sendingServer(at, "history: {changes: 1}")
	}
	return w
}

// Keys: how long the agent has another one, and what it is.
const (
	otherKeyTime = 20 * time.Second
	otherSecret  = "YW5vdGhlciBzZWNyZXQsIHdoaWNoIGlzIHdyb25nISE="
)

// otherKey has the agent's key be another one, and then right again; a change that
// came meanwhile is to be seen.
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
