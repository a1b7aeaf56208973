// Package policy measures network policies: what a change, a start and a packet cost, the agent's
// memory, and how long a Pod's start waits. Kernels are those of network namespaces that it makes. It
// prints a table in Markdown. See docs/bench.md.
package policy

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// settings are the values of the flags.
type settings struct {
	rounds  int
	changes int
	batches int
	starts  int
	parts   string
	write   string
}

// Suite returns this measurement as a subcommand.
func Suite() rig.Suite {
	return rig.Suite{Name: "policy", Short: "network policies: changes, packets, memory, Pod starts", Declare: declare}
}

// declare declares the flags and returns the measurement that uses their values.
func declare(flags *flag.FlagSet) rig.Measurement {
	s := new(settings)
	rig.RoundsFlag(flags, &s.rounds, 3)
	flags.IntVar(&s.changes, "changes", 1000, "changes of a label, in each round")
	flags.IntVar(&s.batches, "batches", 25, "batches of packets of each kind, in each round")
	flags.IntVar(&s.starts, "starts", 300, "Pods that start, in each round")
	flags.StringVar(&s.parts, "parts", "", "only these, with commas between: "+strings.Join(partNames(), ","))
	rig.WriteFlag(flags, &s.write)
	return s.run
}

// part is a measurement.
type part struct {
	name    string
	title   string
	measure func(*bench, context.Context) ([]figure, error) // for one round
}

func parts() []part {
	return []part{
		{"change", "A label of a Pod changes", (*bench).measureChanges},
		{"load", "All rules into an empty kernel", (*bench).measureLoad},
		{"packets", "Packets to a Pod that policies select", (*bench).measurePackets},
		{"memory", "The agent", (*bench).measureMemory},
		{"starts", "A Pod starts", (*bench).measureStarts},
		{"verdicts", "A verdict", (*bench).measureVerdicts},
	}
}

func partNames() (names []string) {
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// bench is the state that all measurements share.
type bench struct {
	*settings
	log      *slog.Logger
	dir      string
	machine  string
	portolan *rig.Program
	others   []float64 // the share of the processors that other programs used before each round
	added    float64   // to a first packet by few policies, in the last round, in µs
}

func (s *settings) run(ctx context.Context, log *slog.Logger, dir string) error {
	if os.Getuid() != 0 {
		return errors.New("network namespaces need root")
	}
	if s.rounds < 1 || s.changes < 1 || s.batches < 1 || s.starts < 1 {
		return errors.New("rounds, changes, batches and starts are at least 1")
	}
	if s.batches > maxBatches {
		return fmt.Errorf("there are at most %d batches", maxBatches)
	}
	chosen, err := rig.Choose(partNames(), s.parts)
	if err != nil {
		return err
	}
	b := &bench{settings: s, log: log, dir: dir, machine: rig.DescribeMachine()}
	workshop, err := rig.NewWorkshop(ctx, log, dir)
	if err != nil {
		return err
	}
	if b.portolan, err = workshop.Program(ctx, rig.NamePortolan); err != nil {
		return err
	}
	var sections []*section
	for _, p := range parts() {
		if slices.Contains(chosen, p.name) {
			sections = append(sections, &section{part: p})
		}
	}
	if err := b.measure(ctx, sections); err != nil {
		fmt.Print(b.markdown(sections)) // the results so far
		return err
	}
	return rig.Report(b.markdown(sections), s.write, "policy")
}

func (b *bench) measure(ctx context.Context, sections []*section) error {
	for round := range b.rounds {
		b.others = append(b.others, rig.OtherLoad(time.Second))
		for _, s := range sections {
			b.log.Info("measuring", "part", s.name, "round", round+1)
			figures, err := s.measure(b, ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			s.rounds = append(s.rounds, figures)
		}
	}
	return nil
}
