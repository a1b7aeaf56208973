// Command outside measures what names cost that are not the cluster's: Portolan
// beside other servers that ask and remember, all with the same upstreams, which
// misbehave on command. It prints tables in Markdown. See docs/bench.md.
package main

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

func main() {
	var s settings
	flag.IntVar(&s.rounds, "rounds", 3, "how often everything is measured")
	flag.DurationVar(&s.duration, "duration", 5*time.Second, "how long each measurement is; the one of a stall has its own length")
	flag.IntVar(&s.window, "window", 128, "queries under way at once when the processor time of cache hits is measured")
	flag.StringVar(&s.parts, "parts", "", "only these, with commas between: "+strings.Join(partNames(), ","))
	flag.StringVar(&s.contenders, "contenders", "", "only these, with commas between: "+strings.Join(contenderNames(), ","))
	flag.StringVar(&s.write, "write", "", "put the tables into this `FILE`, too, between the marks")
	flag.Parse()
	rig.Main(s.run)
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
	return rig.Report(b.markdown(r), s.write, "outside")
}
