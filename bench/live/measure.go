package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"portolan.dev/portolan/test/e2e/controlplane"
)

// bench is what all measurements need.
type bench struct {
	*settings
	log        *slog.Logger
	api        *controlplane.ControlPlane
	writer     *writer
	dir        string
	contenders []*contender // CoreDNS, Portolan, Portolan with a snapshot
	changed    int          // timed changes so far
}

// contenders, by place.
const (
	theirs = iota
	ours
	oursWarm // only for the start without the API
	all
)

// half is what was measured on one cluster.
type half struct {
	sizes  sizes
	rounds [all][]*round
	// others is which part of the processors others used, each time when all
	// that is measured was idle.
	others []float64
}

// round is what was measured of one contender once.
type round struct {
	memory, peak      float64       // MiB
	memoryAfter       float64       // after the storm
	ready, readyCost  time.Duration // from the start, and the processor time for it
	firstSecond       [outcomes]int
	change            []time.Duration // from the return of a write to the answer
	storm, stream     []time.Duration
	stormRate         float64 // other changes in a second
	streamRate        float64
	withoutAPI        [outcomes]int // in the first seconds
	withoutAPIAnswers time.Duration // from start to the first right answer; 0 is none
}

// half measures everything on the cluster as it is.
func (b *bench) half(ctx context.Context, s sizes) (*half, error) {
	h := &half{sizes: s}
	fake, err := newFakeAPI(s)
	if err != nil {
		return nil, err
	}
	defer fake.Close()
	fakeConfig := filepath.Join(b.dir, "fake.kubeconfig")
	if err := fake.kubeconfig(fakeConfig); err != nil {
		return nil, err
	}
	for n := range b.rounds {
		for i := range 2 {
			place := (n + i) % 2 // each is first as often as the other
			r := new(round)
			h.rounds[place] = append(h.rounds[place], r)
			b.log.Info("measuring", "round", n+1, "of", b.contenders[place].name, "pods", s.pods)
			if err := b.firstSecond(b.contenders[place], s, r); err != nil {
				return nil, err
			}
			if err := b.onRealAPI(ctx, b.contenders[place], h, r); err != nil {
				return nil, err
			}
			if err := b.onFakeAPI(ctx, b.contenders[place], fake, fakeConfig, s, r); err != nil {
				return nil, err
			}
		}
	}
	return h, b.withoutAPI(ctx, h)
}

// onRealAPI measures start, memory and changes.
func (b *bench) onRealAPI(ctx context.Context, c *contender, h *half, r *round) error {
	server, err := b.measureStart(ctx, c, h.sizes, r)
	if err != nil {
		return err
	}
	defer server.stop()
	const settle = 5 * time.Second
	others := otherLoad(settle)
	h.others = append(h.others, others)
	if r.memory, r.peak, err = server.memory(); err != nil {
		return err
	}
	if r.change, err = b.timeChanges(ctx, server.dns, h.sizes, b.writer.put); err != nil {
		return err
	}
	if r.storm, r.stormRate, err = b.timeInStorm(ctx, server.dns, h.sizes, 0, b.writer.put); err != nil {
		return err
	}
	r.memoryAfter, _, err = server.memory()
	return err
}

// onFakeAPI measures changes in a steady stream of others.
func (b *bench) onFakeAPI(ctx context.Context, c *contender, fake *fakeAPI, kubeconfig string, s sizes, r *round) error {
	server, err := c.start(kubeconfig)
	if err != nil {
		return err
	}
	defer server.stop()
	if err := server.waitReady(ctx); err != nil {
		return err
	}
	const pace = time.Millisecond
	r.stream, r.streamRate, err = b.timeInStorm(ctx, server.dns, s, pace, fake.put)
	return err
}

// measureStart starts a server, and waits until it is ready and right.
func (b *bench) measureStart(ctx context.Context, c *contender, s sizes, r *round) (*server, error) {
	began := time.Now()
	server, err := c.start(b.api.Kubeconfig())
	if err != nil {
		return nil, err
	}
	if err = server.waitReady(ctx); err == nil {
		err = b.allRight(ctx, server.dns, s.facts())
	}
	r.ready = time.Since(began)
	if err == nil {
		r.readyCost, err = server.processorTime()
	}
	if err != nil {
		server.stop()
		return nil, err
	}
	return server, nil
}

// firstSecond asks a server from its start on. That costs whoever answers
// already, so it is not the start that is measured.
func (b *bench) firstSecond(c *contender, s sizes, r *round) error {
	server, err := c.start(b.api.Kubeconfig())
	if err != nil {
		return err
	}
	defer server.stop()
	m, err := startMetronome(server.dns, s.facts()[0], time.Millisecond)
	if err != nil {
		return err
	}
	time.Sleep(time.Second)
	r.firstSecond = m.stop(time.Second)
	return nil
}

func (b *bench) allRight(ctx context.Context, server netip.AddrPort, facts []fact) error {
	a, err := newAsker(server)
	if err != nil {
		return err
	}
	defer a.close()
	for _, f := range facts {
		if err := a.until(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// timeChanges gives headless Services new endpoints, one after the other, and
// measures from the return of each write to the answer that has the new one.
func (b *bench) timeChanges(ctx context.Context, server netip.AddrPort, s sizes, put putFunc) (times []time.Duration, err error) {
	a, err := newAsker(server)
	if err != nil {
		return nil, err
	}
	defer a.close()
	for range b.changes {
		b.changed++
		i, address := b.changed%s.headless, nth(changedIPs, b.changed)
		if err := put(ctx, change(s.headlessSlice(i), address)); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := a.until(ctx, fact{s.headlessName(i), address}); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	return times, nil
}

// timeInStorm does so while others change.
func (b *bench) timeInStorm(ctx context.Context, server netip.AddrPort, s sizes, pace time.Duration, put putFunc) (times []time.Duration, rate float64, err error) {
	stop := storm(ctx, s, pace, put)
	const before = time.Second
	time.Sleep(before)
	times, err = b.timeChanges(ctx, server, s, put)
	rate, stormErr := stop()
	return times, rate, errors.Join(err, stormErr)
}

// withoutAPI stops the API server and measures what starts without it are like.
func (b *bench) withoutAPI(ctx context.Context, h *half) error {
	// It is to have a snapshot of the cluster.
	server, err := b.contenders[oursWarm].start(b.api.Kubeconfig())
	if err != nil {
		return err
	}
	err = server.waitReady(ctx)
	server.stop()
	if err != nil {
		return err
	}
	b.api.StopAPIServer()
	for n := range b.rounds {
		for place, c := range b.contenders {
			if place == oursWarm {
				h.rounds[place] = append(h.rounds[place], new(round))
			}
			b.log.Info("starting without the api", "round", n+1, "of", c.name)
			if err := b.startWithoutAPI(c, h.sizes, h.rounds[place][n]); err != nil {
				return err
			}
		}
	}
	return b.api.StartAPIServer(ctx)
}

// watched is how long a start without the API is watched.
const watched = 5 * time.Second

func (b *bench) startWithoutAPI(c *contender, s sizes, r *round) error {
	began := time.Now()
	server, err := c.start(b.api.Kubeconfig())
	if err != nil {
		return err
	}
	defer server.stop()
	m, err := startMetronome(server.dns, s.facts()[0], 10*time.Millisecond)
	if err != nil {
		return err
	}
	time.Sleep(watched)
	r.withoutAPI = m.stop(watched)
	if first := m.firstRight(); !first.IsZero() {
		r.withoutAPIAnswers = first.Sub(began)
	}
	return nil
}
