package live

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/test/e2e/controlplane"
)

// bench is the state that all measurements share.
type bench struct {
	*settings
	log        *slog.Logger
	api        *controlplane.ControlPlane
	client     *kubernetes.Clientset
	dir        string
	contenders []contender // CoreDNS, Portolan, Portolan with a snapshot
	changed    int         // number of timed changes so far
}

// contender is a measured program, which runs on any API server.
type contender struct {
	name string
	on   func(kubeconfig string) *rig.Contender
}

// These are the indexes of contenders.
const (
	theirs = iota
	ours
	oursWarm // only for the start without the API
	all
)

// half is the result for one cluster.
type half struct {
	cluster *synthetic.Cluster
	rounds  [all][]*round
	// others are the shares of the processors that other programs used, measured while
	// all contenders were idle.
	others []float64
}

// round is the result of one contender in one round.
type round struct {
	memory, peak float64 // MiB
	own          float64 // the part of memory that is not backed by files
	memoryAfter  float64 // after the storm
	startup
	firstSecond       [outcomes]int
	change            changes // from the return of a write to the answer
	storm, stream     changes
	stormRate         float64 // other changes per second
	streamRate        float64
	withoutAPI        [outcomes]int // in the first seconds
	withoutAPIAnswers time.Duration // from the start to the first right answer; 0 is none
}

// startup is the start of a server, until it is ready and answers correctly.
type startup struct {
	took, processor time.Duration
	stolen          float64 // share of the processors that the host took meanwhile
}

// changes are the latencies of timed changes.
type changes struct {
	times []time.Duration
	// quiet is the share of changes in slices in which the host took no time. If it is
	// too small, times has all changes.
	quiet float64
}

// half measures everything with the given cluster.
func (b *bench) half(ctx context.Context, s *synthetic.Cluster) (*half, error) {
	h := &half{cluster: s}
	fake, err := fakeapi.New(s)
	if err != nil {
		return nil, err
	}
	defer fake.Close()
	fakeConfig := filepath.Join(b.dir, "fake.kubeconfig")
	if err := fake.Kubeconfig(fakeConfig); err != nil {
		return nil, err
	}
	for n := range b.rounds {
		for i := range 2 {
			place := (n + i) % 2 // the contenders alternate in being first
			r := new(round)
			h.rounds[place] = append(h.rounds[place], r)
			b.log.Info("measuring", "round", n+1, "of", b.contenders[place].name, "pods", s.Pods)
			if b.parts[firstSecond] {
				err = b.firstSecond(b.contenders[place], s, r)
			}
			if err == nil && (b.parts[start] || b.parts[changing]) {
				err = b.onRealAPI(ctx, b.contenders[place], h, r)
			}
			if err == nil && b.parts[stream] {
				err = b.onFakeAPI(ctx, b.contenders[place], fake, fakeConfig, h, r)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if b.parts[withoutAPI] {
		err = b.withoutAPI(ctx, h)
	}
	return h, err
}

// settle is the pause before changes are timed.
const settle = 5 * time.Second

// onRealAPI measures start, memory and changes.
func (b *bench) onRealAPI(ctx context.Context, c contender, h *half, r *round) error {
	server, err := b.quietStart(ctx, c, h.cluster, r)
	if err != nil {
		return err
	}
	defer func() { server.Stop() }()
	h.others = append(h.others, rig.OtherLoad(settle))
	if r.memory, r.peak, err = server.Memory(); err == nil {
		r.own, err = server.OwnMemory()
	}
	if err != nil || !b.parts[changing] {
		return err
	}
	defer rig.KeepGarbage()()
	if r.change, err = b.timeChanges(ctx, server.DNS, h.cluster, b.changes, b.put); err != nil {
		return err
	}
	if r.storm, r.stormRate, err = b.timeInStorm(ctx, server.DNS, h.cluster, b.changes, 0, b.put); err != nil {
		return err
	}
	r.memoryAfter, _, err = server.Memory()
	return err
}

// onFakeAPI measures changes in a steady stream of other changes.
func (b *bench) onFakeAPI(
	ctx context.Context,
	c contender,
	fake *fakeapi.Server,
	kubeconfig string,
	h *half,
	r *round,
) error {
	server, err := c.on(kubeconfig).Start()
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := server.WaitReady(ctx); err != nil {
		return err
	}
	h.others = append(h.others, rig.OtherLoad(settle))
	defer rig.KeepGarbage()()
	const (
		pace = time.Millisecond
		more = 10 // as many changes, because each takes a fraction of a millisecond
	)
	r.stream, r.streamRate, err = b.timeInStorm(ctx, server.DNS, h.cluster, more*b.changes, pace, fake.Put)
	return err
}

// quietStart starts a server repeatedly, up to a limit, until the host took little time
// during a start. The start with the least stolen time counts, and the last server
// continues to run.
func (b *bench) quietStart(
	ctx context.Context,
	c contender,
	s *synthetic.Cluster,
	r *round,
) (server *rig.Server, err error) {
	const (
		tries  = 4
		little = .01 // share of the processors
	)
	for n := range tries {
		if n > 0 {
			server.Stop()
		}
		var this startup
		if server, this, err = b.measureStart(ctx, c, s); err != nil {
			return nil, err
		}
		if n == 0 || this.stolen < r.stolen {
			r.startup = this
		}
		if this.stolen < little {
			break
		}
	}
	return server, nil
}

// measureStart starts a server and waits until it is ready and answers correctly.
func (b *bench) measureStart(ctx context.Context, c contender, s *synthetic.Cluster) (*rig.Server, startup, error) {
	began, before := time.Now(), rig.ReadUsage()
	server, err := c.on(b.api.Kubeconfig()).Start()
	if err != nil {
		return nil, startup{}, err
	}
	if err = server.WaitReady(ctx); err == nil {
		err = b.allRight(ctx, server.DNS, facts(s))
	}
	this := startup{took: time.Since(began)}
	now := rig.ReadUsage()
	this.stolen = float64(now.Stolen-before.Stolen) / float64(now.All-before.All)
	if err == nil {
		this.processor, err = server.ProcessorTime()
	}
	if err != nil {
		server.Stop()
	}
	return server, this, err
}

// firstSecond queries a server from its start on. Queries cost processor time, so this
// start is not the measured one.
func (b *bench) firstSecond(c contender, s *synthetic.Cluster, r *round) error {
	server, err := c.on(b.api.Kubeconfig()).Start()
	if err != nil {
		return err
	}
	defer server.Stop()
	m, err := startMetronome(server.DNS, facts(s)[0], time.Millisecond)
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

// timeChanges gives headless Services new endpoints, one after another, and measures
// from the return of each write to the answer with the new endpoint. It stops when
// enough changes were in slices in which the host took no time.
func (b *bench) timeChanges(
	ctx context.Context,
	server netip.AddrPort,
	s *synthetic.Cluster,
	wanted int,
	put synthetic.Put,
) (c changes, err error) {
	const mostTries = 3 // times the number of wanted changes
	a, err := newAsker(server)
	if err != nil {
		return c, err
	}
	defer a.close()
	first := time.Now()
	sorted := rig.NewSlices(0, mostTries*wanted, rig.Stolen)
	for len(sorted.Kept) < wanted && len(sorted.All) < mostTries*wanted {
		took, err := b.timeChange(ctx, a, s, put)
		if err != nil {
			return c, err
		}
		sorted.Add(took)
		sorted.End(time.Since(first))
	}
	c = changes{sorted.Kept, float64(len(sorted.Kept)) / float64(len(sorted.All))}
	if len(c.times) < wanted/2 {
		c.times = sorted.All
	}
	return c, nil
}

// timeChange makes one change and measures it.
func (b *bench) timeChange(
	ctx context.Context,
	a *asker,
	s *synthetic.Cluster,
	put synthetic.Put,
) (time.Duration, error) {
	b.changed++
	i, address := b.changed%s.Services[synthetic.Headless], synthetic.Nth(changedIPs, b.changed)
	if err := put(ctx, synthetic.Change(s.Slices(synthetic.Headless, i)[0], address)); err != nil {
		return 0, err
	}
	began := time.Now()
	err := a.until(ctx, fact{s.DNSName(synthetic.Headless, i), address})
	return time.Since(began), err
}

// timeInStorm measures changes during a storm of other changes.
func (b *bench) timeInStorm(
	ctx context.Context,
	server netip.AddrPort,
	s *synthetic.Cluster,
	wanted int,
	pace time.Duration,
	put synthetic.Put,
) (c changes, rate float64, err error) {
	stop := s.Storm(ctx, pace, put)
	const before = time.Second
	time.Sleep(before)
	c, err = b.timeChanges(ctx, server, s, wanted, put)
	rate, stormErr := stop()
	return c, rate, errors.Join(err, stormErr)
}

// withoutAPI stops the API server and measures starts without it.
func (b *bench) withoutAPI(ctx context.Context, h *half) error {
	// This start writes the snapshot of the cluster.
	server, err := b.contenders[oursWarm].on(b.api.Kubeconfig()).Start()
	if err != nil {
		return err
	}
	err = server.WaitReady(ctx)
	server.Stop()
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
			if err := b.startWithoutAPI(c, h.cluster, h.rounds[place][n]); err != nil {
				return err
			}
		}
	}
	return b.api.StartAPIServer(ctx)
}

// watched is how long a start without the API is observed.
const watched = 5 * time.Second

func (b *bench) startWithoutAPI(c contender, s *synthetic.Cluster, r *round) error {
	began := time.Now()
	server, err := c.on(b.api.Kubeconfig()).Start()
	if err != nil {
		return err
	}
	defer server.Stop()
	m, err := startMetronome(server.DNS, facts(s)[0], 10*time.Millisecond)
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
