// Package node measures the effect of the agent on a node for Pods, in a small cluster
// of network namespaces, and compares it with CoreDNS: packets and latency of lookups
// by glibc and musl, with packet loss, queries during faults, and memory. It prints
// tables in Markdown. See docs/bench.md.
package node

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// settings are the values of the flags.
type settings struct {
	rounds  int
	lookups int
	gone    time.Duration
	kills   int
	rolls   int
	parts   string
	ways    string
	faults  string
	write   string
}

// Suite returns this measurement as a subcommand.
func Suite() rig.Suite {
	return rig.Suite{Name: "node", Short: "what the agent on a node is to Pods, beside CoreDNS", Declare: declare}
}

// declare declares the flags and returns the measurement that uses their values.
func declare(flags *flag.FlagSet) rig.Measurement {
	s := new(settings)
	rig.RoundsFlag(flags, &s.rounds, 2)
	flags.IntVar(&s.lookups, "lookups", 600, "lookups of each C library, each time")
	flags.DurationVar(&s.gone, "gone", time.Minute, "how long the server is gone")
	flags.IntVar(&s.kills, "kills", 100,
		"how often the agent is killed; a quarter as often with other addresses, and another agent")
	flags.IntVar(&s.rolls, "rolls", 20, "how often the server is rolled, the agent upgraded, and tables flushed")
	flags.StringVar(&s.parts, "parts", "", "only these, with commas between: "+strings.Join(partNames(), ","))
	flags.StringVar(&s.ways, "ways", "",
		"only these ways to the names, with commas between: "+strings.Join(wayNames(), ","))
	flags.StringVar(&s.faults, "faults", "", "only these faults, with commas between: "+strings.Join(faultNames(), ","))
	rig.WriteFlag(flags, &s.write)
	return s.run
}

func (s *settings) run(ctx context.Context, log *slog.Logger, dir string) error {
	if os.Getuid() != 0 {
		return errors.New("network namespaces need root")
	}
	if s.rounds < 1 || s.lookups < 1 || s.kills < 1 || s.rolls < 1 {
		return errors.New("rounds, lookups, kills and rolls are at least 1")
	}
	b := &bench{settings: s, log: log, dir: dir, machine: rig.DescribeMachine()}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer b.close()
	r, err := b.measure(ctx)
	if err != nil {
		fmt.Print(b.markdown(r)) // the results so far
		return err
	}
	return rig.Report(b.markdown(r), s.write, "node")
}
