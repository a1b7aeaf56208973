package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/test/netns/nodes"
)

// stage is a running way.
type stage struct {
	*bench
	way
	server  *nodes.Process
	at      int // index in nodes.Servers
	agents  [nodes.Count]*nodes.Process
	running []*nodes.Process // including those that have stopped
}

// on starts a way, calls play, and stops the way.
func (b *bench) on(ctx context.Context, w way, play func(context.Context, *stage) error) (err error) {
	s := &stage{bench: b, way: w}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", w.name, err, s.lastWords())
		}
		err = errors.Join(err, s.takeDown())
	}()
	if err := s.setUp(ctx); err != nil {
		return err
	}
	return play(ctx, s)
}

func (s *stage) setUp(ctx context.Context) error {
	if err := s.world.Loss(0); err != nil {
		return err
	}
	if err := s.startServer(ctx, s.at); err != nil {
		return err
	}
	for i, node := range s.world.Nodes {
		if err := s.world.Resolve(i, s.resolv(s.namespace(i), s.service)); err != nil {
			return err
		}
		if s.given {
			if err := node.AddAddress(nodes.Local); err != nil {
				return err
			}
		}
		if s.agent != nil {
			if err := s.startAgentOf(ctx, i); err != nil {
				return err
			}
			if err := s.agents[i].AwaitLog(s.settled, patience); err != nil {
				return err
			}
		}
	}
	return s.awaitPods(ctx)
}

// startServer starts a server at one of the addresses, and redirects all queries to it
// when it has loaded everything.
func (s *stage) startServer(ctx context.Context, at int) (err error) {
	addr := nodes.Servers[at]
	if s.server, err = s.keep(s.way.server(s.bench, addr)); err != nil {
		return err
	}
	s.at = at
	for _, want := range s.everything() {
		if err := await(ctx, s.world.Nodes[0], addr, want); err != nil {
			return err
		}
	}
	return s.world.Lead(addr)
}

// everything returns a fully qualified name of each kind.
func (s *stage) everything() []nodes.Want {
	last := s.whole(s.cluster.Services[synthetic.ClusterIP] - 1)
	all := []nodes.Want{s.whole(0), last, external(0, 0)}
	for i, addr := range s.world.PodAddrs {
		name := fmt.Sprintf("%s.%s.pod.%s", strings.ReplaceAll(addr.String(), ".", "-"), s.namespace(i), synthetic.Domain)
		all = append(all, nodes.Want{Name: name, Addrs: []netip.Addr{addr}})
	}
	return all
}

// awaitPods waits until the Pods get answers.
func (s *stage) awaitPods(ctx context.Context) error {
	for _, pod := range s.world.Pods {
		for _, want := range s.everything() {
			if err := await(ctx, pod, s.service, want); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep makes a process stop with the stage.
func (s *stage) keep(p *nodes.Process, err error) (*nodes.Process, error) {
	if err == nil {
		s.running = append(s.running, p)
	}
	return p, err
}

// startAgentOf starts another agent on a node and waits until it serves.
func (s *stage) startAgentOf(ctx context.Context, node int) error {
	p, err := s.keep(s.agent(s.bench, node))
	if err != nil {
		return err
	}
	s.agents[node] = p
	if s.given {
		return await(ctx, s.world.Nodes[node], nodes.Local, s.whole(0))
	}
	return p.AwaitLog("msg=serving", patience)
}

// lastWords returns the end of the logs of the latest processes.
func (s *stage) lastWords() string {
	const most = 4
	var text strings.Builder
	for _, p := range s.running[max(0, len(s.running)-most):] {
		text.WriteString(p.Log())
	}
	return text.String()
}

func (s *stage) takeDown() (err error) {
	for _, p := range slices.Backward(s.running) {
		p.Kill()
	}
	for i, node := range s.world.Nodes {
		_ = os.Remove(s.zonesOf(i)) // if it exists
		if s.given {
			err = errors.Join(err, node.RemoveAddress(nodes.Local))
		}
	}
	return errors.Join(err, s.world.Loss(0))
}

// pause waits for d or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
