// Package network measures the network of Pods beside the reference CNI plugins and flannel, on nodes made
// of network namespaces, in one run: starts and ends of Pods, packets between them, and the time until a new
// node can be reached. It prints a table in Markdown. See docs/bench.md.
package network

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"portolan.dev/portolan/bench/rig"
)

// settings are the values of the flags.
type settings struct {
	rounds     int
	pods       int
	batches    int
	nodes      int
	arrivals   int
	contenders string
	write      string
}

// Suite returns this measurement as a subcommand.
func Suite() rig.Suite {
	return rig.Suite{Name: "network", Short: "the network of Pods beside reference plugins and flannel", Declare: declare}
}

// declare declares the flags and returns the measurement that uses their values.
func declare(flags *flag.FlagSet) rig.Measurement {
	s := new(settings)
	rig.RoundsFlag(flags, &s.rounds, 3)
	flags.IntVar(&s.pods, "pods", 200, "Pods that start and end, in each round")
	flags.IntVar(&s.batches, "batches", 8, "batches of packets of each kind, in each round")
	flags.IntVar(&s.nodes, "nodes", 1000, "Nodes of the cluster that others join")
	flags.IntVar(&s.arrivals, "arrivals", 50, "Nodes that join, in each round")
	flags.StringVar(&s.contenders, "contenders", "",
		fmt.Sprintf("only these, with commas between: %s,%s,%s", nameReference, nameFlannel, namePortolan))
	rig.WriteFlag(flags, &s.write)
	return s.run
}

// bench is the state that all measurements share.
type bench struct {
	*settings
	log      *slog.Logger
	dir      string
	machine  string
	versions []string
	programs map[string]*rig.Program
	others   []float64 // the share of the processors that other programs used before each round
}

// figures are the numbers of one contender in one round.
type figures map[key]float64

// result is what a contender did.
type result struct {
	*contender
	rounds []figures
}

func (s *settings) run(ctx context.Context, log *slog.Logger, dir string) error {
	results, b, err := s.measure(ctx, log, dir)
	if err != nil {
		return err
	}
	return rig.Report(b.markdown(results), s.write, "network")
}

func (s *settings) measure(ctx context.Context, log *slog.Logger, dir string) ([]*result, *bench, error) {
	if os.Getuid() != 0 {
		return nil, nil, errors.New("network namespaces need root")
	}
	if err := s.check(); err != nil {
		return nil, nil, err
	}
	chosen, err := rig.Choose([]string{nameReference, nameFlannel, namePortolan}, s.contenders)
	if err != nil {
		return nil, nil, err
	}
	b := &bench{settings: s, log: log, dir: dir, machine: rig.DescribeMachine()}
	var results []*result
	for _, c := range contenders() {
		if slices.Contains(chosen, c.name) {
			results = append(results, &result{contender: c})
		}
	}
	if err := b.build(ctx, results); err != nil {
		return nil, nil, err
	}
	for round := range s.rounds {
		b.others = append(b.others, rig.OtherLoad(otherTime))
		if err := b.round(ctx, round, results); err != nil {
			return nil, nil, fmt.Errorf("round %d: %w", round+1, err)
		}
	}
	return results, b, nil
}

func (s *settings) check() error {
	switch {
	case s.rounds < 1, s.batches < 1, s.arrivals < 1:
		return errors.New("rounds, batches and arrivals are at least 1")
	case s.pods < 1 || s.pods > maxPods:
		return fmt.Errorf("there are 1 to %d Pods", maxPods)
	case s.nodes < len(pair{}) || s.nodes+s.arrivals > maxNodes:
		return fmt.Errorf("there are %d to %d Nodes, with those that join", len(pair{}), maxNodes)
	}
	return nil
}

// round measures everything once.
func (b *bench) round(ctx context.Context, round int, results []*result) error {
	for _, r := range results {
		r.rounds = append(r.rounds, make(figures))
	}
	order := rig.Turned(results, round)
	for _, r := range order {
		b.log.Info("measuring Pods that start", "round", round+1, "of", r.name)
		if err := b.measureStarts(ctx, r); err != nil {
			return fmt.Errorf("%s: Pods that start: %w", r.name, err)
		}
	}
	b.log.Info("measuring packets", "round", round+1)
	if err := b.measurePackets(ctx, order); err != nil {
		return err
	}
	for _, r := range order {
		b.log.Info("measuring new Nodes", "round", round+1, "of", r.name)
		if err := b.measureArrivals(ctx, r); err != nil {
			return fmt.Errorf("%s: new Nodes: %w", r.name, err)
		}
	}
	return nil
}
