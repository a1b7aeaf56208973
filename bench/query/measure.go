package query

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/bench/rig"
)

// warm is the time for which the same load runs before each measurement.
const warm = 200 * time.Millisecond

// askedInTurn is the number of queries of a workload, which are sent in rotation.
const askedInTurn = 1 << 15

// sample is the result for one contender and one workload in one round.
type sample struct {
	saturated *load.Result
	// steady is the result at the fixed rate; nil if the server is too slow for it or
	// it was not run.
	steady *load.Result
}

// results are all samples, and the share of the processors that other programs used.
type results struct {
	samples map[string]map[string][]*sample // by workload and contender
	others  []float64
	// slices counts the slices of all measurements at the fixed rate, and quiet those
	// that were quiet.
	slices, quiet int
}

// measure measures all workloads of all contenders in turn. Each round starts with a
// different contender.
func (b *bench) measure(ctx context.Context) (*results, error) {
	r := &results{samples: make(map[string]map[string][]*sample)}
	for i := range b.chosen {
		w := &b.chosen[i]
		r.samples[w.name] = make(map[string][]*sample)
		if err := b.writeQueries(w); err != nil {
			return nil, err
		}
	}
	for round := range b.rounds {
		for i := range b.chosen {
			b.log.Info("measuring", "round", round+1, "workload", b.chosen[i].name)
			if err := b.measureAll(ctx, &b.chosen[i], round, r); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// measureAll measures one workload of all contenders once.
func (b *bench) measureAll(ctx context.Context, w *workload, round int, r *results) error {
	for _, c := range rig.Turned(b.running, round) {
		if !w.suits(c) {
			continue
		}
		s, err := b.sample(ctx, w, c, r)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", w.name, c.name, err)
		}
		r.samples[w.name][c.name] = append(r.samples[w.name][c.name], s)
	}
	return nil
}

// suits reports whether a contender supports the workload.
func (w *workload) suits(c *contestant) bool {
	switch c.name {
	case echo:
		return w.transport == load.UDP
	case knot: // version 3.2 does not support TLS
		return !w.transport.Secure()
	}
	return true
}

func (b *bench) queryFile(w *workload) string { return b.file(w.name + ".queries") }

func (b *bench) writeQueries(w *workload) error {
	var wires [][]byte
	for _, q := range w.ask(&b.cluster, askedInTurn) {
		wire, err := q.wire()
		if err != nil {
			return err
		}
		wires = append(wires, wire)
	}
	return load.WriteQueries(b.queryFile(w), wires)
}

// sample measures as fast as the server answers, and then at the fixed rate.
func (b *bench) sample(ctx context.Context, w *workload, c *contestant, r *results) (*sample, error) {
	if b.api != nil {
		// The API server is idle but still sends periodic messages.
		b.api.PauseAPIServer()
		defer b.api.ResumeAPIServer()
	}
	config := load.Config{
		Server:    c.address(w.transport),
		Transport: w.transport,
		Sockets:   w.sockets,
		Window:    cmp.Or(w.window, b.window),
		Roots:     b.certificate.File,
		Warm:      warm,
		Duration:  b.duration,
		Queries:   b.queryFile(w),
		Processes: c.processes,
	}
	s := new(sample)
	var err error
	if s.saturated, err = b.load(ctx, &config, r); err != nil {
		return nil, err
	}
	// With less headroom, the measured latency would be that of the queue.
	const spare = 1.1
	if w.transport.Once() || rate(s.saturated) < spare*float64(b.rate) {
		return s, nil
	}
	config.Rate = b.rate
	s.steady, err = b.load(ctx, &config, r)
	return s, err
}

// rate returns the number of queries answered per second.
func rate(r *load.Result) float64 { return float64(r.Answered) / r.Elapsed.Seconds() }

// load runs the load generator.
func (b *bench) load(ctx context.Context, config *load.Config, r *results) (*load.Result, error) {
	result, err := config.RunApart(ctx, b.generator, generatorCPU)
	if err != nil {
		return nil, err
	}
	r.others = append(r.others, result.Others)
	r.slices += result.Slices
	r.quiet += result.Quiet
	return result, nil
}
