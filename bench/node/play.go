package node

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"portolan.dev/portolan/test/netns/nodes"
)

// faults returns the faults of the server, then those of the agent.
func faults() []fault {
	all := []string{direct, coreDNSCache, kepCache, replica}
	agents := []string{kepCache, replica}
	return []fault{
		{"gone", "the server can't be reached", all, nil, gone},
		{"rolled", "the server is rolled", all, nil, rolled},
		{"killed", "the agent is killed, the cluster DNS IP is on the node", agents, nil, killed},
		{"killed-local", "the agent is killed, its own address first, the cluster DNS IP second", []string{kepCache},
			localFirst, killedSome},
		{"killed-coredns", "the cache on the node is killed", []string{coreDNSCache}, nil, killedSome},
		{"upgraded", "a second agent takes over", agents, nil, upgraded},
		{"flushed", "all tables of nftables are flushed", agents, nil, flushed},
		{"device", "the device with the addresses is deleted", agents, nil, deviceDeleted},
		{"churn", "1,000 changes a second", []string{direct, replica}, nil, churn},
		{"history", "1,000 changes a second, and no history of them", []string{replica}, withoutHistory, churn},
		{"key", "the agent has another key than the server", []string{replica}, nil, otherKey},
	}
}

func faultNames() (names []string) {
	for _, f := range faults() {
		names = append(names, f.name)
	}
	return names
}

// gone drops all packets between the nodes and the server's node.
func gone(ctx context.Context, s *scene) error {
	const all = 1000
	if err := s.world.Loss(all); err != nil {
		return err
	}
	if err := pause(ctx, s.gone); err != nil {
		return err
	}
	s.mark()
	return s.world.Loss(0)
}

// rolled starts another server, redirects all queries to it, and stops the previous
// one.
func rolled(ctx context.Context, s *scene) error {
	for range s.rolls {
		old := s.server
		s.mark()
		if err := s.startServer(ctx, 1-s.at); err != nil {
			return err
		}
		if err := old.Stop(); err != nil {
			return err
		}
		if err := pause(ctx, calm/4); err != nil {
			return err
		}
	}
	return nil
}

// deadPause is the pause before a killed agent is restarted, and alivePause before the
// next one is killed.
const (
	deadPause  = 100 * time.Millisecond
	alivePause = 500 * time.Millisecond
)

// killed kills the agent and restarts it. killedSome does so less often.
func killed(ctx context.Context, s *scene) error { return killTimes(ctx, s, s.kills) }

func killedSome(ctx context.Context, s *scene) error { return killTimes(ctx, s, (s.kills+3)/4) }

func killTimes(ctx context.Context, s *scene, times int) error {
	for range times {
		s.mark()
		s.agents[0].Kill()
		if err := pause(ctx, deadPause); err != nil {
			return err
		}
		if err := s.startAgentOf(ctx, 0); err != nil {
			return err
		}
		if err := pause(ctx, alivePause); err != nil {
			return err
		}
	}
	return nil
}

// localFirst returns a way in which the agent listens only on its local address, and
// Pods have the cluster DNS IP as second server.
func localFirst(w way) way {
	w.agent = func(b *bench, node int) (*nodes.Process, error) {
		return b.startAgent(node, b.agentConfig(cacheMode, node, nodes.Local))
	}
	w.resolv = func(namespace string, _ ...netip.Addr) string {
		return nodes.WithSearch(namespace, nodes.Local, nodes.DNSService)
	}
	w.service = nodes.Local
	return w
}

// upgraded starts a second agent, and stops the first one when the second serves.
func upgraded(ctx context.Context, s *scene) error {
	for range s.rolls {
		old := s.agents[0]
		s.mark()
		if err := s.startAgentOf(ctx, 0); err != nil {
			return err
		}
		if err := old.Stop(); err != nil {
			return err
		}
		if err := pause(ctx, alivePause); err != nil {
			return err
		}
	}
	return nil
}

// flushed deletes all tables. Those of kube-proxy are restored at once.
func flushed(ctx context.Context, s *scene) error {
	for range s.rolls {
		s.mark()
		if err := s.world.Nodes[0].Rules("flush ruleset"); err != nil {
			return err
		}
		if err := s.world.Lead(nodes.Servers[s.at]); err != nil {
			return err
		}
		if err := pause(ctx, alivePause); err != nil {
			return err
		}
	}
	return nil
}

// deviceDeleted deletes the agent's device.
func deviceDeleted(ctx context.Context, s *scene) error {
	for range (s.rolls + 3) / 4 {
		s.mark()
		n, err := s.world.Nodes[0].DeleteDevices("portolan")
		if err != nil {
			return err
		}
		if n == 0 {
			return errors.New("the agent has no device")
		}
		if err := pause(ctx, calm); err != nil {
			return err
		}
	}
	return nil
}
