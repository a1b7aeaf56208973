package forwarding

import (
	"context"
	"fmt"
	"time"

	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/bench/rig"
)

// These are the numbers of sockets, names and queries.
const (
	sockets   = 16
	hitNames  = 10_000
	hitRate   = 20_000 // queries per second
	missRate  = 2_000
	slowRate  = 1_000
	keptNames = 100_000 // names in the memory measurement
)

const (
	// warm is the time for which the same load runs before each measurement.
	warm = 200 * time.Millisecond
	// acquaintance is the time for a server to measure its upstreams.
	acquaintance = time.Second
	// patience is the timeout of a resolver in a Pod.
	patience = 5 * time.Second
)

// sample is the result for one row and one contender in one round.
type sample struct {
	// saturated is the result of the closed loop; nil if it was not run.
	saturated *load.Result
	// steady is the result at a fixed rate; nil if the server is too slow for it.
	steady *load.Result
	// uneven marks a sample with bursts of answers, for which only the latency over all
	// slices is meaningful.
	uneven bool
	// asked is the number of upstream queries per client query.
	asked float64
	// before and with are the resident memory without and with cached names, in MiB.
	before, with float64
}

// results are all samples, and the share of the processors that other programs used.
type results struct {
	samples map[row]map[string][]*sample // by contender
	others  []float64
	// slices counts the slices of all measurements at a fixed rate, and quiet those
	// that were quiet.
	slices, quiet int
	hitRates      []hitRates
}

// act is one contender on a stage, in one part.
type act struct {
	*bench
	*stage
	contender string
	results   *results
}

func (a *act) add(of row, s *sample) {
	if a.results.samples[of] == nil {
		a.results.samples[of] = make(map[string][]*sample)
	}
	a.results.samples[of][a.contender] = append(a.results.samples[of][a.contender], s)
}

// measure measures all parts of all contenders in turn. Each round starts with a
// different contender.
func (b *bench) measure(ctx context.Context) (*results, error) {
	r := &results{samples: make(map[row]map[string][]*sample)}
	for round := range b.rounds {
		for _, p := range b.parts {
			if p.play == nil {
				continue
			}
			b.log.Info("measuring", "round", round+1, "part", p.name)
			for _, e := range rig.Turned(b.entrants, round) {
				err := b.on(ctx, e, func(st *stage) error {
					return p.play(&act{b, st, e.name, r}, ctx)
				})
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", p.name, e.name, err)
				}
			}
		}
	}
	var err error
	if b.has(hitRatePart) {
		r.hitRates, err = compareHitRates()
	}
	return r, err
}

// answers measures cache hits and misses.
func (a *act) answers(ctx context.Context) error {
	names := a.newNames(hitNames)
	if err := fill(ctx, a.DNS, names); err != nil {
		return err
	}
	if err := a.hits(ctx, names); err != nil {
		return err
	}
	return a.misses(ctx, rowMiss, missRate)
}

// hits queries cached names, first as fast as the server answers and then at a fixed
// rate.
func (a *act) hits(ctx context.Context, names []string) (err error) {
	config := a.config(warm, a.duration)
	config.Window = a.window
	if config.Queries, err = a.writeQueries(names); err != nil {
		return err
	}
	before, err := a.asked(ctx)
	if err != nil {
		return err
	}
	s := new(sample)
	a.add(rowHit, s)
	if s.saturated, err = a.load(ctx, config); err != nil {
		return err
	}
	// With less headroom, the measured latency would be that of the queue.
	const spare = 1.1
	all := s.saturated.Answered
	if rate(s.saturated) >= spare*hitRate {
		config.Rate = hitRate
		if s.steady, err = a.load(ctx, config); err != nil {
			return err
		}
		all += s.steady.Answered
	}
	after, err := a.asked(ctx)
	s.asked = float64(after-before) / float64(all)
	return err
}

// rate returns the number of queries answered per second.
func rate(r *load.Result) float64 { return float64(r.Answered) / r.Elapsed.Seconds() }

// misses queries new names at a fixed rate.
func (a *act) misses(ctx context.Context, of row, rate int) error {
	s, err := a.ask(ctx, a.config(warm, a.duration), rate)
	a.add(of, s)
	return err
}

// meet gives the server time to measure its upstreams.
func (a *act) meet(ctx context.Context) error {
	_, err := a.ask(ctx, a.config(0, acquaintance), slowRate)
	return err
}

// dead measures the effect of silence of the upstream that received more queries, after
// a measurement with both.
func (a *act) dead(ctx context.Context) error {
	const first = 2 * time.Second
	if err := a.meet(ctx); err != nil {
		return err
	}
	if err := a.misses(ctx, rowGood, slowRate); err != nil {
		return err
	}
	favorite, err := a.favorite(ctx)
	if err != nil {
		return err
	}
	if err := favorite.tell(ctx, "dead"); err != nil {
		return err
	}
	s, err := a.ask(ctx, a.config(0, first), slowRate)
	if err != nil {
		return err
	}
	a.add(rowDeadFirst, s)
	return a.misses(ctx, rowDead, slowRate)
}

// loss measures the effect of packet loss at both upstreams.
func loss(of row, command string) func(*act, context.Context) error {
	return func(a *act, ctx context.Context) error {
		if err := a.meet(ctx); err != nil {
			return err
		}
		if err := a.tell(ctx, command); err != nil {
			return err
		}
		return a.misses(ctx, of, slowRate)
	}
}

// stall measures the effect of a pause of both upstreams for 3 seconds, which begins
// one second after the start.
func (a *act) stall(ctx context.Context) error {
	const (
		before = time.Second
		length = 10 * time.Second
	)
	if err := a.meet(ctx); err != nil {
		return err
	}
	told := make(chan error, 1)
	timer := time.AfterFunc(before, func() { told <- a.tell(ctx, "stall 3s") })
	defer timer.Stop()
	s, err := a.ask(ctx, a.config(0, length), slowRate)
	if err != nil {
		return err
	}
	s.uneven = true
	a.add(rowStall, s)
	return <-told
}

// memory measures the memory that cached names use.
func (a *act) memory(ctx context.Context) error {
	const rest = time.Second
	s := new(sample)
	var err error
	for _, step := range []struct {
		names int
		to    *float64
	}{{0, &s.before}, {keptNames, &s.with}} {
		if err := fill(ctx, a.DNS, a.newNames(step.names)); err != nil {
			return err
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return ctx.Err()
		}
		if *step.to, _, err = a.Memory(); err != nil {
			return err
		}
	}
	a.add(rowMemory, s)
	return nil
}

func (a *act) config(warm, duration time.Duration) *load.Config {
	return &load.Config{
		Server: a.DNS, Transport: load.UDP, Sockets: sockets,
		Warm: warm, Duration: duration, Processes: a.processes,
	}
}

// ask queries new names at a fixed rate.
func (a *act) ask(ctx context.Context, config *load.Config, rate int) (s *sample, err error) {
	config.Rate, config.Patience = rate, patience
	const more = 1000 // more than the rate needs, for late queries
	all := int(time.Duration(rate) * (config.Warm + config.Duration) / time.Second)
	if config.Queries, err = a.writeQueries(a.newNames(all + more)); err != nil {
		return nil, err
	}
	before, err := a.asked(ctx)
	if err != nil {
		return nil, err
	}
	s = new(sample)
	if s.steady, err = a.load(ctx, config); err != nil {
		return nil, err
	}
	after, err := a.asked(ctx)
	s.asked = float64(after-before) / float64(all)
	return s, err
}

// load runs the load generator.
func (a *act) load(ctx context.Context, config *load.Config) (*load.Result, error) {
	result, err := config.RunApart(ctx, a.generator, generatorCPU)
	if err != nil {
		return nil, err
	}
	r := a.results
	r.others = append(r.others, result.Others)
	r.slices += result.Slices
	r.quiet += result.Quiet
	return result, nil
}
