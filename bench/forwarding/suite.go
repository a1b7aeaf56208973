// Package forwarding measures what names cost that are not the cluster's: Portolan
// beside other servers that ask and remember, all with the same upstreams, which
// misbehave on command. It prints tables in Markdown. See docs/bench.md.
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

// settings are what the command line says.
type settings struct {
	rounds     int
	duration   time.Duration
	window     int
	parts      string
	contenders string
	write      string
}

// Suite is this measurement as a subcommand.
func Suite() rig.Suite {
	return rig.Suite{
		Name:    "forwarding",
		Short:   "names outside the cluster: Portolan beside CoreDNS and Unbound, with the same upstreams",
		Declare: declare,
	}
}

// declare declares the flags, and returns what measures with their values.
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
