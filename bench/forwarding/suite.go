// Package forwarding measures the cost of names outside the cluster, for Portolan and
// other forwarding and caching servers. All have the same upstreams, which misbehave on
// command. The package prints tables in Markdown. See docs/bench.md.
package forwarding

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// settings are the values of the flags.
type settings struct {
	rounds     int
	duration   time.Duration
	window     int
	parts      string
	contenders string
	write      string
}

// Suite returns this measurement as a subcommand.
func Suite() rig.Suite {
	return rig.Suite{
		Name:    "forwarding",
		Short:   "names outside the cluster: Portolan beside CoreDNS and Unbound, with the same upstreams",
		Declare: declare,
	}
}

// declare declares the flags and returns the measurement that uses their values.
func declare(flags *flag.FlagSet) rig.Measurement {
	s := new(settings)
	rig.RoundsFlag(flags, &s.rounds, 3)
	flags.DurationVar(&s.duration, "duration", 5*time.Second,
		"how long each measurement is; the one of a stall has its own length")
	flags.IntVar(&s.window, "window", 128, "queries under way at once when the processor time of cache hits is measured")
	flags.StringVar(&s.parts, "parts", "", "only these, with commas between: "+strings.Join(partNames(), ","))
	flags.StringVar(&s.contenders, "contenders", "",
		"only these, with commas between: "+strings.Join(contenderNames(), ","))
	rig.WriteFlag(flags, &s.write)
	return s.run
}

func (s *settings) run(ctx context.Context, log *slog.Logger, dir string) error {
	if runtime.NumCPU() < 2 {
		return errors.New("two processors are needed, one for the server and one for who asks")
	}
	if s.rounds < 1 || s.window < 1 {
		return errors.New("rounds and window are at least 1")
	}
	b := &bench{settings: s, log: log, dir: dir, machine: rig.DescribeMachine()}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	r, err := b.measure(ctx)
	if err != nil {
		return err
	}
	return rig.Report(b.markdown(r), s.write, "forwarding")
}
